"""Which images' state lives in this process."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from torch import Tensor


class Shard:
    """The images of one rank; state is kept in the order of their ascending positions in the training set."""

    def __init__(self, index: NDArray[np.integer]) -> None:
        self.index = np.sort(np.asarray(index, dtype=np.int64))

    def __len__(self) -> int:
        return len(self.index)

    def rows(self, index: Tensor) -> NDArray[np.int64]:
        """Where the state of these images lies in this process."""
        wanted = index.cpu().numpy()
        rows = np.searchsorted(self.index, wanted)
        if len(wanted) and not np.array_equal(self.index[np.minimum(rows, len(self) - 1)], wanted):
            raise IndexError("a batch holds an image whose state is kept by another process")
        return rows
