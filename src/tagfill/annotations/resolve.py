"""From statements to decided labels: the newest statement about an (image, label) pair decides.

- A location with present=true says that the image shows the label; with present=false it speaks of that
  region only and says nothing about the image.
- A row without a time is older than any row with one.
- Rows of the same age that contradict each other are a *clash*: an error, or a vote.
- "Cannot tell" (present is null) supersedes older rows like any other answer, contradicts the others like any
  other answer, and is coded unknown.
- In a vote each source has one vote for each thing it says, however many rows say it, and rows without a source
  have one each. What more than half of the votes say decides; without such a majority, as in a tie, the label is
  unknown.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tagfill.annotations.keys import contains
from tagfill.annotations.states import NEGATIVE, POSITIVE, UNKNOWN

NO_TIME = np.iinfo(np.int64).min
REGION_ONLY = np.int8(-2)
NO_SOURCE = -1


@dataclass
class Decided:
    """Labels of distinct (image, label) pairs.

    Attributes:
        keys: image·L + class of each pair, ascending.
        values: 1 present, 0 absent, -1 undecided.
        clashes: keys, ascending, about which the newest rows contradict each other; their value is -1.
    """

    keys: NDArray[np.int64]
    values: NDArray[np.int8]
    clashes: NDArray[np.int64]


def statements(present: NDArray[np.int8], located: NDArray[np.bool_]) -> NDArray[np.int8]:
    """What each row says about its image: 1, 0, -1 (cannot tell), or `REGION_ONLY`."""
    return np.where(located & (present == NEGATIVE), REGION_ONLY, present)


def decide(keys: NDArray[np.int64], says: NDArray[np.int8], times: NDArray[np.int64] | None = None) -> Decided:
    """The deciding statement about each key.

    Args:
        keys: one number per (image, label) pair, per row.
        says: what the row says, without `REGION_ONLY` rows.
        times: microseconds, `NO_TIME` where it is missing; None where all are.

    `keys` is worked on in place, and of no use afterwards.

    >>> decide(np.array([5, 3, 5]), np.array([0, 1, 1], np.int8), np.array([10, 10, 20])).values.tolist()
    [1, 1]
    """
    if _rising(keys):
        return Decided(keys, says, np.empty(0, np.int64))
    if times is not None:
        keys, says = _without_superseded(keys, says, times)
    return _of_one_age(keys, says)


def vote(keys: NDArray[np.int64], says: NDArray[np.int8], sources: NDArray[np.int64]) -> Decided:
    """The statement about each key that more than half of its votes agree on, or unknown.

    Args:
        keys: of the newest rows about each pair.
        says: 1, 0 or -1.
        sources: a number for each source, `NO_SOURCE` where the row has none.
    """
    sources = np.where(sources == NO_SOURCE, -1 - np.arange(len(sources)), sources)
    order = np.lexsort((says, sources, keys))
    keys, says, sources = keys[order], says[order], sources[order]
    fresh = np.ones(len(keys), dtype=bool)
    fresh[1:] = (keys[1:] != keys[:-1]) | (sources[1:] != sources[:-1]) | (says[1:] != says[:-1])
    keys, says = keys[fresh], says[fresh]
    pairs, pair, votes = np.unique(keys, return_inverse=True, return_counts=True)
    values = np.full(len(pairs), UNKNOWN, dtype=np.int8)
    for value in (NEGATIVE, POSITIVE):
        values[2 * np.bincount(pair[says == value], minlength=len(pairs)) > votes] = value
    return Decided(pairs, values, np.empty(0, np.int64))


def _without_superseded(
    keys: NDArray[np.int64], says: NDArray[np.int8], times: NDArray[np.int64]
) -> tuple[NDArray[np.int64], NDArray[np.int8]]:
    """The newest rows about each key; ages matter for the few keys with several rows only."""
    ascending = np.sort(keys)
    repeated = np.unique(ascending[1:][ascending[1:] == ascending[:-1]])
    del ascending
    if not len(repeated):
        return keys, says
    rows = np.flatnonzero(contains(repeated, keys))
    pair = np.searchsorted(repeated, keys[rows])
    newest = np.full(len(repeated), NO_TIME)
    np.maximum.at(newest, pair, times[rows])
    superseded = rows[times[rows] < newest[pair]]
    return np.delete(keys, superseded), np.delete(says, superseded)


def _of_one_age(keys: NDArray[np.int64], says: NDArray[np.int8]) -> Decided:
    """Rows of each key are of the same age; key and statement are sorted as one number, in place."""
    keys *= 4
    keys += says + 1
    if not _ascending(keys):
        keys.sort()
    first = _first_of_each(keys >> 2)
    least, most = keys[first], keys[np.append(first[1:], len(keys)) - 1]
    values = (least & 3).astype(np.int8) - np.int8(1)
    clash = least != most
    values[clash] = UNKNOWN
    least >>= 2
    return Decided(least, values, least[clash])


def _first_of_each(keys: NDArray[np.int64]) -> NDArray[np.int64]:
    """Positions where a new key begins, in ascending keys."""
    begins = np.ones(len(keys), dtype=bool)
    np.not_equal(keys[1:], keys[:-1], out=begins[1:])
    return np.flatnonzero(begins)


def _ascending(keys: NDArray[np.int64]) -> bool:
    return bool((keys[1:] >= keys[:-1]).all())


def _rising(keys: NDArray[np.int64]) -> bool:
    return bool((keys[1:] > keys[:-1]).all())
