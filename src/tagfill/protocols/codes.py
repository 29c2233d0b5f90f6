"""Positions of names, looked up a batch of rows at a time."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray


class Codes:
    """Where each of some names is in their list.

    >>> Codes(["cat", "dog"]).of(pa.array(["dog", "cat", "cow"])).tolist()
    [1, 0, -1]
    """

    def __init__(self, names: Iterable[str]) -> None:
        self._position = {name: position for position, name in enumerate(names)}

    def of(self, column: pa.Array) -> NDArray[np.int64]:
        """The position of each entry of a text column, -1 where it is not in the list."""
        if not pa.types.is_dictionary(column.type):
            column = column.dictionary_encode()
        found = np.array([self._position.get(name, -1) for name in column.dictionary.to_pylist()], dtype=np.int64)
        codes: NDArray[np.int64] = found[column.indices.to_numpy(zero_copy_only=False)]
        return codes
