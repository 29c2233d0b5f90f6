"""An evaluation pass over the training images, for methods that label anew between two epochs."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from tagfill.contract import Task


def training_scores(task: Task) -> Tensor:
    """What the model says about this rank's training images now, in evaluation mode.

    Returns:
        n×L probabilities in float16, in the order of `task.shard`; NaN for an image that does not decode.
    """
    scores = torch.full((len(task.shard), len(task.classes)), torch.nan, dtype=torch.float16)
    for batch, prediction in task.predict("train"):
        rows = np.searchsorted(task.shard, batch.index.cpu().numpy())
        scores[torch.from_numpy(rows)] = prediction.logits.sigmoid().half().cpu()
    return scores
