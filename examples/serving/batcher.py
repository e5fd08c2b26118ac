"""Answers waiting requests together."""

import asyncio
import concurrent.futures

from examples.serving.refused import Refused


class Batcher:
    """Answers requests together that arrive while the model is busy.

    Args:
        predict: a function from rows to as many rows.
        max_batch: the largest number of rows in a batch. A single request may have more.
        max_waiting: the largest number of rows that may wait.
    """

    def __init__(self, predict, max_batch, max_waiting):
        self._predict, self.max_batch, self.max_waiting = predict, max_batch, max_waiting
        self._queue, self._waiting = asyncio.Queue(), 0
        # One thread is enough: TensorFlow uses all cores for one call.
        self._pool = concurrent.futures.ThreadPoolExecutor(1)
        self._task = asyncio.create_task(self._work())

    async def submit(self, rows):
        """Waits for the answers to the rows of one request."""
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
        """Answers the waiting requests, and ends."""
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
            # Requests whose connection is closed need no answer.
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
                # One request may be the cause. Halves find it, and the others get their answers.
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
