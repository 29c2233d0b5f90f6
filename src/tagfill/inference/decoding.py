"""Batches of pixels, decoded by threads while the network works.

Decoding and resizing let go of Python's lock, so that threads do what processes would, without a copy of anything.
What is shown is the view of evaluation, made by the same function as in training: its pixels are the same bit for bit,
whatever network looks at them.
"""

from __future__ import annotations

import itertools
from collections import deque
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tagfill.errors import ImageError
from tagfill.images import EVAL, look
from tagfill.inference.listing import ImageList

_AHEAD = 2  # batches that are decoded while the network works on one


@dataclass(frozen=True)
class Pixels:
    """Some images.

    Attributes:
        numbers: of those that could be decoded.
        pixels: B×H×W×3 uint8, of those.
        bad: number and problem of the others.
    """

    numbers: list[int]
    pixels: NDArray[np.uint8]
    bad: list[tuple[int, str]]


def decoded(
    images: ImageList, numbers: range, size: tuple[int, int], *, batch_size: int, workers: int
) -> Iterator[Pixels]:
    """Some images in batches, in order.

    Args:
        images: the list.
        numbers: which of them.
        size: height and width of the network's input.
        batch_size: images of a batch; the last one may have fewer.
        workers: threads that decode; 0 decodes when the next batch is asked for.
    """
    batches = (numbers[at : at + batch_size] for at in range(0, len(numbers), batch_size))
    if workers == 0:
        for batch in batches:
            yield _joined(batch, [_look(images, number, size) for number in batch], size)
        return
    with ThreadPoolExecutor(workers, thread_name_prefix="decoding") as pool:
        waiting: deque[tuple[range, list[Future[_Look]]]] = deque()

        def begin(batch: range) -> None:
            waiting.append((batch, [pool.submit(_look, images, number, size) for number in batch]))

        try:
            for batch in itertools.islice(batches, 1 + _AHEAD):
                begin(batch)
            while waiting:
                batch, looks = waiting.popleft()
                yield _joined(batch, [each.result() for each in looks], size)
                for following in itertools.islice(batches, 1):
                    begin(following)
        finally:
            pool.shutdown(wait=True, cancel_futures=True)


_Look = NDArray[np.uint8] | ImageError


def _look(images: ImageList, number: int, size: tuple[int, int]) -> _Look:
    root, name = images.place(number)
    try:
        return look(root, name, EVAL, size, seed=0)[0]
    except ImageError as error:
        return error


def _joined(batch: range, looks: list[_Look], size: tuple[int, int]) -> Pixels:
    good = [(number, pixels) for number, pixels in zip(batch, looks, strict=True) if not isinstance(pixels, ImageError)]
    bad = [(number, error.problem) for number, error in zip(batch, looks, strict=True) if isinstance(error, ImageError)]
    pixels = np.stack([each for _, each in good]) if good else np.empty((0, *size, 3), np.uint8)
    return Pixels([number for number, _ in good], pixels, bad)
