"""Changes on top of a label matrix: flips and pseudo-labels, as few as there are.

The labels that people gave stay as they are; an `Overlay` keeps only what differs, as sorted keys image·L + class with
a value each, and shows both together. It takes 9 bytes a change, whatever the number of images and classes.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

from tagfill.annotations.keys import contains, stretches
from tagfill.annotations.labels import LabelMatrix
from tagfill.annotations.states import NEGATIVE, POSITIVE, UNKNOWN


class Overlay:
    """A label matrix with changed entries.

    Args:
        labels: what lies below; never changed.
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
        """Show `value` for these (image, class) pairs, whatever was there.

        Args:
            image: positions of images, or one for all.
            label: class of each, or one for all, without repeats of a pair.
            value: 1, 0 or -1, for each or one for all.
        """
        keys, values = self._checked(image, label, value)
        kept = ~contains(keys, self.keys)
        self.keys, self.values = np.concatenate([self.keys[kept], keys]), np.concatenate([self.values[kept], values])
        order = np.argsort(self.keys, kind="stable")  # two sorted stretches: a merge
        self.keys, self.values = self.keys[order], self.values[order]

    def drop(self, image: ArrayLike, label: ArrayLike) -> None:
        """Show again what lies below, for these pairs."""
        keys, _ = self._checked(image, label, UNKNOWN)
        kept = ~contains(keys, self.keys)
        self.keys, self.values = self.keys[kept], self.values[kept]

    def clear(self) -> None:
        """Forget every change."""
        self.keys, self.values = self.keys[:0], self.values[:0]

    def rows(self, index: ArrayLike) -> NDArray[np.int8]:
        """The labels of these images with the changes: B×L int8, 1 positive, 0 negative, -1 unknown."""
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
        entry, row = stretches(first, counts)
        return row, self.keys[entry] % self.labels.width, self.values[entry]

    def changes(self) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int8]]:
        """Image, class and value of each change, ascending."""
        return self.keys // self.labels.width, self.keys % self.labels.width, self.values

    def matrix(self) -> LabelMatrix:
        """Labels and changes as one label matrix; a change to -1 stays an entry that was looked at."""
        below = self.labels.images() * self.labels.width + self.labels.classes
        kept = ~contains(self.keys, below)
        keys = np.concatenate([below[kept], self.keys])
        values = np.concatenate([self.labels.values[kept], self.values])
        order = np.argsort(keys, kind="stable")
        return LabelMatrix.from_keys(keys[order], values[order], self.shape)

    def _checked(
        self, image: ArrayLike, label: ArrayLike, value: ArrayLike
    ) -> tuple[NDArray[np.int64], NDArray[np.int8]]:
        """Sorted keys and their values, or an error for what cannot be one."""
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
