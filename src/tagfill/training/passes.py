"""Evaluation passes: a model looks at images as they are, without learning from them."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from tagfill.contract import Batch, Prediction
from tagfill.loading import Source


def predict(
    model: nn.Module,
    source: Source,
    split: str,
    index: NDArray[np.int64],
    *,
    maps: bool = False,
    attention: bool = False,
    place: Callable[[Batch], Batch] = lambda batch: batch,
) -> Iterator[tuple[Batch, Prediction]]:
    """An evaluation pass over some positions of a split."""
    wanted = {"maps": maps, "attention": True} if attention else {"maps": maps}
    training = model.training
    model.eval()
    try:
        for batch in source.evaluate(split, index):
            placed = place(batch)
            with torch.inference_mode():
                prediction = model(placed.inputs, **wanted)
            yield placed, prediction
    finally:
        model.train(training)
