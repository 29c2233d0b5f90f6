"""Scores of groups of images, objects and classes, against plain loops."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import tagfill
from experiments.analyses.conftest import read_table
from tagfill.experiments.analyses import analyze
from tagfill.experiments.analyses.groups import map_by_area, map_by_class, map_by_label_count, missing_share
from tagfill.metrics import GatheredPredictions, average_precision
from tagfill.training import evaluate


def gathered(seed: int = 0, images: int = 40, classes: int = 5) -> GatheredPredictions:
    rng = np.random.default_rng(seed)
    labels = (rng.random((images, classes)) < 0.4).astype(np.int8)
    labels[:, 0] |= ~labels.any(axis=1)
    return GatheredPredictions(np.arange(images), rng.normal(size=(images, classes)) + labels, labels)


def mean_ap(scores: np.ndarray, labels: np.ndarray) -> float:
    return 100 * float(np.nanmean(average_precision(scores, labels)))


def test_groups_of_all_classes_average_to_the_whole(runs: dict[str, str], tmp_path: Path) -> None:
    section = analyze("groups", [runs["an"], runs["role"]], out=tmp_path, classes=1)

    data = tagfill.Dataset.open(Path(runs["an"]).parent / "single")
    features = Path(runs["an"]).parent / "cache"
    score = 100 * evaluate(runs["an"], data, features=features).mean
    for group in ("frequency", "missing"):
        assert list(section.facts[group]["an"].values()) == [pytest.approx(score, abs=0.01)]
    assert len(section.facts["area"]["an"]) == 3
    difference = read_table(tmp_path, "difference")
    values = [float(row["difference"]) for row in difference if row["difference"]]
    assert values == sorted(values)
    assert float(difference[0]["role"]) - float(difference[0]["an"]) == pytest.approx(values[0], abs=2e-4)


def test_images_are_grouped_by_their_number_of_labels():
    scored = gathered()

    found = map_by_label_count(scored, most=3)

    assert list(found) == ["1", "2", "≥3"]
    two = [row for row in range(40) if sum(scored.labels[row]) == 2]
    assert found["2"] == pytest.approx(mean_ap(scored.scores[two], scored.labels[two]))


def test_positives_of_another_size_are_left_out_and_negatives_stay():
    scored = gathered(1)
    areas = np.where(scored.labels == 1, np.random.default_rng(2).random(scored.labels.shape), np.nan)

    found = map_by_area(scored, areas, parts=2)

    middle = float(np.median(areas[scored.labels == 1]))
    expected = []
    for inside in (lambda area: area < middle, lambda area: area >= middle):
        labels = [
            [-1 if label == 1 and not inside(areas[row, at]) else label for at, label in enumerate(each)]
            for row, each in enumerate(scored.labels.tolist())
        ]
        expected.append(mean_ap(scored.scores, np.array(labels)))
    assert list(found.values()) == pytest.approx(expected)


def test_areas_belong_to_images_not_to_rows():
    scored = gathered(3)
    areas = np.where(scored.labels == 1, np.random.default_rng(2).random(scored.labels.shape), np.nan)
    turned = GatheredPredictions(scored.index[::-1], scored.scores[::-1], scored.labels[::-1])

    assert map_by_area(turned, areas) == pytest.approx(map_by_area(scored, areas))


def test_classes_are_grouped_from_the_least_to_the_most():
    scored = gathered(4)
    each = 100 * average_precision(scored.scores, scored.labels)

    found = map_by_class(scored, np.array([9, 1, 5, 5, 3]), 2, "{:.0f}")

    assert list(found) == ["1 – 5", "5 – 9"]
    assert list(found.values()) == pytest.approx([each[[1, 4, 2]].mean(), each[[3, 0]].mean()])
    scored.labels[:, 3] = 1  # without a negative it does not count in the mAP
    assert list(map_by_class(scored, np.array([9, 1, 5, 5, 3]), 2, "{:.0f}").values())[1] == pytest.approx(each[0])


def test_missing_share_is_never_negative():
    assert missing_share(np.array([2, 0, 4]), np.array([8, 5, 3])).tolist() == [0.75, 1.0, 0.0]
