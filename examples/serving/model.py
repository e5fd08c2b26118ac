"""A SavedModel that takes texts, and a queue whose requests it answers together."""

import asyncio
import contextlib
import json
import math

import tensorflow as tf

from examples.common.arguments import silently


class Model:
    """A SavedModel that takes one text or more for each row, and returns a dictionary."""

    def __init__(self, path):
        try:
            # TensorFlow deletes its tables with the model. SentencePiece logs its loading.
            self._loaded = silently(tf.saved_model.load, path)
            self._run = self._loaded.signatures["serving_default"]
        except (OSError, KeyError, tf.errors.OpError) as error:
            problem = str(error).splitlines()[0]
            raise SystemExit(f"{path} is no SavedModel with serving_default: {problem}") from None
        inputs = self._run.structured_input_signature[1]
        self.names = sorted(inputs)
        # One text for each row; Keras models may take it as a column.
        self._shapes = {name: x.shape.as_list() for name, x in inputs.items()}
        texts = all(x.dtype == tf.string for x in inputs.values())
        if not texts or not all(x in ([None], [None, 1]) for x in self._shapes.values()):
            found = ", ".join(f"{name}: {x.dtype.name} {x.shape}" for name, x in inputs.items())
            raise SystemExit(
                f"{path}: the server needs a model that takes one string a row for each input, of "
                f"shape (None,) or (None, 1); this one takes {found}"
            )

    def warm_up(self):
        """Calls the model, because its first call optimises the graph."""
        with contextlib.suppress(ValueError):
            self.predict([dict.fromkeys(self.names, "a")])

    def read(self, body, max_rows, max_length):
        """The rows of a request. Raises a `ValueError` that says what is wrong.

        Args:
            body: JSON, `{"instances": [...]}`.
            max_rows: the largest number of rows.
            max_length: the largest number of characters in a text.
        """
        row = dict.fromkeys(self.names, "text") if len(self.names) > 1 else "text"
        example = json.dumps({"instances": [row]})
        try:
            request = json.loads(body)
        except (RecursionError, ValueError) as error:
            raise ValueError(f"expected JSON like {example}: {error}") from error
        if not isinstance(request, dict) or {*request} - {"signature_name"} != {"instances"}:
            raise ValueError(f"expected JSON like {example}, with no other field")
        if (name := request.get("signature_name", "serving_default")) != "serving_default":
            raise ValueError(f"signature_name must be serving_default; received {name}")
        rows = request["instances"]
        if not isinstance(rows, list) or not 0 < len(rows) <= max_rows:
            found = len(rows) if isinstance(rows, list) else type(rows).__name__
            raise ValueError(f"instances must be a list of 1 to {max_rows} rows; received {found}")
        return [self._read_row(row, f"instance {n}", max_length) for n, row in enumerate(rows)]

    def _read_row(self, row, place, max_length):
        if isinstance(row, str) and len(self.names) == 1:
            row = {self.names[0]: row}
        if not isinstance(row, dict) or sorted(row) != self.names:
            found = ", ".join(row) if isinstance(row, dict) else type(row).__name__
            raise ValueError(
                f"{place} must have the fields {', '.join(self.names)}; received {found or 'none'}"
            )
        for name, text in row.items():
            if not isinstance(text, str) or len(text) > max_length:
                found = f"{len(text)}" if isinstance(text, str) else type(text).__name__
                raise ValueError(
                    f"{place}: {name} must be a string of at most {max_length} characters; "
                    f"received {found}"
                )
            text.encode()  # a `ValueError` for half of a surrogate pair
        return row

    def predict(self, rows):
        """Rows, which are dictionaries of strings, to rows of answers."""
        texts = {name: tf.constant([row[name] for row in rows]) for name in self.names}
        inputs = {name: tf.reshape(x, [-1, *self._shapes[name][1:]]) for name, x in texts.items()}
        try:
            outputs = self._run(**inputs)
        except (tf.errors.InvalidArgumentError, tf.errors.OutOfRangeError) as error:
            raise ValueError(f"the model refuses this input: {error.message[:500]}") from error
        answers = [{} for _ in rows]
        for name, output in outputs.items():
            shape, value = self._run.structured_outputs[name].shape, _plain(output.numpy().tolist())
            # Every text gets the outputs that have no axis for the texts, as a list of classes.
            if shape.rank == 0 or (shape.rank and shape[0] is not None):
                value = [value] * len(rows)
            if len(value) != len(rows):
                raise RuntimeError(f"{name} has {len(value)} answers to {len(rows)} texts")
            for answer, own in zip(answers, value, strict=True):
                answer[name] = own
        return answers


def _plain(value):
    """Values for JSON: bytes become text; NaN and infinity become null."""
    if isinstance(value, list):
        return [_plain(item) for item in value]
    if isinstance(value, bytes):
        return value.decode("utf-8", "replace")
    return None if isinstance(value, float) and not math.isfinite(value) else value


class Batcher:
    """Answers requests together that arrive while the model is busy.

    Args:
        predict: a function from rows to as many rows. It runs in a thread, one call at a time.
        max_batch: the rows after which no request is added to a batch.
        max_waiting: the largest number of rows that may wait for their answers.
    """

    def __init__(self, predict, max_batch, max_waiting):
        self.predict, self.max_batch, self.max_waiting = predict, max_batch, max_waiting
        self.queue, self.waiting = asyncio.Queue(), 0

    async def submit(self, rows):
        """Waits for the answers to the rows of one request."""
        if self.waiting + len(rows) > self.max_waiting:
            raise asyncio.QueueFull
        answer = asyncio.get_running_loop().create_future()
        self.queue.put_nowait((rows, answer))
        self.waiting += len(rows)
        try:
            return await answer
        finally:  # also where the client has closed the connection
            self.waiting -= len(rows)

    async def run(self, app=None):
        """Answers as long as the application runs, as a generator of aiohttp's `cleanup_ctx`."""
        task = asyncio.create_task(self._work())
        yield
        task.cancel()

    async def _work(self):
        while True:
            batch = [await self.queue.get()]
            while sum(len(rows) for rows, _ in batch) < self.max_batch and self.queue.qsize():
                batch.append(self.queue.get_nowait())
            # Requests whose connection is closed need no answer.
            await self._answer([item for item in batch if not item[1].done()])

    async def _answer(self, batch):
        every = [row for rows, _ in batch for row in rows]
        try:
            found = iter(await asyncio.to_thread(self.predict, every) if every else [])
        except Exception as error:
            if len(batch) > 1:
                # One request may be the cause. Halves find it, and the others get their answers.
                await self._answer(batch[: len(batch) // 2])
                await self._answer(batch[len(batch) // 2 :])
            elif not batch[0][1].done():
                batch[0][1].set_exception(error)
            return
        for rows, answer in batch:
            own = [next(found) for _ in rows]
            if not answer.done():
                answer.set_result(own)
