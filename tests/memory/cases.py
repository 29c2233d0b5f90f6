"""Labels, views and shards that the tests of memory share."""

from __future__ import annotations

import numpy as np
from hypothesis import settings

from tagfill.contract import Geometry, LabelMatrix

modest = settings(max_examples=30, deadline=None)


def single_positives(images: int, classes: int, seed: int = 0) -> LabelMatrix:
    """One positive an image; every third image also has a negative."""
    labels = np.full((images, classes), -1, dtype=np.int8)
    rng = np.random.default_rng(seed)
    positive = rng.integers(classes, size=images)
    labels[np.arange(images), positive] = 1
    labels[np.arange(0, images, 3), (positive[::3] + 1) % classes] = 0
    return LabelMatrix.from_dense(labels)


def crops(count: int, seed: int = 0) -> Geometry:
    """Random crops, half of them mirrored in each direction; the first shows everything."""
    rng = np.random.default_rng(seed)
    corners = np.sort(rng.random((count, 2, 2)), axis=1)
    box = np.concatenate([corners[:, 0], corners[:, 1]], axis=1).astype(np.float32)
    box[0] = [0, 0, 1, 1]
    flips = rng.random((2, count)) < 0.5
    return Geometry(box, flips[0], flips[1], np.ones(count, dtype=bool))
