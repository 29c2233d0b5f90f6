"""Which batches come next, so that their rows are brought in from disk before their turn."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray

from tagfill.memory.background import BackgroundArray
from tagfill.memory.shard import Shard

_AHEAD = 2  # batches


class Coming:
    """Reads the rows of coming batches ahead.

    Args:
        disk: where they are; None if they are in memory, and nothing is to be done.
        shard: the images of this rank.
    """

    def __init__(self, disk: BackgroundArray | None, shard: Shard) -> None:
        self._disk, self._shard = disk, shard
        self._batches: deque[NDArray[np.int64]] = deque()

    def expect(self, batches: Sequence[NDArray[np.int64]]) -> None:
        """The images of the coming batches, in their order."""
        self._batches = deque(batches) if self._disk is not None else deque()
        for batch in list(self._batches)[:_AHEAD]:
            self._read_ahead(batch)

    def pass_by(self, rows: NDArray[np.int64]) -> None:
        """A batch is being read: bring in the one that comes a few after it; bad images may have thinned it out."""
        first = self._shard.index[rows[:1]]
        for passed in range(min(_AHEAD, len(self._batches)) if len(first) else 0):
            if first[0] in self._batches[passed]:
                for _ in range(passed + 1):
                    self._batches.popleft()
                if len(self._batches) >= _AHEAD:
                    self._read_ahead(self._batches[_AHEAD - 1])
                return

    def _read_ahead(self, batch: NDArray[np.int64]) -> None:
        assert self._disk is not None
        self._disk.read_ahead(self._shard.rows(torch.from_numpy(batch)))
