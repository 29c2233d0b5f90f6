"""The numbers behind figures, on arrays small enough to count by hand or by plain loops."""

from __future__ import annotations

import math

import numpy as np
import pytest

from tagfill.errors import TagfillError
from tagfill.experiments.analyses.class_maps import centered_gaussian, extremes
from tagfill.experiments.analyses.curves import first_epoch_near_best
from tagfill.experiments.analyses.groups import map_by_area, map_by_class, map_by_label_count, missing_share
from tagfill.experiments.analyses.scores import histogram, share_above_half, top_probabilities
from tagfill.experiments.analyses.sweep import parse_axes, vary_recipe
from tagfill.metrics import GatheredPredictions, average_precision
from tagfill.training import make_recipe


def gathered(seed: int = 0, images: int = 40, classes: int = 5) -> GatheredPredictions:
    rng = np.random.default_rng(seed)
    labels = (rng.random((images, classes)) < 0.4).astype(np.int8)
    labels[:, 0] |= ~labels.any(axis=1)
    return GatheredPredictions(np.arange(images), rng.normal(size=(images, classes)) + labels, labels)


def mean_ap(scores: np.ndarray, labels: np.ndarray) -> float:
    return 100 * float(np.nanmean(average_precision(scores, labels)))


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


def test_missing_share_is_never_negative():
    assert missing_share(np.array([2, 0, 4]), np.array([8, 5, 3])).tolist() == [0.75, 1.0, 0.0]


def test_highest_scores_of_each_image_come_in_order():
    logits = np.random.default_rng(5).normal(size=(7, 6))

    found = top_probabilities(logits, 3)

    for row, values in zip(logits.tolist(), found.tolist(), strict=True):
        assert values == pytest.approx([1 / (1 + math.exp(-g)) for g in sorted(row, reverse=True)[:3]])


def test_histograms_hold_everything_once():
    values = np.array([0.0, 0.04, 0.5, 0.999, 1.0])

    shares = histogram(values, 25)

    assert shares.sum() == pytest.approx(1)
    assert shares[[0, 1, 12, 24]].tolist() == pytest.approx([0.2, 0.2, 0.2, 0.4])
    assert share_above_half(np.stack([np.zeros(25), shares])) == pytest.approx(0.4)


def test_extremes_are_means_of_the_first_and_last_cells():
    cells = np.random.default_rng(6).normal(size=(4, 49))

    low, high = extremes(cells)

    for row, (a, b) in enumerate(zip(low, high, strict=True)):
        ordered = sorted(cells[row].tolist())
        assert (a, b) == pytest.approx((sum(ordered[:2]) / 2, sum(ordered[-2:]) / 2))


def test_gaussian_falls_with_the_distance_from_the_center():
    values = centered_gaussian(7, 7)

    distance = {(row, column): (row - 3) ** 2 + (column - 3) ** 2 for row in range(7) for column in range(7)}
    for a, near in distance.items():
        for b, far in distance.items():
            assert (values[a] > values[b]) == (near < far)


def test_epoch_that_is_nearly_the_best():
    assert first_epoch_near_best(np.array([50.0, math.nan, 79.5, 80.0])) == 3


RECIPE = make_recipe({"dataset": "d", "method": "en+scl", "stages": [{"options": {"en": {}}}, {"name": "two"}]})


@pytest.mark.parametrize(
    ("name", "paths"),
    [
        ("K", ("options.en.expected",)),
        ("mu", ("options.en.momentum", "options.scl.momentum")),
        ("gamma", ("options.scl.weight",)),
        ("alpha", ("head_options.boost",)),
        ("scl.distance", ("options.scl.distance",)),
        ("options.scl.distance", ("options.scl.distance",)),
        ("optimizer.lr", ("optimizer.lr",)),
        ("crop_scale", ("crop_scale",)),
    ],
)
def test_symbols_and_names_refer_to_settings(name, paths):
    (axis,) = parse_axes([f"{name}=1,2"], RECIPE)

    assert axis.paths == paths


def test_values_reach_every_place_that_has_them():
    axes = parse_axes(["K=1.5,2", "crop_scale=[0.25,1.0],[0.5,1.0]"], RECIPE)

    last = vary_recipe(RECIPE, axes, tuple(axis.values[-1] for axis in axes), seed=7)

    assert last.seed == 7
    assert last.options["en"]["expected"] == 2
    assert last.stages[0].options == {"en": {"expected": 2}}
    assert [stage.crop_scale for stage in last.stages] == [(0.5, 1.0), (0.5, 1.0)]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("momentun=1", "did you mean 'momentum'"),
        ("rate=1,2", "There is no setting 'rate' of en.scl"),
        ("K", "has no value"),
        ("K=", "There is no value"),
        ("K=[1", "is not a list of values"),
    ],
)
def test_wrong_sweeps_are_refused(text, message):
    with pytest.raises(TagfillError, match=message):
        parse_axes([text], RECIPE)


def test_a_sweep_without_settings_is_refused():
    with pytest.raises(TagfillError, match="something to vary"):
        parse_axes([], RECIPE)
