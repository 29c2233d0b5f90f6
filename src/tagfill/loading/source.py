"""Where batches come from."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from tagfill.contract import Batch

EVALUATION_BATCH = 64
TRAINING = "train"  # the split that runs learn from


class Source(Protocol):
    """Images or cached features of a dataset, as batches."""

    def train(self, batches: Sequence[NDArray[np.int64]], epoch: int) -> Iterator[Batch]:
        """Batches of the training split in the views of an epoch; each is named by positions in that split."""
        ...

    def evaluate(self, split: str, index: NDArray[np.int64]) -> Iterator[Batch]:
        """These positions of a split, as they are."""
        ...


def chunks(index: NDArray[np.int64], size: int) -> list[NDArray[np.int64]]:
    """`index` in pieces of `size`; none at all for an empty one."""
    return np.split(index, np.arange(size, len(index), size)) if len(index) else []
