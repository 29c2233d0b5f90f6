"""Batches of decoded images, prepared by threads while the network works.

Evaluation, prediction and class maps all load their images here: each image in the evaluation view, batches in the
requested order. An image that cannot be decoded is left out of its batch and listed in `bad`; the caller decides
whether to raise, log or count it.

Pillow releases Python's interpreter lock while it decodes and resizes, so threads run in parallel without copying
pixels between processes.
"""

from __future__ import annotations

import itertools
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from tagfill.errors import ImageError
from tagfill.images.geometry import Geometry
from tagfill.images.remote import read_ahead
from tagfill.images.roots import Root
from tagfill.images.views import EVAL, load_view

_PREFETCH = 2  # batches that are decoded while the network works on one

Sample = tuple[NDArray[np.uint8], Geometry] | ImageError


@dataclass(frozen=True)
class PixelBatch:
    """The images of a batch that could be decoded, and the errors of the others.

    Attributes:
        index: n int64, which images these are, as numbered by the caller.
        inputs: n×H×W×3 uint8 pixels.
        geometry: of the n views.
        bad: index and error of each image that could not be decoded.
    """

    index: NDArray[np.int64]
    inputs: NDArray[np.uint8]
    geometry: Geometry
    bad: list[tuple[int, ImageError]]


def load_batches(
    batches: Iterable[Sequence[int] | NDArray[np.int64]],
    locate: Callable[[int], tuple[Root | Path, str]],
    size: tuple[int, int],
    *,
    workers: int = 0,
) -> Iterator[PixelBatch]:
    """Decode images batch by batch, in order, in the evaluation view.

    At most three batches are in memory at once.

    Args:
        batches: which images each batch holds, as numbers that `locate` knows.
        locate: returns the root and the name of an image.
        size: height and width of the network's input.
        workers: threads that decode; 0 decodes each batch when it is requested.
    """

    def load(number: int) -> Sample:
        root, name = locate(number)
        try:
            return load_eval_view(root, name, size)
        except ImageError as error:
            return error

    numbers = ([int(number) for number in batch] for batch in batches)
    numbered = read_ahead(numbers, lambda batch: map(locate, batch))
    if workers == 0:
        for batch in numbered:
            yield collate(batch, [load(number) for number in batch], size)
        return
    with ThreadPoolExecutor(workers, thread_name_prefix="decoding") as pool:
        pending: deque[tuple[list[int], list[Future[Sample]]]] = deque()

        def submit(count: int) -> None:
            for batch in itertools.islice(numbered, count):
                pending.append((batch, [pool.submit(load, number) for number in batch]))

        try:
            submit(1 + _PREFETCH)
            while pending:
                batch, samples = pending.popleft()
                yield collate(batch, [sample.result() for sample in samples], size)
                submit(1)
        finally:
            pool.shutdown(wait=True, cancel_futures=True)


def load_eval_view(root: Root | Path, name: str, size: tuple[int, int]) -> tuple[NDArray[np.uint8], Geometry]:
    """The view that every model is evaluated on: the whole image, upright, squashed to `size` (height, width).

    Raises:
        ImageError: if the image cannot be read or decoded.
    """
    return load_view(root, name, EVAL, size, seed=0)


def collate(index: Sequence[int], samples: Sequence[Sample], size: tuple[int, int]) -> PixelBatch:
    """Stack the samples that could be decoded.

    Args:
        index: number of each image.
        samples: of those images: pixels and geometry, or the error.
        size: height and width of the views, for a batch in which nothing could be decoded.
    """
    good = [(number, sample) for number, sample in zip(index, samples, strict=True) if isinstance(sample, tuple)]
    bad = [(number, error) for number, error in zip(index, samples, strict=True) if isinstance(error, ImageError)]
    return PixelBatch(
        np.array([number for number, _ in good], dtype=np.int64),
        np.stack([pixels for _, (pixels, _) in good]) if good else np.empty((0, *size, 3), np.uint8),
        Geometry.join([Geometry.whole(0), *(geometry for _, (_, geometry) in good)]),
        bad,
    )
