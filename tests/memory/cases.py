"""Labels, views and shards that the tests of memory share."""

from __future__ import annotations

import numpy as np
from hypothesis import settings

from tagfill.contract import Ranks, Task
from tagfill.images.geometry import Geometry
from tagfill.labels import LabelMatrix
from tagfill.memory import Memory

modest = settings(max_examples=30, deadline=None)


def single_positives(images: int, classes: int, seed: int = 0) -> LabelMatrix:
    """One positive per image; every third image also has a negative."""
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


def task_of(memory: Memory, labels: LabelMatrix, *, expected: float, lr: float, width: int = 1) -> Task:
    """One epoch on these labels, in one process that knows all of them.

    Args:
        memory: of the run.
        labels: observed, and true.
        expected: positives of an image.
        lr: of the classifier.
        width: of the features, all 0.
    """
    return Task(
        classes=tuple("abcdefgh"[: labels.width]),
        labels=labels,
        size=len(labels),
        epochs=1,
        seed=7,
        grid=None,
        expected_positives=expected,
        lr=lr,
        memory=memory,
        ranks=Ranks(),
        predict=lambda split: iter(()),
        shard=np.arange(len(labels)),
        frozen_features=lambda: np.zeros((len(labels), width), np.float32),
        truth=lambda: labels,
    )
