"""Examples to show: chosen by what is on the image, never by how well a model does on it."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from tagfill.annotations import LabelMatrix
from tagfill.loading import Locations

EXAMPLES = 5
_AREA = (0.01, 0.5)  # shares of the image; smaller is invisible, larger shows nothing about places


def located(places: Locations, count: int = EXAMPLES) -> Iterator[tuple[int, int]]:
    """The first images of a split with something of a visible size, and its class; no class twice.

    Args:
        places: of the split.
        count: of examples.
    """
    used: set[int] = set()
    for image in range(len(places.starts) - 1):
        marks = places.of(np.array([image]))
        for label in dict.fromkeys(marks.label.tolist()):
            area = marks.box[marks.label == label][:, 2:].prod(1).sum()
            if label not in used and _AREA[0] <= area <= _AREA[1]:
                used.add(label)
                yield image, label
                break
        if len(used) == count:
            return


def labelled(labels: LabelMatrix, count: int = EXAMPLES) -> Iterator[tuple[int, int]]:
    """The first images of a split that show a class that no earlier one was chosen for, and that class.

    >>> list(labelled(LabelMatrix.from_dense(np.array([[0, 1], [0, 1], [1, 1]], dtype=np.int8))))
    [(0, 1), (2, 0)]
    """
    used: set[int] = set()
    for part, dense in labels.blocks():
        for row, image in zip(dense, range(part.start, part.start + len(dense)), strict=True):
            fresh = [label for label in np.flatnonzero(row == 1).tolist() if label not in used]
            if fresh:
                used.add(fresh[0])
                yield image, fresh[0]
            if len(used) == count:
                return
