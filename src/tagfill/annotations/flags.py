"""Flags that mean something to Tagfill itself; others are carried as they are."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

CROWD = "crowd"  # a location of many things at once
OBSERVED = "observed"  # a validation row that the draw of a protocol would have kept


def carried(flags: pa.ListArray, flag: str) -> NDArray[np.bool_]:
    """Which rows carry a flag.

    >>> carried(pa.array([None, ["group", "crowd"], []], pa.list_(pa.string())), CROWD).tolist()
    [False, True, False]
    """
    found = np.zeros(len(flags), dtype=bool)
    said = pc.fill_null(pc.equal(pc.list_flatten(flags), flag), False).to_numpy(zero_copy_only=False)
    found[pc.list_parent_indices(flags).to_numpy()[said]] = True
    return found
