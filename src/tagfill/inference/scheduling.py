"""In which order the images of a server's requests are decoded and scored.

Decoding takes the images with the least work first (`DecodingQueue`). The model scores them in micro-batches, together
with the images of other requests (`Batcher`).
"""

from __future__ import annotations

import heapq
import itertools
import threading
import time
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from tagfill.images import stoppable
from tagfill.inference.predictors import Outputs, Predictor

_CLOSING_SECONDS = 2.0  # for what is being computed when a server ends; threads that take longer are left behind

ResultT = TypeVar("ResultT")


class QueueFullError(Exception):
    """Too many images wait for the model already."""


class DecodingQueue:
    """Threads that decode images, those with the least work first.

    Images that are decoded by a helper process (`tagfill.images.stoppable`) have a thread of their own, one image at a
    time: however large they are, the others do not wait for them, and only one of them needs memory.

    Args:
        threads: for the other images.
    """

    def __init__(self, threads: int) -> None:
        self._changed = threading.Condition()
        self._light: list[tuple[int, int, Callable[[], None]]] = []
        self._heavy: list[tuple[int, int, Callable[[], None]]] = []
        self._numbers = itertools.count()
        self._closing = False
        queues = [self._light] * threads + [self._heavy]
        self._threads = [
            threading.Thread(target=self._run, args=(queue,), name="tagfill-decoding", daemon=True) for queue in queues
        ]
        for thread in self._threads:
            thread.start()

    def submit(self, work: int, function: Callable[..., ResultT], *args: Any) -> Future[ResultT]:
        """Queue a call that handles an image of this much work."""
        future: Future[ResultT] = Future()

        def call() -> None:
            if not future.set_running_or_notify_cancel():
                return
            try:
                future.set_result(function(*args))
            except BaseException as error:
                future.set_exception(error)

        with self._changed:
            queue = self._light if work <= stoppable.LIGHT else self._heavy
            heapq.heappush(queue, (work, next(self._numbers), call))
            self._changed.notify_all()
        return future

    def close(self) -> None:
        """Finish what is being decoded if it does not take long, and drop what waits."""
        with self._changed:
            self._closing = True
            self._changed.notify_all()
        until = time.monotonic() + _CLOSING_SECONDS
        for thread in self._threads:
            thread.join(max(0.0, until - time.monotonic()))
        stoppable.stop_all()

    def _run(self, queue: list[tuple[int, int, Callable[[], None]]]) -> None:
        while True:
            with self._changed:
                while not queue and not self._closing:
                    self._changed.wait()
                if self._closing:
                    return
                _, _, call = heapq.heappop(queue)
            call()


@dataclass
class _Pending:
    """An image that waits for the model."""

    pixels: NDArray[np.uint8]
    maps: bool
    outputs: Future[Outputs] = field(default_factory=Future)


class Batcher:
    """Scores single images in micro-batches: images that arrive at about the same time share a forward pass.

    One thread owns the model. It takes the images that wait, up to a batch; if the batch is not full, it waits a few
    milliseconds for more. Under load it never waits, because the next batch fills while the model works.

    Args:
        predictor: the model.
        size: most images per batch; 1 switches batching off.
        wait: seconds to wait for a batch to fill.
        capacity: number of images that may wait.
        on_batch: called with the size of each batch.
    """

    def __init__(
        self,
        predictor: Predictor,
        *,
        size: int = 16,
        wait: float = 0.004,
        capacity: int = 256,
        on_batch: Callable[[int], None] = lambda size: None,
    ) -> None:
        self._predictor, self._size, self._wait = predictor, size, wait
        self._capacity, self._on_batch = capacity, on_batch
        self._pending: deque[_Pending] = deque()
        self._changed = threading.Condition()
        self._closing = False
        self._thread = threading.Thread(target=self._run, name="tagfill-batches", daemon=True)
        self._thread.start()

    def __len__(self) -> int:
        return len(self._pending)

    def check_capacity(self, count: int) -> None:
        """Raise early if `count` more images would not fit.

        Raises:
            QueueFullError: if they would not, or the batcher is closing.
        """
        with self._changed:
            if len(self._pending) + count > self._capacity:  # those of requests that were given up do not count
                self._pending = deque(one for one in self._pending if not one.outputs.cancelled())
            if len(self._pending) + count > self._capacity or self._closing:
                raise QueueFullError

    def submit(self, images: list[NDArray[np.uint8]], *, maps: bool) -> list[Future[Outputs]]:
        """Queue images, all of them or none.

        Args:
            images: H×W×3 each.
            maps: compute class maps too.

        Returns:
            The future outputs of each image: logits 1×L, maps 1×L×h×w.

        Raises:
            QueueFullError: if they do not all fit.
        """
        pending = [_Pending(pixels, maps) for pixels in images]
        with self._changed:
            self.check_capacity(len(pending))
            self._pending.extend(pending)
            self._changed.notify()
        return [one.outputs for one in pending]

    def close(self) -> None:
        """Finish the images that wait, and refuse new ones."""
        with self._changed:
            self._closing = True
            self._changed.notify()
        self._thread.join()

    def _run(self) -> None:
        while batch := self._next_batch():
            self._on_batch(len(batch))
            try:
                outputs = self._predictor(np.stack([one.pixels for one in batch]), maps=batch[0].maps)
            except Exception as error:  # the requests that wait must learn of any error
                for one in batch:
                    one.outputs.set_exception(error)
                continue
            for position, one in enumerate(batch):
                row = slice(position, position + 1)
                maps = None if outputs.maps is None else outputs.maps[row]
                one.outputs.set_result(Outputs(outputs.logits[row], maps))

    def _next_batch(self) -> list[_Pending]:
        """The next batch; empty once closed and nothing waits."""
        with self._changed:
            while True:
                while not self._pending and not self._closing:
                    self._changed.wait()
                if not self._pending:
                    return []
                until = time.monotonic() + self._wait
                while len(self._pending) < self._size and not self._closing:
                    if not self._changed.wait(max(0.0, until - time.monotonic())):
                        break
                batch: list[_Pending] = []
                while self._pending and len(batch) < self._size:
                    if batch and self._pending[0].maps != batch[0].maps:
                        break  # maps are expensive: images without them go into another batch
                    one = self._pending.popleft()
                    if one.outputs.set_running_or_notify_cancel():  # false if the request was canceled
                        batch.append(one)
                if batch:
                    return batch
