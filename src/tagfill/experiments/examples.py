"""Examples to show: chosen by what is on the image, never by how well a model does on it."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from tagfill.annotations import POSITIVE, Dataset
from tagfill.errors import TagfillError
from tagfill.images import fitted, open_root
from tagfill.loading import Locations

EXAMPLES = 5
SIDE = 320  # pixels of an example's longest side
_AREA = (0.01, 0.5)  # shares of the image; smaller is invisible, larger shows nothing about places


def pairs(dataset: Dataset, split: str, count: int = EXAMPLES) -> list[tuple[int, int]]:
    """The first images of a split with a class that was not shown yet, and that class.

    Where boxes or masks are known, a class covers enough of its image to be seen and not most of it.
    """
    return list(_pairs(dataset, split, count))


def _pairs(dataset: Dataset, split: str, count: int) -> Iterator[tuple[int, int]]:
    labels, places, used = dataset.labels(split), Locations.read(dataset, split), set[int]()
    for image in range(len(labels)):
        if len(used) == count:
            return
        marks = places.of(np.array([image]))
        for label in np.flatnonzero(labels.rows(np.array([image]))[0] == POSITIVE).tolist():
            areas = marks.box[marks.label == label][:, 2:].prod(1)  # 0 of a point, which says nothing of its size
            if label not in used and (not areas.any() or _AREA[0] <= areas.sum() <= _AREA[1]):
                used.add(label)
                yield image, label
                break


def photos(dataset: Dataset, split: str, index: NDArray[np.integer]) -> list[Image.Image] | None:
    """Images of a split, small enough to be shown; None where they are not at hand, as cached features need none."""
    names = dataset.names(dataset.split(split)[index])
    try:
        root = open_root(dataset.root)
        return [fitted(root, name, SIDE) for name in names]
    except (TagfillError, OSError):
        return None
