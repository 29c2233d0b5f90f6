"""Implied labels: a present child makes its ancestors present, an absent parent makes its descendants absent.

Edges are (child, parent) pairs; a class may have several parents, and cycles are an error. Implied labels are computed
from the resolved ones and never stored. An implied label replaces "cannot tell". A present class with an absent
ancestor is a contradiction and an error, whichever row is newer, because the two rows are about different labels and
neither supersedes the other.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from graphlib import CycleError, TopologicalSorter

import numpy as np
from numpy.typing import NDArray

from tagfill.errors import DatasetError
from tagfill.labels import NEGATIVE, POSITIVE, expand_ranges

_BLOCK = 1 << 20  # implied entries that are processed at a time


class Hierarchy:
    """Parents, ancestors and descendants of each class.

    Args:
        classes: class names in their order.
        edges: (child, parent) pairs.

    Raises:
        DatasetError: if a name is not a class, or there is a cycle, which is named.

    Attributes:
        classes: class names.
        parents: positions of the direct parents of each class, sorted by name.
        upwards: (child, parent) positions of the edges, sorted so that children come before their parents.
        ancestors: positions of the ancestors of each class, ascending.
        descendants: positions of the descendants of each class, ascending.

    >>> Hierarchy(["dog", "animal"], [("dog", "animal")]).ancestors
    [(1,), ()]
    """

    def __init__(self, classes: Sequence[str], edges: Iterable[tuple[str, str]]) -> None:
        number = {name: code for code, name in enumerate(classes)}
        parents: dict[int, set[int]] = {}
        for child, parent in edges:
            for name in (child, parent):
                if name not in number:
                    raise DatasetError(
                        f"The hierarchy has an edge from '{child}' to '{parent}', but '{name}' is not a class; "
                        "add it to the classes or drop the edge."
                    )
            parents.setdefault(number[child], set()).add(number[parent])
        try:
            order = list(TopologicalSorter(parents).static_order())
        except CycleError as error:
            names = " → ".join(classes[code] for code in reversed(error.args[1]))
            raise DatasetError(f"The hierarchy has a cycle, {names}; drop one of its edges.") from None
        self.classes = tuple(classes)
        self.parents = [tuple(sorted(parents.get(code, ()), key=classes.__getitem__)) for code in range(len(classes))]
        self.upwards = [(code, parent) for code in reversed(order) for parent in self.parents[code]]
        above: list[set[int]] = [set() for _ in classes]
        below: list[set[int]] = [set() for _ in classes]
        for code in order:  # parents come before their children
            for upper in parents.get(code, ()):
                above[code] |= {upper} | above[upper]
            for ancestor in above[code]:
                below[ancestor].add(code)
        self.ancestors = [tuple(sorted(codes)) for codes in above]
        self.descendants = [tuple(sorted(codes)) for codes in below]

    def close(
        self, keys: NDArray[np.int64], values: NDArray[np.int8]
    ) -> tuple[NDArray[np.int64], NDArray[np.int8], NDArray[np.int64]]:
        """Add the implied labels.

        Args:
            keys: image·L + class of each resolved pair, ascending.
            values: 1, 0 or -1.

        Returns:
            The keys and values including implied ones, and the contradictions: C×2 keys of a present class and of an
            absent ancestor. The values of contradictory pairs are meaningless.
        """
        if not any(self.ancestors):
            return keys, values, np.empty((0, 2), np.int64)
        up, down = _Relatives(self.ancestors), _Relatives(self.descendants)
        closed, contradictions = [], []
        for part in self._blocks(keys, values, up, down):
            stated = keys[part] * 4 + (values[part] + 1)
            child, ancestor = self._implied(keys[part], values[part] == POSITIVE, up)
            _, descendant = self._implied(keys[part], values[part] == NEGATIVE, down)
            denied = np.isin(ancestor, keys[part][values[part] == NEGATIVE])
            contradictions.append(np.stack([child[denied], ancestor[denied]], axis=1))
            entries = np.concatenate([stated, ancestor * 4 + (POSITIVE + 1), descendant * 4 + (NEGATIVE + 1)])
            entries.sort()
            last = np.ones(len(entries), dtype=bool)  # known values of a key agree, and are above -1
            last[:-1] = (entries[1:] >> 2) != (entries[:-1] >> 2)
            closed.append(entries[last])
        if not closed:
            return keys, values, np.empty((0, 2), np.int64)
        entries = np.concatenate(closed)
        del closed
        implied = (entries & 3).astype(np.int8) - np.int8(1)
        entries >>= 2
        return entries, implied, np.concatenate(contradictions)

    def _implied(
        self, keys: NDArray[np.int64], chosen: NDArray[np.bool_], relatives: _Relatives
    ) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """For each relative of each chosen key: that key, and the key of the relative in the same image."""
        keys = keys[chosen]
        label = keys % len(self.ancestors)
        entry, relative = relatives.expand(label)
        return keys[entry], (keys - label)[entry] + relative

    def _blocks(
        self, keys: NDArray[np.int64], values: NDArray[np.int8], up: _Relatives, down: _Relatives
    ) -> Iterator[slice]:
        """Slices of whole images that imply about `_BLOCK` entries each."""
        width, begin = len(self.ancestors), 0
        while begin < len(keys):
            ahead = slice(begin, begin + _BLOCK)
            label, value = keys[ahead] % width, values[ahead]
            cost = 1 + (value == POSITIVE) * up.counts[label] + (value == NEGATIVE) * down.counts[label]
            inside = int(np.searchsorted(np.cumsum(cost), _BLOCK, side="right"))
            last = keys[min(begin + inside, len(keys) - 1)] // width
            end = len(keys) if begin + inside >= len(keys) else int(np.searchsorted(keys, last * width))
            if end <= begin:  # one image alone is larger
                end = int(np.searchsorted(keys, (last + 1) * width))
            yield slice(begin, end)
            begin = end


class _Relatives:
    """The relatives of each class, as one array."""

    def __init__(self, lists: Sequence[tuple[int, ...]]) -> None:
        self.counts = np.array([len(codes) for codes in lists], dtype=np.int64)
        self._starts = np.cumsum(self.counts) - self.counts
        self._codes = np.array([code for codes in lists for code in codes], dtype=np.int64)

    def expand(self, labels: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """For each relative of each of these labels: the position of the label, and the relative."""
        place, entry = expand_ranges(self._starts[labels], self.counts[labels])
        return entry, self._codes[place]
