"""Serves a SavedModel of an example over HTTP, with neither keras nor keras_attention.

    python examples/serve.py output/translate/saved_model
    curl -d '{"instances": ["3rd of May 1998"]}' localhost:8501/v1/models/model:predict

The requests are those of TensorFlow Serving, so that clients can move to it and back:

    POST /v1/models/NAME:predict   {"instances": [...]}: strings, or objects with a string for each
                                   input; the answer is {"predictions": [...]}. Or columns:
                                   {"inputs": {"name": [...]}}, answered by {"outputs": {...}}
    GET  /v1/models/NAME           whether the model is ready
    GET  /v1/models/NAME/metadata  names, types and shapes of what it takes and returns
    GET  /healthz                  whether the server runs

Served are models of strings, one a row for each input: those of the examples, and for instance
Keras models of `keras.Input((), dtype="string")`.

Requests that arrive while the model is busy are answered together, which is several times as fast
(`--max-batch 1` for one by one). Texts of one batch are padded to the longest, so arrays over
tokens may be longer than alone. What is wrong with a request, the answer says: 400 malformed, 408
headers or body not sent within `--timeout` each, 413 too large, 503 more waiting than
`--max-waiting`. Between requests a connection may be idle for longer than `--timeout`. SIGTERM and
Ctrl-C stop the server after the requests that it has, or after `--drain` seconds. It listens on
this machine only unless `--host` says otherwise, and has neither passwords nor encryption nor a
limit of connections: on an open network, put a proxy that does before it.

Needs aiohttp: pip install "keras-attention-layers[serve]".
"""

import argparse
import asyncio
import concurrent.futures
import contextlib
import json
import logging
import math
import os
import re
import signal
import sys
import time

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

from run_saved_model import check_absent, forbid_keras, load_text_operations

MIB = 2**20
# Names of TensorFlow Serving that are not those of TensorFlow.
TYPES = {"float32": "DT_FLOAT", "float64": "DT_DOUBLE", "float16": "DT_HALF"}


class Refused(Exception):
    """A request that is not answered, and why."""

    def __init__(self, status, message):
        super().__init__(message)
        self.status = status


# --- model ---------------------------------------------------------------------------------------


class Model:
    """A SavedModel that takes texts, one or more for each row, and returns a dictionary."""

    def __init__(self, path):
        import tensorflow as tf

        self.path, self._tf = path, tf
        try:
            self._loaded = tf.saved_model.load(path)  # or its tables would be deleted
        except (OSError, tf.errors.OpError) as error:
            raise SystemExit(f"{path} cannot be read: {str(error).splitlines()[0]}") from None
        if "serving_default" not in self._loaded.signatures:
            found = ", ".join(self._loaded.signatures) or "none"
            raise SystemExit(f"{path} has no signature serving_default; signatures: {found}")
        self._run = self._loaded.signatures["serving_default"]
        inputs = self._run.structured_input_signature[1]
        self.names = sorted(inputs)
        # A text a row; Keras also has it as a column.
        shapes = {name: x.shape.as_list() for name, x in inputs.items() if x.dtype == tf.string}
        if len(shapes) < len(inputs) or not all(x in ([None], [None, 1]) for x in shapes.values()):
            found = ", ".join(f"{name}: {x.dtype.name} {x.shape}" for name, x in inputs.items())
            raise SystemExit(
                f"{path}: serve.py serves models of one string a row for each input, of shape "
                f"(None,) or (None, 1); this one takes {found}"
            )
        self._sizes = {name: [-1, *shape[1:]] for name, shape in shapes.items()}
        # What has no axis for the texts, such as a list of classes, is the answer to each of them.
        shapes = {name: x.shape for name, x in self._run.structured_outputs.items()}
        self._whole = [n for n, x in shapes.items() if x.rank == 0 or (x.rank and x[0] is not None)]

    def predict(self, rows):
        """Rows, dictionaries of strings, to rows of the answers."""
        columns = {
            name: self._tf.reshape(
                self._tf.constant([row[name] for row in rows], self._tf.string), self._sizes[name]
            )
            for name in self.names
        }
        try:
            outputs = self._run(**columns)
        except (self._tf.errors.InvalidArgumentError, self._tf.errors.OutOfRangeError) as error:
            raise Refused(400, f"the model refuses this input: {error.message[:500]}") from error
        columns = {name: _plain(x.numpy().tolist()) for name, x in outputs.items()}
        for name in self._whole:
            columns[name] = [columns[name]] * len(rows)
        sizes = {name: len(column) for name, column in columns.items()}
        if set(sizes.values()) != {len(rows)}:
            raise RuntimeError(f"{len(rows)} texts, but answers of other numbers: {sizes}")
        return [{name: column[row] for name, column in columns.items()} for row in range(len(rows))]

    def metadata(self):
        def describe_shape(shape):
            if shape.rank is None:
                return {"dim": [], "unknown_rank": True}
            sizes = [{"size": str(-1 if n is None else n)} for n in shape]
            return {"dim": sizes, "unknown_rank": False}

        def describe(signature):
            return {
                name: {
                    "dtype": TYPES.get(x.dtype.name, "DT_" + x.dtype.name.upper()),
                    "tensor_shape": describe_shape(x.shape),
                }
                for name, x in sorted(signature.items())
            }

        signature = {
            "inputs": describe(self._run.structured_input_signature[1]),
            "outputs": describe(self._run.structured_outputs),
            "method_name": "tensorflow/serving/predict",
        }
        return {"signature_def": {"signature_def": {"serving_default": signature}}}


def _plain(value):
    """As JSON has it: bytes as text, and null for numbers that are none."""
    if isinstance(value, list):
        return [_plain(item) for item in value]
    if isinstance(value, bytes):
        return value.decode("utf-8", "replace")
    return None if isinstance(value, float) and not math.isfinite(value) else value


# --- requests ------------------------------------------------------------------------------------


def read_rows(body, names, max_rows, max_length):
    """The rows of a request, and whether it is by columns.

    Raises:
        Refused: says what was given and what was expected.
    """
    try:
        request = json.loads(body)
    except (ValueError, RecursionError) as error:
        raise Refused(400, f"the body is not JSON: {error}") from None
    example = '{"instances": [' + ", ".join([json.dumps(dict.fromkeys(names, "text"))]) + "]}"
    if not isinstance(request, dict) or ("instances" in request) == ("inputs" in request):
        message = f'expected an object with either "instances" or "inputs", like {example}'
        raise Refused(400, message)
    unknown = set(request) - {"instances", "inputs", "signature_name"}
    if unknown:
        raise Refused(400, f"unknown fields: {', '.join(sorted(map(str, unknown)))[:200]}")
    if request.get("signature_name", "") not in ("", "serving_default"):
        raise Refused(400, 'the only signature_name is "serving_default"')
    by_columns = "inputs" in request
    rows = _from_columns(request["inputs"], names) if by_columns else request["instances"]
    if not isinstance(rows, list) or not rows:
        raise Refused(400, f"expected a list of at least one instance, like {example}")
    if len(rows) > max_rows:
        raise Refused(413, f"{len(rows)} instances; at most {max_rows} in a request")
    return [_read_row(row, n, names, max_length) for n, row in enumerate(rows)], by_columns


def _from_columns(columns, names):
    if len(names) == 1 and isinstance(columns, list):
        columns = {names[0]: columns}
    if not isinstance(columns, dict) or sorted(columns) != names:
        raise Refused(400, f'"inputs" must be an object with a list for each of: {names}')
    sizes = {name: len(x) if isinstance(x, list) else None for name, x in columns.items()}
    if None in sizes.values() or len(set(sizes.values())) != 1:
        raise Refused(400, f'"inputs" must be lists of the same length; received {sizes}')
    return [
        dict(zip(names, row, strict=True))
        for row in zip(*(columns[name] for name in names), strict=True)
    ]


def _read_row(row, number, names, max_length):
    if isinstance(row, str) and len(names) == 1:
        row = {names[0]: row}
    if not isinstance(row, dict) or sorted(row) != names:
        either = "a string, or " if len(names) == 1 else ""
        message = f"instance {number}: expected {either}an object with a string for: {names}"
        raise Refused(400, message)
    for name, text in row.items():
        if not isinstance(text, str):
            kind = type(text).__name__
            raise Refused(400, f"instance {number}: {name} must be a string; received {kind}")
        if len(text) > max_length:
            message = f"instance {number}: {name} has {len(text)} letters; at most {max_length}"
            raise Refused(413, message)
        try:
            text.encode()
        except UnicodeEncodeError:
            message = f"instance {number}: {name} has half of a surrogate pair"
            raise Refused(400, message) from None
    return row


# --- batching ------------------------------------------------------------------------------------


class Batcher:
    """Answers requests together that arrive while the model is busy.

    Args:
        predict: function from rows to as many rows.
        max_batch: rows of a batch at most, but for a request that has more.
        max_waiting: rows that may wait at most.
    """

    def __init__(self, predict, max_batch, max_waiting):
        self._predict, self.max_batch, self.max_waiting = predict, max_batch, max_waiting
        self._queue, self._waiting = asyncio.Queue(), 0
        # TensorFlow uses all cores for one call.
        self._pool = concurrent.futures.ThreadPoolExecutor(1)
        self._task = asyncio.create_task(self._work())

    async def submit(self, rows):
        if self._waiting + len(rows) > self.max_waiting and self._waiting:
            raise Refused(503, f"{self._waiting} instances are waiting; try again later")
        self._waiting += len(rows)
        try:
            answer = asyncio.get_running_loop().create_future()
            await self._queue.put((rows, answer))
            return await answer
        finally:
            self._waiting -= len(rows)

    async def close(self):
        """Answers what is there, and ends."""
        await self._queue.put(None)
        await self._task
        self._pool.shutdown()

    async def _work(self):
        held, last = None, False
        while not last or held:
            batch = [held or await self._queue.get()]
            held = None
            if batch == [None]:
                return
            count = len(batch[0][0])
            while not self._queue.empty():
                item = self._queue.get_nowait()
                if item is None:
                    last = True
                    break
                if count + len(item[0]) > self.max_batch:
                    held = item
                    break
                batch.append(item)
                count += len(item[0])
            # Nobody waits any more for those whose connection is gone.
            batch = [item for item in batch if not item[1].done()]
            await self._answer(batch)

    async def _answer(self, batch):
        if not batch:
            return
        rows = [row for part, _ in batch for row in part]
        try:
            loop = asyncio.get_running_loop()
            found = await loop.run_in_executor(self._pool, self._predict, rows)
        except Exception as error:
            if len(batch) > 1:
                # It may be the fault of one, or of all together: the others shall have answers.
                half = len(batch) // 2
                for part in (batch[:half], batch[half:]):
                    await self._answer([item for item in part if not item[1].done()])
                return
            for _, answer in batch:
                if not answer.done():
                    answer.set_exception(error)
            return
        for part, answer in batch:
            own, found = found[: len(part)], found[len(part) :]
            if not answer.done():
                answer.set_result(own)


# --- connections ---------------------------------------------------------------------------------


class Connection(asyncio.Protocol):
    """A connection of aiohttp, closed when the headers of a request do not come in time.

    aiohttp itself only limits how long a connection may be idle.

    Args:
        protocol: as a `web.Server` makes it.
        seconds: from the first byte of the headers to the last one.
    """

    def __init__(self, protocol, seconds):
        self._protocol, self._seconds = protocol, seconds
        self._idle, self._timer = True, None
        for name in ("eof_received", "pause_writing", "resume_writing"):
            setattr(self, name, getattr(protocol, name))

    def connection_made(self, transport):
        self._transport = transport
        self._protocol.connection_made(transport)

    def data_received(self, data):
        if self._idle:
            self._idle = False
            self._timer = asyncio.get_running_loop().call_later(self._seconds, self._close)
        self._protocol.data_received(data)

    def connection_lost(self, error):
        self.begin_request()
        self._protocol.connection_lost(error)

    def begin_request(self):
        """All headers are there."""
        self._idle = False
        if self._timer:
            self._timer.cancel()

    def end_request(self):
        """The next byte is of the headers of another request."""
        self._idle = True

    def _close(self):
        message = f"the headers did not come within {self._seconds:g} seconds"
        body = json.dumps({"error": message}).encode()
        head = (
            "HTTP/1.1 408 Request Timeout\r\nContent-Type: application/json; charset=utf-8\r\n"
            f"Content-Length: {len(body)}\r\nConnection: close\r\n\r\n"
        )
        self._transport.write(head.encode() + body)
        self._transport.close()


# --- server --------------------------------------------------------------------------------------


def make_app(model, options, stop):
    """The addresses of the server; `stop` is the event that ends it."""
    from aiohttp import web

    base, started = f"/v1/models/{options.name}", time.time()

    async def predict(request):
        body = await read_body(request, options.max_body, options.timeout)
        rows, by_columns = read_rows(body, model.names, options.max_rows, options.max_length)
        found = await request.app["batcher"].submit(rows)
        if len(found[0]) == 1:  # without its name, as TensorFlow Serving does it
            (only,) = found[0]
            found = [row[only] for row in found]
            return answer(200, {"outputs" if by_columns else "predictions": found})
        if by_columns:
            return answer(200, {"outputs": {name: [x[name] for x in found] for name in found[0]}})
        return answer(200, {"predictions": found})

    async def status(_):
        state = {"version": "1", "state": "AVAILABLE", "status": {"error_code": "OK"}}
        return answer(200, {"model_version_status": [state]})

    async def metadata(_):
        spec = {"name": options.name, "signature_name": "", "version": "1"}
        return answer(200, {"model_spec": spec, "metadata": model.metadata()})

    async def health(_):
        return answer(200, {"status": "ok", "seconds": round(time.time() - started)})

    @web.middleware
    async def connections(request, handler):
        connection = request.transport.get_protocol() if request.transport else None
        if connection:  # the client is still there
            connection.begin_request()
        found = await handler(request)
        if stop.is_set() or request.can_read_body:
            found.force_close()  # the client must not send another request here
        elif connection:
            connection.end_request()
        return found

    @web.middleware
    async def errors(request, handler):
        try:
            return await handler(request)
        except Refused as error:
            return answer(error.status, {"error": str(error)})
        except web.HTTPException as error:
            paths = f"POST {base}:predict, GET {base}, {base}/metadata, /healthz"
            message = f"{error.status} {error.reason}: {request.method} {request.path[:200]}"
            return answer(error.status, {"error": f"{message}; there are {paths}"})
        except Exception:
            logging.exception("%s %s", request.method, request.path)
            return answer(500, {"error": "the model failed; the server's log says why"})

    def answer(code, content):
        return web.json_response(content, status=code)

    async def batching(app):
        app["batcher"] = Batcher(model.predict, options.max_batch, options.max_waiting)
        yield
        await app["batcher"].close()

    app = web.Application(middlewares=[connections, errors])
    app.cleanup_ctx.append(batching)
    app.router.add_post(f"{base}:predict", predict)
    app.router.add_get(base, status)
    app.router.add_get(f"{base}/metadata", metadata)
    app.router.add_get("/healthz", health)
    return app


async def read_body(request, limit, seconds):
    """The body; of one that is too large the rest is read too, or no answer would get through."""
    from aiohttp import web

    parts, size = [], 0
    try:
        async with asyncio.timeout(seconds):
            async for part in request.content.iter_any():
                size += len(part)
                if size <= limit:
                    parts.append(part)
                elif size > limit + 64 * MIB:
                    break
    except TimeoutError:
        raise Refused(408, f"{size} bytes came within {seconds:g} seconds, not all") from None
    except web.RequestPayloadError as error:
        reason = " ".join(str(error).split())
        raise Refused(400, f"the body is broken: {reason[:200]}") from None
    if size > limit:
        raise Refused(413, f"a body of {size} bytes or more; at most {limit}")
    return b"".join(parts)


def address_part(text):
    if not re.fullmatch(r"[\w.-]+", text, re.ASCII):
        raise argparse.ArgumentTypeError(f"letters, digits and _.- only; received {text!r}")
    return text


def parse(argv):
    class Formatter(argparse.RawDescriptionHelpFormatter, argparse.ArgumentDefaultsHelpFormatter):
        pass

    parser = argparse.ArgumentParser(description=__doc__, formatter_class=Formatter)
    parser.add_argument("path", help="folder of a SavedModel")
    parser.add_argument("--name", default="model", type=address_part, help="in the addresses")
    parser.add_argument("--host", default="127.0.0.1", help="0.0.0.0 for other machines")
    parser.add_argument("--port", type=int, default=8501, help="0 for any that is free")
    parser.add_argument("--max-batch", type=int, default=64, help="instances answered together")
    parser.add_argument("--max-waiting", type=int, default=4096, help="instances")
    parser.add_argument("--max-rows", type=int, default=256, help="instances of a request")
    parser.add_argument("--max-length", type=int, default=20_000, help="letters of a text")
    parser.add_argument("--max-body", type=int, default=MIB, help="bytes of a request")
    parser.add_argument(
        "--timeout", type=float, default=30, help="seconds for headers, and for a body"
    )
    parser.add_argument("--drain", type=float, default=30, help="seconds for the last requests")
    options = parser.parse_args(argv)
    for name in ("timeout", "drain"):
        if not getattr(options, name) > 0:
            parser.error(f"--{name} must be positive")
    if not 0 <= options.port < 65536:
        parser.error("--port must be from 0 to 65535")
    for name in ("max_batch", "max_waiting", "max_rows", "max_length", "max_body"):
        if getattr(options, name) < 1:
            parser.error(f"--{name.replace('_', '-')} must be at least 1")
    if not os.path.isfile(os.path.join(options.path, "saved_model.pb")):
        parser.error(f"{options.path} is no SavedModel: it has no file saved_model.pb")
    return options


def main(argv=None):
    options = parse(argv)
    forbid_keras()
    try:
        from aiohttp import web
    except ImportError:
        raise SystemExit(
            'aiohttp is missing: pip install "keras-attention-layers[serve]"'
        ) from None
    load_text_operations()
    model = Model(options.path)
    with contextlib.suppress(Refused):
        # The first call optimises the graph; nobody should wait for that.
        model.predict([dict.fromkeys(model.names, "a")])
    check_absent()

    async def serve():
        stop = asyncio.Event()
        app = make_app(model, options, stop)
        runner = web.AppRunner(
            app, access_log=None, handler_cancellation=True, shutdown_timeout=options.drain
        )
        await runner.setup()
        loop = asyncio.get_running_loop()
        try:
            server = await loop.create_server(
                lambda: Connection(runner.server(), options.timeout), options.host, options.port
            )
        except OSError as error:
            raise SystemExit(f"cannot listen at {options.host}:{options.port}: {error}") from None
        for name in ("SIGINT", "SIGTERM"):
            loop.add_signal_handler(getattr(signal, name), stop.set)
        port = server.sockets[0].getsockname()[1]
        address = f"http://{options.host}:{port}/v1/models/{options.name}"
        print(f"{options.path} takes {', '.join(model.names)} at {address}:predict")
        sys.stdout.flush()
        await stop.wait()
        server.close()
        await runner.cleanup()

    asyncio.run(serve())


if __name__ == "__main__":
    main()
