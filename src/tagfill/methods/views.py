"""Batches with several views of each image, one view at a time."""

from __future__ import annotations

import numpy as np
from torch import Tensor

from tagfill.contract import Batch, Prediction


def of_view(batch: Batch, prediction: Prediction, name: str) -> tuple[Batch, Prediction]:
    """What a batch and its prediction say about one view of each image.

    Args:
        batch: of V·B inputs, view after view.
        prediction: of the same.
        name: one of `batch.views`.
    """
    if batch.views == (name,):
        return batch, prediction
    size = len(batch.index)
    first = batch.views.index(name) * size
    rows = slice(first, first + size)

    def part(values: Tensor | None) -> Tensor | None:
        return None if values is None else values[rows]

    geometry = batch.geometry.take(np.arange(first, first + size))
    seen = Batch(batch.index, batch.labels, batch.inputs[rows], geometry, (name,), batch.marks)
    said = Prediction(
        prediction.logits[rows], part(prediction.maps), part(prediction.features), part(prediction.attention)
    )
    return seen, said
