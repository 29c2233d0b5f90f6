"""Labels in memory: compressed sparse rows over what is known.

`LabelMatrix` holds one entry for each (image, class) that somebody looked at, so its size grows with the
number of annotations and not with images × classes. A batch is made dense when it is needed, in the coding
1 positive, 0 negative, -1 unknown.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tagfill.annotations.states import NEGATIVE, POSITIVE, UNKNOWN


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
        size, width = shape
        keys = image.astype(np.int64) * width + label
        order = np.argsort(keys, kind="stable")
        keys = keys[order]
        if len(keys) and (np.diff(keys) == 0).any():
            raise ValueError("an (image, label) pair occurs twice")
        starts = np.searchsorted(keys, np.arange(size + 1, dtype=np.int64) * width)
        return cls(
            starts.astype(np.int64), (keys % max(width, 1)).astype(np.int32), value[order].astype(np.int8), width
        )

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

    def rows(self, index: NDArray[np.integer]) -> NDArray[np.int8]:
        """The labels of these images: B×L int8, 1 positive, 0 negative, -1 unknown."""
        index = np.asarray(index, dtype=np.int64)
        dense = np.full((len(index), self.width), UNKNOWN, dtype=np.int8)
        entry, row = self.entries(index)
        dense[row, self.classes[entry]] = self.values[entry]
        return dense

    def entries(self, index: NDArray[np.integer]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Positions of these images' entries in `classes` and `values`, and the row of `index` of each."""
        counts = self.starts[index + 1] - self.starts[index]
        row = np.repeat(np.arange(len(index)), counts)
        first = np.repeat(self.starts[index] - (np.cumsum(counts) - counts), counts)
        return first + np.arange(len(row)), row

    def dense(self) -> NDArray[np.int8]:
        """All labels at once, N×L: for metrics and small data only."""
        return self.rows(np.arange(len(self)))

    def images(self) -> NDArray[np.int64]:
        """The image of each entry."""
        return np.repeat(np.arange(len(self)), np.diff(self.starts))

    def count(self, value: int) -> NDArray[np.int64]:
        """How many images carry `value` for each class."""
        return np.bincount(self.classes[self.values == value], minlength=self.width)

    @property
    def positives(self) -> NDArray[np.int64]:
        """Images known to show each class."""
        return self.count(POSITIVE)

    @property
    def negatives(self) -> NDArray[np.int64]:
        """Images known not to show each class."""
        return self.count(NEGATIVE)

    def positives_per_image(self) -> NDArray[np.int64]:
        """Known positives of each image."""
        return np.bincount(self.images()[self.values == POSITIVE], minlength=len(self))

    def complete(self) -> bool:
        """Whether nothing is unknown."""
        return int((self.values != UNKNOWN).sum()) == len(self) * self.width

    def blocks(self, size: int = 4096) -> Iterator[tuple[slice, NDArray[np.int8]]]:
        """All rows, `size` images at a time, each block dense."""
        for start in range(0, len(self), size):
            part = slice(start, min(start + size, len(self)))
            yield part, self.rows(np.arange(part.start, part.stop))
