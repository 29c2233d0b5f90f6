"""A model looks at a list of images, batch by batch."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tagfill.inference.decoding import decoded
from tagfill.inference.listing import ImageList
from tagfill.inference.predictor import Predictor


@dataclass(frozen=True)
class Looked:
    """What a model said about the images of a batch.

    Attributes:
        numbers: of the images that could be decoded, n of them.
        logits: n×L.
        maps: n×L×H×W, where they were asked for.
        bad: number and problem of the images that could not be decoded.
    """

    numbers: list[int]
    logits: NDArray[np.float32]
    maps: NDArray[np.float32] | None
    bad: list[tuple[int, str]]


def look_at(
    predictor: Predictor, images: ImageList, numbers: range, *, batch_size: int, workers: int, maps: bool = False
) -> Iterator[Looked]:
    """Look at some images of a list, in order.

    Args:
        predictor: the model.
        images: the list.
        numbers: which of them.
        batch_size: images that the model looks at together.
        workers: threads that decode.
        maps: keep class maps.
    """
    for batch in decoded(images, numbers, predictor.size, batch_size=batch_size, workers=workers):
        if batch.numbers:
            outputs = predictor(batch.pixels, maps=maps)
            yield Looked(batch.numbers, outputs.logits, outputs.maps, batch.bad)
        else:
            yield Looked([], np.empty((0, len(predictor.classes)), np.float32), None, batch.bad)
