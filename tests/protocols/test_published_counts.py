"""The budget protocol against the counts of PatchML's Tables 1 and 2, on a matrix of the size of COCO train2014."""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest

from tagfill.labels import LabelMatrix
from tagfill.protocols.budget import draw
from tagfill.protocols.costs import Costs
from tagfill.protocols.pairs import PairNumbers

IMAGES, CLASSES, POSITIVES = 82_783, 80, 241_035
SEEDS = (0, 1, 2)  # the table averages three snapshots
LOCATED = 3.5  # positive classes of an image, as the paper's costs imply

# budget in percent, kind: positives, negatives and all labels in thousands
TABLE_1 = {
    (0.25, "I"): (602, 16, 17),
    (0.25, "SP"): (559, 15, 16),
    (0.25, "SB"): (471, 13, 13),
    (0.5, "I"): (1221, 32, 33),
    (0.5, "SP"): (1147, 30, 31),
    (0.5, "SB"): (944, 25, 26),
    (1, "I"): (2440, 64, 66),
    (1, "SP"): (2314, 60, 62),
    (1, "SB"): (1910, 51, 52),
    (2, "I"): (4942, 128, 132),
    (2, "SP"): (4634, 120, 125),
    (2, "SB"): (3949, 101, 105),
    (4, "I"): (9687, 255, 265),
    (4, "SP"): (9142, 240, 250),
    (4, "SB"): (7677, 202, 210),
}
# images with a label in thousands
TABLE_2 = {
    (0.25, "SP"): 14.2,
    (0.5, "SP"): 26.0,
    (1, "SP"): 44.0,
    (2, "SP"): 64.9,
    (4, "SP"): 78.9,
    (0.25, "SB"): 12.2,
    (0.5, "SB"): 22.6,
    (1, "SB"): 39.1,
    (2, "SB"): 60.0,
    (4, "SB"): 76.5,
}


@cache
def coco() -> tuple[LabelMatrix, list[PairNumbers]]:
    values = np.zeros(IMAGES * CLASSES, dtype=np.int8)
    values[np.random.default_rng(0).choice(len(values), POSITIVES, replace=False)] = 1
    starts = np.arange(IMAGES + 1, dtype=np.int64) * CLASSES
    labels = LabelMatrix(starts, np.tile(np.arange(CLASSES, dtype=np.int32), IMAGES), values, CLASSES)
    names, classes = [f"{index:012d}.jpg" for index in range(IMAGES)], [f"class {index}" for index in range(CLASSES)]
    return labels, [PairNumbers.of(names, classes, seed) for seed in SEEDS]


@cache
def counts(percent: float, kind: str) -> tuple[float, float, float]:
    """Positives, labels and images with a label, averaged over the seeds."""
    labels, numbers = coco()
    costs = Costs()
    limit, each = costs.budget(percent, labels.shape), costs.average(kind, LOCATED, CLASSES)
    drawn = [draw(labels, of_seed, limit, each) for of_seed in numbers]
    positives = np.mean([pairs.value.sum() for pairs in drawn])
    images = np.mean([len(np.unique(pairs.image)) for pairs in drawn])
    return float(positives), float(np.mean([len(pairs) for pairs in drawn])), float(images)


@pytest.mark.parametrize(("percent", "kind"), TABLE_1)
def test_labels_are_those_of_table_1(percent, kind):
    published_positives, published_negatives, published_labels = TABLE_1[percent, kind]

    positives, labels, _ = counts(percent, kind)

    assert labels / 1000 == pytest.approx(published_labels, abs=0.51)
    assert (labels - positives) / 1000 == pytest.approx(published_negatives, abs=0.51)
    assert positives == pytest.approx(published_positives, rel=0.04)


@pytest.mark.parametrize(("percent", "kind"), TABLE_2)
def test_images_are_those_of_table_2(percent, kind):
    _, _, images = counts(percent, kind)

    assert images / 1000 == pytest.approx(TABLE_2[percent, kind], rel=0.01)


@pytest.mark.parametrize(("kind", "labels"), [("I", 66_226), ("SP", 62_404), ("SB", 52_457)])
def test_one_percent_of_coco(kind, labels):
    assert counts(1, kind)[1] == labels
