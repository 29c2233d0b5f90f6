"""From rows to decided labels: the newest row about an (image, label) pair decides.

- A location with present=true says that the image shows the label; with present=false it speaks of that
  region only and says nothing about the image.
- A row without a time is older than any row with one.
- Rows of the same age that contradict each other are an error that names both.
- "Cannot tell" (present is null) supersedes older rows like any other answer, and is coded unknown.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from tagfill.annotations.states import NEGATIVE

NO_TIME = np.iinfo(np.int64).min
REGION_ONLY = np.int8(-2)


class ContradictionError(Exception):
    """Two rows of the same age say different things about one pair; `first` and `second` are row numbers."""

    def __init__(self, first: int, second: int) -> None:
        super().__init__(f"rows {first} and {second} contradict each other")
        self.first, self.second = first, second


def statements(present: NDArray[np.int8], located: NDArray[np.bool_]) -> NDArray[np.int8]:
    """What each row says about its image: 1, 0, -1 (cannot tell), or `REGION_ONLY`."""
    return np.where(located & (present == NEGATIVE), REGION_ONLY, present)


def decide(
    keys: NDArray[np.int64], says: NDArray[np.int8], time: NDArray[np.int64]
) -> tuple[NDArray[np.int64], NDArray[np.int8]]:
    """The deciding statement of each key.

    Args:
        keys: one number per (image, label) pair, per row.
        says: what the row says, without `REGION_ONLY` rows.
        time: microseconds, `NO_TIME` where it is missing.

    Returns:
        The distinct keys, ascending, and the label of each.

    Raises:
        ContradictionError: with positions in the arrays given.
    """
    order = np.lexsort((time, keys))
    sorted_keys, sorted_says, sorted_time = keys[order], says[order], time[order]
    last = np.ones(len(order), dtype=bool)
    last[:-1] = sorted_keys[1:] != sorted_keys[:-1]
    same_age = ~last[:-1] & (sorted_time[1:] == sorted_time[:-1])
    clash = same_age & (sorted_says[1:] != sorted_says[:-1])
    if clash.any():
        _raise_if_newest(order, sorted_keys, sorted_time, last, np.flatnonzero(clash))
    return sorted_keys[last], sorted_says[last]


def _raise_if_newest(
    order: NDArray[np.int64],
    keys: NDArray[np.int64],
    time: NDArray[np.int64],
    last: NDArray[np.bool_],
    clashes: NDArray[np.int64],
) -> None:
    """A clash among superseded rows is history; one among the newest rows of a pair is an error."""
    deciding = np.flatnonzero(last)
    newest_time = time[deciding[np.searchsorted(keys[deciding], keys[clashes])]]
    live = clashes[time[clashes] == newest_time]
    if len(live):
        pair = sorted((int(order[live[0]]), int(order[live[0] + 1])))
        raise ContradictionError(pair[0], pair[1])
