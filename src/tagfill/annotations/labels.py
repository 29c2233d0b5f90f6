"""Labels in memory: compressed sparse rows over what is known.

`LabelMatrix` holds one entry for each (image, class) that somebody looked at, so its size grows with the
number of annotations and not with images × classes. A batch is made dense when it is needed, in the coding
1 positive, 0 negative, -1 unknown. An entry with -1 was looked at and could not be told; what has no entry was
never looked at.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tagfill.annotations.keys import stretches
from tagfill.annotations.states import NEGATIVE, POSITIVE, UNKNOWN

_CHUNK = 1 << 20


@dataclass(frozen=True)
class LabelMatrix:
    """Known labels of N images and L classes.

    Attributes:
        starts: N+1 offsets into `classes` and `values`.
        classes: class of each entry, ascending within an image.
        values: 1 present, 0 absent, -1 looked at but undecided.
        width: the number of classes, L.
    """

    starts: NDArray[np.int64]
    classes: NDArray[np.int32]
    values: NDArray[np.int8]
    width: int

    @classmethod
    def from_entries(
        cls, image: NDArray[np.integer], label: NDArray[np.integer], value: NDArray[np.integer], shape: tuple[int, int]
    ) -> LabelMatrix:
        """Build from one triple an entry, in any order, without repeats.

        >>> LabelMatrix.from_entries(np.array([1, 0]), np.array([0, 2]), np.array([1, 0]), (2, 3)).dense().tolist()
        [[-1, -1, 0], [1, -1, -1]]
        """
        keys = image.astype(np.int64) * shape[1] + label
        if not (keys[1:] > keys[:-1]).all():
            order = np.argsort(keys, kind="stable")
            keys, value = keys[order], value[order]
            if (keys[1:] == keys[:-1]).any():
                raise ValueError("an (image, label) pair occurs twice")
        return cls.from_keys(keys, value, shape)

    @classmethod
    def from_keys(cls, keys: NDArray[np.int64], values: NDArray[np.integer], shape: tuple[int, int]) -> LabelMatrix:
        """Build from distinct keys image·L + class, ascending, and the value of each."""
        size, width = shape
        starts = np.searchsorted(keys, np.arange(size + 1, dtype=np.int64) * width).astype(np.int64, copy=False)
        classes = np.empty(len(keys), dtype=np.int32)
        for begin in range(0, len(keys), _CHUNK):
            classes[begin : begin + _CHUNK] = keys[begin : begin + _CHUNK] % width
        return cls(starts, classes, values.astype(np.int8, copy=False), width)

    @classmethod
    def from_dense(cls, labels: NDArray[np.integer]) -> LabelMatrix:
        """Build from an N×L array of 1, 0 and -1; for small data."""
        image, label = np.nonzero(labels != UNKNOWN)
        return cls.from_entries(image, label, labels[image, label], (labels.shape[0], labels.shape[1]))

    def __len__(self) -> int:
        return len(self.starts) - 1

    @property
    def shape(self) -> tuple[int, int]:
        """(images, classes)."""
        return len(self), self.width

    @property
    def nbytes(self) -> int:
        """Bytes of memory: 5 an entry and 8 an image."""
        return self.starts.nbytes + self.classes.nbytes + self.values.nbytes

    def rows(self, index: NDArray[np.integer]) -> NDArray[np.int8]:
        """The labels of these images: B×L int8, 1 positive, 0 negative, -1 unknown."""
        index = np.asarray(index, dtype=np.int64)
        dense = np.full((len(index), self.width), UNKNOWN, dtype=np.int8)
        entry, row = self.entries(index)
        dense[row, self.classes[entry]] = self.values[entry]
        return dense

    def looked_at(self, index: NDArray[np.integer]) -> NDArray[np.bool_]:
        """Which labels of these images somebody looked at, B×L: known, or looked at and undecided.

        >>> LabelMatrix.from_entries(np.array([0]), np.array([1]), np.array([-1]), (1, 2)).looked_at([0]).tolist()
        [[False, True]]
        """
        index = np.asarray(index, dtype=np.int64)
        dense = np.zeros((len(index), self.width), dtype=bool)
        entry, row = self.entries(index)
        dense[row, self.classes[entry]] = True
        return dense

    def entries(self, index: NDArray[np.integer]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Positions of these images' entries in `classes` and `values`, and the row of `index` of each."""
        return stretches(self.starts[index], self.starts[index + 1] - self.starts[index])

    def take(self, index: NDArray[np.integer]) -> LabelMatrix:
        """The labels of these images as a matrix of their own, in this order."""
        index = np.asarray(index, dtype=np.int64)
        entry, _ = self.entries(index)
        counts = self.starts[index + 1] - self.starts[index]
        starts = np.concatenate([np.zeros(1, dtype=np.int64), np.cumsum(counts)])
        return LabelMatrix(starts, self.classes[entry], self.values[entry], self.width)

    def dense(self) -> NDArray[np.int8]:
        """All labels at once, N×L: for metrics and small data only."""
        return self.rows(np.arange(len(self)))

    def images(self) -> NDArray[np.int64]:
        """The image of each entry."""
        return np.repeat(np.arange(len(self)), np.diff(self.starts))

    def unannotated(self) -> NDArray[np.int64]:
        """Images about which nothing was said, ascending."""
        return np.flatnonzero(self.starts[1:] == self.starts[:-1])

    def count(self, value: int) -> NDArray[np.int64]:
        """How many images carry `value` for each class."""
        counts = np.zeros(self.width, dtype=np.int64)
        for begin in range(0, len(self.values), _CHUNK):
            part = slice(begin, begin + _CHUNK)
            counts += np.bincount(self.classes[part][self.values[part] == value], minlength=self.width)
        return counts

    @property
    def positives(self) -> NDArray[np.int64]:
        """Images known to show each class."""
        return self.count(POSITIVE)

    @property
    def negatives(self) -> NDArray[np.int64]:
        """Images known not to show each class."""
        return self.count(NEGATIVE)

    @property
    def known(self) -> NDArray[np.int64]:
        """Images of which it is known whether they show each class."""
        return self.positives + self.negatives

    @property
    def undecided(self) -> NDArray[np.int64]:
        """Images that were looked at without telling whether they show each class."""
        return self.count(UNKNOWN)

    def positives_per_image(self) -> NDArray[np.int64]:
        """Known positives of each image."""
        before = np.concatenate([np.zeros(1, dtype=np.int64), np.cumsum(self.values == POSITIVE)])
        return np.diff(before[self.starts])

    def complete(self) -> bool:
        """Whether nothing is unknown."""
        return int((self.values != UNKNOWN).sum()) == len(self) * self.width

    def blocks(self, size: int = 4096) -> Iterator[tuple[slice, NDArray[np.int8]]]:
        """All rows, `size` images at a time, each block dense."""
        for start in range(0, len(self), size):
            part = slice(start, min(start + size, len(self)))
            yield part, self.rows(np.arange(part.start, part.stop))
