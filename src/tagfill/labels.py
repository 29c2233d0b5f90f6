"""The three label states, and labels in memory.

A label is 1 (positive), 0 (negative) or -1 (unknown) everywhere in Tagfill; importers convert to this coding.

`LabelMatrix` holds one entry per annotated (image, class) pair, in compressed sparse rows, so that its size grows with
the number of annotations and not with images × classes. A batch is made dense when it is needed. An entry of -1 was
annotated as "cannot tell"; a pair without an entry was not annotated.

`Overlay` adds changes to a label matrix: flips and pseudo-labels. It keeps only the changed entries, 9 bytes each.

Arrays of pairs are often keys: one number, image·L + class, per pair.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from tagfill.deprecation import warn_renamed

POSITIVE = 1
NEGATIVE = 0
UNKNOWN = -1

_CHUNK = 1 << 20


@dataclass(frozen=True)
class LabelMatrix:
    """Known labels of N images and L classes.

    Attributes:
        starts: N+1 offsets into `classes` and `values`.
        classes: class of each entry, ascending within an image.
        values: 1 present, 0 absent, -1 cannot tell.
        width: number of classes, L.
    """

    starts: NDArray[np.int64]
    classes: NDArray[np.int32]
    values: NDArray[np.int8]
    width: int

    @classmethod
    def from_entries(
        cls, image: NDArray[np.integer], label: NDArray[np.integer], value: NDArray[np.integer], shape: tuple[int, int]
    ) -> LabelMatrix:
        """Build from one (image, label, value) per entry, in any order, without repeats.

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
        """Build from distinct ascending keys image·L + class, and the value of each."""
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
        """Bytes of memory: 5 per entry and 8 per image."""
        return self.starts.nbytes + self.classes.nbytes + self.values.nbytes

    def rows(self, index: NDArray[np.integer]) -> NDArray[np.int8]:
        """The labels of these images: B×L int8, 1 positive, 0 negative, -1 unknown."""
        index = np.asarray(index, dtype=np.int64)
        dense = np.full((len(index), self.width), UNKNOWN, dtype=np.int8)
        entry, row = self.entries(index)
        dense[row, self.classes[entry]] = self.values[entry]
        return dense

    def is_annotated(self, index: NDArray[np.integer]) -> NDArray[np.bool_]:
        """Which labels of these images are annotated, B×L: known, or annotated as "cannot tell".

        >>> LabelMatrix.from_entries(np.array([0]), np.array([1]), np.array([-1]), (1, 2)).is_annotated([0]).tolist()
        [[False, True]]
        """
        index = np.asarray(index, dtype=np.int64)
        dense = np.zeros((len(index), self.width), dtype=bool)
        entry, row = self.entries(index)
        dense[row, self.classes[entry]] = True
        return dense

    def has_entries(self, image: NDArray[np.integer], label: NDArray[np.integer]) -> NDArray[np.bool_]:
        """Which of these (image, class) pairs are annotated; the time grows with the entries of these images.

        >>> LabelMatrix.from_dense(np.array([[1, -1], [-1, 0]], np.int8)).has_entries([0, 1, 0], [0, 0, 1]).tolist()
        [True, False, False]
        """
        entry, pair = self.entries(np.asarray(image, dtype=np.int64))
        found = np.zeros(len(image), dtype=bool)
        found[pair[self.classes[entry] == np.asarray(label)[pair]]] = True
        return found

    def looked_at(self, index: NDArray[np.integer]) -> NDArray[np.bool_]:
        """The old name of `is_annotated`, kept for one version."""
        warn_renamed("LabelMatrix.looked_at", "LabelMatrix.is_annotated")
        return self.is_annotated(index)

    def entries(self, index: NDArray[np.integer]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Positions of the entries of these images in `classes` and `values`, and the row of `index` of each."""
        return expand_ranges(self.starts[index], self.starts[index + 1] - self.starts[index])

    def take(self, index: NDArray[np.integer]) -> LabelMatrix:
        """The label matrix of these images, in this order."""
        index = np.asarray(index, dtype=np.int64)
        entry, _ = self.entries(index)
        counts = self.starts[index + 1] - self.starts[index]
        starts = np.concatenate([np.zeros(1, dtype=np.int64), np.cumsum(counts)])
        return LabelMatrix(starts, self.classes[entry], self.values[entry], self.width)

    def dense(self) -> NDArray[np.int8]:
        """All labels, N×L: for metrics and small data only."""
        return self.rows(np.arange(len(self)))

    def images(self) -> NDArray[np.int64]:
        """The image of each entry."""
        return np.repeat(np.arange(len(self)), np.diff(self.starts))

    def unannotated(self) -> NDArray[np.int64]:
        """Images without any annotation, ascending."""
        return np.flatnonzero(self.starts[1:] == self.starts[:-1])

    def count(self, value: int) -> NDArray[np.int64]:
        """Number of images with this value, per class."""
        counts = np.zeros(self.width, dtype=np.int64)
        for begin in range(0, len(self.values), _CHUNK):
            part = slice(begin, begin + _CHUNK)
            counts += np.bincount(self.classes[part][self.values[part] == value], minlength=self.width)
        return counts

    @property
    def positives(self) -> NDArray[np.int64]:
        """Number of images known to show each class."""
        return self.count(POSITIVE)

    @property
    def negatives(self) -> NDArray[np.int64]:
        """Number of images known not to show each class."""
        return self.count(NEGATIVE)

    @property
    def known(self) -> NDArray[np.int64]:
        """Number of images with a known label, per class."""
        return self.positives + self.negatives

    @property
    def undecided(self) -> NDArray[np.int64]:
        """Number of images annotated as "cannot tell", per class."""
        return self.count(UNKNOWN)

    def positives_per_image(self) -> NDArray[np.int64]:
        """Number of known positives of each image."""
        before = np.concatenate([np.zeros(1, dtype=np.int64), np.cumsum(self.values == POSITIVE)])
        return np.diff(before[self.starts])

    def complete(self) -> bool:
        """Whether every label is known."""
        return int((self.values != UNKNOWN).sum()) == len(self) * self.width

    def blocks(self, size: int = 4096) -> Iterator[tuple[slice, NDArray[np.int8]]]:
        """Iterate over dense blocks of `size` images."""
        for start in range(0, len(self), size):
            part = slice(start, min(start + size, len(self)))
            yield part, self.rows(np.arange(part.start, part.stop))


class Overlay:
    """A label matrix with changed entries.

    Args:
        labels: the labels below the changes; never modified.
        keys: image·L + class of each change, ascending; `keys` and `values` of a saved overlay.
        values: 1, 0 or -1 for each key.

    >>> labels = LabelMatrix.from_dense(np.array([[1, -1], [0, -1]], np.int8))
    >>> overlay = Overlay(labels)
    >>> overlay.set([0, 1], [1, 0], 1)
    >>> overlay.rows([0, 1]).tolist()
    [[1, 1], [1, -1]]
    """

    def __init__(
        self, labels: LabelMatrix, keys: NDArray[np.int64] | None = None, values: NDArray[np.int8] | None = None
    ) -> None:
        self.labels = labels
        self.keys = np.empty(0, dtype=np.int64)
        self.values = np.empty(0, dtype=np.int8)
        if keys is not None and values is not None:
            self.set(keys // labels.width, keys % labels.width, values)

    def __len__(self) -> int:
        """The number of changes."""
        return len(self.keys)

    @property
    def shape(self) -> tuple[int, int]:
        """(images, classes)."""
        return self.labels.shape

    def set(self, image: ArrayLike, label: ArrayLike, value: ArrayLike) -> None:
        """Change these (image, class) pairs to `value`.

        Args:
            image: positions of images, or one for all.
            label: classes, or one for all; pairs must be distinct.
            value: 1, 0 or -1, per pair or one for all.
        """
        keys, values = self._checked(image, label, value)
        kept = ~in_sorted(keys, self.keys)
        self.keys, self.values = np.concatenate([self.keys[kept], keys]), np.concatenate([self.values[kept], values])
        order = np.argsort(self.keys, kind="stable")  # merges two sorted runs
        self.keys, self.values = self.keys[order], self.values[order]

    def drop(self, image: ArrayLike, label: ArrayLike) -> None:
        """Remove the changes of these pairs."""
        keys, _ = self._checked(image, label, UNKNOWN)
        kept = ~in_sorted(keys, self.keys)
        self.keys, self.values = self.keys[kept], self.values[kept]

    def clear(self) -> None:
        """Remove all changes."""
        self.keys, self.values = self.keys[:0], self.values[:0]

    def rows(self, index: ArrayLike) -> NDArray[np.int8]:
        """The labels of these images with changes applied: B×L int8, 1 positive, 0 negative, -1 unknown."""
        index = np.asarray(index, dtype=np.int64)
        dense = self.labels.rows(index)
        row, label, value = self.entries(index)
        dense[row, label] = value
        return dense

    def entries(self, index: ArrayLike) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int8]]:
        """The changes of these images: the row of `index`, the class and the value of each."""
        index = np.asarray(index, dtype=np.int64)
        first = np.searchsorted(self.keys, index * self.labels.width)
        counts = np.searchsorted(self.keys, (index + 1) * self.labels.width) - first
        entry, row = expand_ranges(first, counts)
        return row, self.keys[entry] % self.labels.width, self.values[entry]

    def changes(self) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int8]]:
        """Image, class and value of each change, ascending."""
        return self.keys // self.labels.width, self.keys % self.labels.width, self.values

    def matrix(self) -> LabelMatrix:
        """Labels and changes as one label matrix; a change to -1 becomes an entry."""
        below = self.labels.images() * self.labels.width + self.labels.classes
        kept = ~in_sorted(self.keys, below)
        keys = np.concatenate([below[kept], self.keys])
        values = np.concatenate([self.labels.values[kept], self.values])
        order = np.argsort(keys, kind="stable")
        return LabelMatrix.from_keys(keys[order], values[order], self.shape)

    def _checked(
        self, image: ArrayLike, label: ArrayLike, value: ArrayLike
    ) -> tuple[NDArray[np.int64], NDArray[np.int8]]:
        """Ascending keys and their values; raise if they are invalid."""
        images, classes, values = (
            part.ravel()
            for part in np.broadcast_arrays(np.asarray(image, np.int64), np.asarray(label, np.int64), np.asarray(value))
        )
        size, width = self.shape
        if len(images) and not (images.min() >= 0 and images.max() < size):
            raise IndexError(f"an image is outside 0…{size - 1}")
        if len(classes) and not (classes.min() >= 0 and classes.max() < width):
            raise IndexError(f"a class is outside 0…{width - 1}")
        if not np.isin(values, (POSITIVE, NEGATIVE, UNKNOWN)).all():
            raise ValueError("labels are 1, 0 or -1")
        keys = images * width + classes
        order = np.argsort(keys, kind="stable")
        keys = keys[order]
        if (keys[1:] == keys[:-1]).any():
            raise ValueError("an (image, label) pair occurs twice")
        return keys, values[order].astype(np.int8)


def in_sorted(keys: NDArray[np.int64], wanted: NDArray[np.int64]) -> NDArray[np.bool_]:
    """Which of `wanted` are among the ascending `keys`.

    >>> in_sorted(np.array([2, 5]), np.array([5, 4, 2, 9])).tolist()
    [True, False, True, False]
    """
    if not len(keys):
        return np.zeros(len(wanted), dtype=bool)
    found: NDArray[np.bool_] = keys[np.minimum(np.searchsorted(keys, wanted), len(keys) - 1)] == wanted
    return found


def expand_ranges(starts: NDArray[np.int64], counts: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Concatenate the positions of several ranges; also return the range that each position belongs to.

    >>> [part.tolist() for part in expand_ranges(np.array([7, 2]), np.array([1, 3]))]
    [[7, 2, 3, 4], [0, 1, 1, 1]]
    """
    owner = np.repeat(np.arange(len(counts)), counts)
    first = np.repeat(starts - (np.cumsum(counts) - counts), counts)
    return first + np.arange(len(owner)), owner
