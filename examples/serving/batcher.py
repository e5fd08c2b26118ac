"""Answers waiting requests together."""

import asyncio
import collections

from examples.serving.requests import Refused


class Batcher:
    """Answers requests together that arrive while the model is busy.

    Args:
        predict: a function from rows to as many rows. It runs in a thread, one call at a time.
        max_batch: the largest number of rows in a batch. A single request may have more.
        max_waiting: the largest number of rows that may wait.
    """

    def __init__(self, predict, max_batch, max_waiting):
        self._predict, self.max_batch, self.max_waiting = predict, max_batch, max_waiting
        self._queue, self._waiting, self._task = collections.deque(), 0, None

    async def submit(self, rows):
        """Waits for the answers to the rows of one request."""
        if self._waiting + len(rows) > self.max_waiting and self._waiting:
            raise Refused(503, f"{self._waiting} instances are waiting; try again later")
        answer = asyncio.get_running_loop().create_future()
        self._queue.append((rows, answer))
        self._waiting += len(rows)
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self._work())
        try:
            return await answer
        finally:
            self._waiting -= len(rows)

    async def _work(self):
        while self._queue:
            batch, count = [], 0
            while self._queue and (not batch or count + len(self._queue[0][0]) <= self.max_batch):
                batch.append(self._queue.popleft())
                count += len(batch[-1][0])
            await self._answer(batch)

    async def _answer(self, batch):
        # Requests whose connection is closed need no answer.
        batch = [item for item in batch if not item[1].done()]
        if not batch:
            return
        try:
            found = await asyncio.to_thread(
                self._predict, [row for rows, _ in batch for row in rows]
            )
        except Exception as error:
            if len(batch) > 1:
                # One request may be the cause. Halves find it, and the others get their answers.
                half = len(batch) // 2
                await self._answer(batch[:half])
                await self._answer(batch[half:])
            elif not batch[0][1].done():
                batch[0][1].set_exception(error)
            return
        for rows, answer in batch:
            own, found = found[: len(rows)], found[len(rows) :]
            if not answer.done():
                answer.set_result(own)
