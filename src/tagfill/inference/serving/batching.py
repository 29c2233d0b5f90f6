"""Micro-batches: images of requests that come at about the same time are looked at together.

One thread owns the model. It takes what waits, up to a batch, and if the batch is not full waits a few milliseconds for
more; under load it never waits, because the next batch has formed while it looked at the last. The number of images
that wait is bounded: whoever comes on top is told to come back later.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from tagfill.inference.predictor import Outputs, Predictor


class FullError(Exception):
    """There is no room for more images to wait."""


@dataclass
class _Wanted:
    """An image that waits to be looked at."""

    pixels: NDArray[np.uint8]
    maps: bool
    answer: Future[Outputs] = field(default_factory=Future)


class Batcher:
    """A model that answers image by image and works batch by batch.

    Args:
        predictor: the model.
        size: images of a batch at most; 1 switches batching off.
        wait: seconds to wait for a batch to fill.
        room: images that may wait.
        watch: told the size of each batch.
    """

    def __init__(
        self,
        predictor: Predictor,
        *,
        size: int = 16,
        wait: float = 0.004,
        room: int = 256,
        watch: Callable[[int], None] = lambda size: None,
    ) -> None:
        self._predictor, self._size, self._wait, self._room, self._watch = predictor, size, wait, room, watch
        self._waiting: deque[_Wanted] = deque()
        self._changed = threading.Condition()
        self._closing = False
        self._thread = threading.Thread(target=self._work, name="tagfill-batches", daemon=True)
        self._thread.start()

    def __len__(self) -> int:
        return len(self._waiting)

    def reserve(self, count: int) -> None:
        """Refuse early what would not fit.

        Raises:
            FullError: if so many more images have no room.
        """
        if len(self._waiting) + count > self._room or self._closing:
            raise FullError

    def submit(self, images: list[NDArray[np.uint8]], *, maps: bool) -> list[Future[Outputs]]:
        """Let these images wait; all of them or none.

        Args:
            images: H×W×3 each.
            maps: class maps are wanted.

        Returns:
            What the model will have said of each: logits 1×L, maps 1×L×h×w.

        Raises:
            FullError: if there is no room for all of them.
        """
        wanted = [_Wanted(pixels, maps) for pixels in images]
        with self._changed:
            self.reserve(len(wanted))
            self._waiting.extend(wanted)
            self._changed.notify()
        return [one.answer for one in wanted]

    def close(self) -> None:
        """Finish what waits, take nothing more."""
        with self._changed:
            self._closing = True
            self._changed.notify()
        self._thread.join()

    def _work(self) -> None:
        while batch := self._next():
            self._watch(len(batch))
            try:
                outputs = self._predictor(np.stack([one.pixels for one in batch]), maps=batch[0].maps)
            except Exception as error:  # whatever it is, those who wait must hear of it
                for one in batch:
                    one.answer.set_exception(error)
                continue
            for position, one in enumerate(batch):
                row = slice(position, position + 1)
                maps = None if outputs.maps is None else outputs.maps[row]
                one.answer.set_result(Outputs(outputs.logits[row], maps))

    def _next(self) -> list[_Wanted]:
        """The next batch; empty when closed and nothing waits."""
        with self._changed:
            while True:
                while not self._waiting and not self._closing:
                    self._changed.wait()
                if not self._waiting:
                    return []
                until = time.monotonic() + self._wait
                while len(self._waiting) < self._size and not self._closing:
                    if not self._changed.wait(max(0.0, until - time.monotonic())):
                        break
                batch: list[_Wanted] = []
                while self._waiting and len(batch) < self._size:
                    if batch and self._waiting[0].maps != batch[0].maps:
                        break  # maps cost much: those who want none do not pay for them
                    one = self._waiting.popleft()
                    if one.answer.set_running_or_notify_cancel():  # whoever asked may be gone
                        batch.append(one)
                if batch:
                    return batch
