from __future__ import annotations

from functools import cache

import numpy as np
import pytest

from protocols.cases import CLASSES, SIZES, made
from tagfill.dataset import Dataset, from_records
from tagfill.errors import TagfillError
from tagfill.labels import LabelMatrix
from tagfill.protocols import budget
from tagfill.protocols.budget import buy_pairs
from tagfill.protocols.costs import Costs
from tagfill.rng import PairNumbers

DATA = made()
PAIRS = SIZES["train"] * len(CLASSES)
KINDS = ("I", "SP", "SB", "AP", "AB")


def training_rows(part: Dataset) -> list[dict[str, object]]:
    return [row for row in part.rows().to_pylist() if row["image"].startswith("train/")]


def boxes(data: Dataset) -> dict[tuple[str, str], list[tuple[float, ...]]]:
    found: dict[tuple[str, str], list[tuple[float, ...]]] = {}
    for row in data.rows().to_pylist():
        if row["kind"] == "box":
            found.setdefault((row["image"], row["label"]), []).append(tuple(row[name] for name in "xywh"))
    return found


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("percent", [0, 1, 10, 50])
def test_average_accounting_buys_the_budget_over_the_average(kind, percent):
    part = budget(DATA, percent=percent, kind=kind, located_per_image=2.0)

    counts = part.protocol["kept"]
    each = 1 + {"I": 0, "P": 1.4, "B": 6}[kind[-1]] * 2.0 / len(CLASSES)
    assert counts["positives"] + counts["negatives"] == round(percent / 100 * PAIRS / each)
    assert counts["seconds"] == pytest.approx(percent / 100 * PAIRS, abs=each)


def test_average_comes_from_the_positives_of_the_dataset():
    positives = int(DATA.labels("train").positives.sum())

    counts = budget(DATA, percent=20, kind="SB").protocol["kept"]

    each = 1 + 6 * positives / SIZES["train"] / len(CLASSES)
    assert counts["positives"] + counts["negatives"] == round(0.2 * PAIRS / each)


def test_average_of_all_instances_comes_from_the_instances_of_the_dataset():
    instances = sum(len(found) for (image, _), found in boxes(DATA).items() if image.startswith("train/"))

    counts = budget(DATA, percent=20, kind="AB").protocol["kept"]

    each = 1 + 6 * instances / SIZES["train"] / len(CLASSES)
    assert counts["positives"] + counts["negatives"] == round(0.2 * PAIRS / each)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("percent", [3, 10, 50])
def test_exact_accounting_does_not_exceed_the_budget(kind, percent):
    found = boxes(DATA)
    limit = percent / 100 * PAIRS

    part = budget(DATA, percent=percent, kind=kind, accounting="exact")

    unit = {"I": 0, "P": 1.4, "B": 6}[kind[-1]]
    spent = 0.0
    for image, label in {(row["image"], row["label"]) for row in training_rows(part)}:
        instances = len(found.get((image, label), []))  # none where the class is absent
        spent += 1 + unit * (instances if kind[0] == "A" else min(instances, 1))
    assert part.protocol["kept"]["seconds"] == pytest.approx(spent)
    assert spent <= limit + 1e-6
    most = 1 + unit * (2 if kind[0] == "A" else 1)
    assert spent + most > limit


@pytest.mark.parametrize("accounting", ["average", "exact", "equal"])
@pytest.mark.parametrize("kind", KINDS)
def test_seconds_of_the_rows_add_up(kind, accounting):
    part = budget(DATA, percent=30, kind=kind, accounting=accounting)

    total = sum(row["seconds"] for row in training_rows(part))
    assert total == pytest.approx(part.protocol["kept"]["seconds"], rel=1e-5)


@pytest.mark.parametrize(("kind", "drawn"), [("I", "image"), ("SP", "point"), ("SB", "box"), ("AP", "point")])
def test_positives_are_annotated_by_kind_and_negatives_at_image_level(kind, drawn):
    rows = training_rows(budget(DATA, percent=50, kind=kind))

    assert {row["kind"] for row in rows if row["present"]} == {drawn}
    assert {row["kind"] for row in rows if not row["present"]} == {"image"}


def test_a_single_box_is_the_box_of_an_instance():
    found = boxes(DATA)

    rows = [row for row in training_rows(budget(DATA, percent=80, kind="SB")) if row["present"]]

    assert all(tuple(row[name] for name in "xywh") in found[row["image"], row["label"]] for row in rows)
    assert len({(row["image"], row["label"]) for row in rows}) == len(rows)


def test_all_boxes_are_the_boxes_of_the_instances():
    found = boxes(DATA)

    part = boxes(budget(DATA, percent=80, kind="AB"))

    training = {pair: sorted(places) for pair, places in part.items() if pair[0].startswith("train/")}
    assert training
    assert training == {pair: sorted(found[pair]) for pair in training}


def test_either_instance_is_chosen():
    found = boxes(DATA)
    rows = [row for row in training_rows(budget(DATA, percent=300, kind="SB")) if row["present"]]
    several = [row for row in rows if len(found[row["image"], row["label"]]) == 2]

    first = sum(tuple(row[n] for n in "xywh") == min(found[row["image"], row["label"]]) for row in several)

    assert 0.3 < first / len(several) < 0.7


def test_kinds_draw_the_same_pairs_only_more_or_fewer():
    parts = {kind: training_rows(budget(DATA, kind=kind, percent=30)) for kind in ("I", "SP", "SB")}
    pairs = {kind: {(row["image"], row["label"]) for row in rows} for kind, rows in parts.items()}

    assert pairs["SB"] < pairs["SP"] < pairs["I"]


def test_a_budget_beyond_all_pairs_buys_all():
    counts = budget(DATA, percent=1000, kind="I").protocol["kept"]

    assert counts["unknown"] == 0


def test_a_positive_without_a_location_becomes_an_image_label():
    rows = DATA.rows().to_pylist()
    first = next(index for index, row in enumerate(rows) if row["present"])
    bare = {**rows[first], "kind": "image", "x": None, "y": None, "w": None, "h": None}
    same = [row for row in rows if (row["image"], row["label"]) != (bare["image"], bare["label"])]

    part = budget(DATA.replace(annotations=from_records([bare, *same])), percent=1000, kind="SP")

    kinds = [row["kind"] for row in training_rows(part) if row["present"]]
    assert kinds.count("image") == 1
    assert part.protocol["kept"]["locations"] == len(kinds) - 1


def test_missing_locations_are_refused():
    with pytest.raises(
        TagfillError, match=r"Kind SB needs boxes or masks, but none of the .* positives drawn from made"
    ):
        budget(made(located=False), percent=50, kind="SB")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"kind": "XP"}, "kind is 'XP'; give one of I, SP, SB, AP, AB"),
        ({"accounting": "free"}, "accounting is 'free'; give one of average, exact, equal"),
        ({"point": "corner"}, "point is 'corner'; give one of auto, mask, box, center"),
        ({"percent": -1}, "percent is -1; give a number, 0 or more"),
        ({"percent": float("nan")}, "percent is nan; give a number, 0 or more"),
        ({"located_per_image": -100.0}, "located_per_image is -100.0; give a number, 0 or more"),
        ({"point_seconds": float("inf")}, "Costs of 1.0, inf and 6.0 seconds are invalid"),
        ({"image_seconds": 0.0}, "Costs of 0.0, 1.4 and 6.0 seconds are invalid"),
    ],
)
def test_invalid_options_are_refused(options, message):
    with pytest.raises(TagfillError, match=message):
        budget(DATA, **options)


def test_exact_draw_stops_at_the_first_pair_that_does_not_fit():
    labels = LabelMatrix.from_dense(np.array([[1, 0, 0, 1, 0, 0, 1, 0]]))
    numbers = PairNumbers.of(["a"], list("abcdefgh"), 0)
    costs = Costs()

    def charge(pairs):
        return costs.exact("SB", pairs.value, np.ones(len(pairs), dtype=np.int64))

    everything = buy_pairs(labels, numbers, 1000.0, charge)
    spent = np.cumsum(charge(everything))
    for count in range(len(spent)):
        assert len(buy_pairs(labels, numbers, float(spent[count]), charge)) == count + 1
        assert len(buy_pairs(labels, numbers, float(spent[count]) - 0.5, charge)) == count


def test_outdated_locations_are_not_charged():
    place = {"kind": "box", "x": 0.5, "y": 0.5, "w": 0.1, "h": 0.1}
    shown = next(row for row in DATA.rows().to_pylist() if not row["present"] and row["image"].startswith("train/"))
    older = [{**shown, **place, "present": True}] * 500
    newer = {**shown, "time": 2_000_000}
    rows = DATA.rows().to_pylist()

    overruled = DATA.replace(annotations=from_records([*rows, newer, *older]))

    assert budget(overruled, percent=10, kind="AB").protocol == budget(DATA, percent=10, kind="AB").protocol


# Against the counts of PatchML's Tables 1 and 2, on a matrix of the size of COCO train2014.

COCO_IMAGES, COCO_CLASSES, COCO_POSITIVES = 82_783, 80, 241_035
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
    values = np.zeros(COCO_IMAGES * COCO_CLASSES, dtype=np.int8)
    values[np.random.default_rng(0).choice(len(values), COCO_POSITIVES, replace=False)] = 1
    starts = np.arange(COCO_IMAGES + 1, dtype=np.int64) * COCO_CLASSES
    labels = LabelMatrix(starts, np.tile(np.arange(COCO_CLASSES, dtype=np.int32), COCO_IMAGES), values, COCO_CLASSES)
    names, classes = (
        [f"{index:012d}.jpg" for index in range(COCO_IMAGES)],
        [f"class {index}" for index in range(COCO_CLASSES)],
    )
    return labels, [PairNumbers.of(names, classes, seed) for seed in SEEDS]


@cache
def counts(percent: float, kind: str) -> tuple[float, float, float]:
    """Positives, labels and images with a label, averaged over the seeds."""
    labels, numbers = coco()
    costs = Costs()
    limit, each = costs.budget(percent, labels.shape), costs.average(kind, LOCATED, COCO_CLASSES)
    drawn = [buy_pairs(labels, of_seed, limit, each) for of_seed in numbers]
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


def test_the_old_spelling_of_center_still_works():
    with pytest.warns(DeprecationWarning, match="renamed to point='center'"):
        part = budget(DATA, percent=10, kind="SP", point="centre")
    assert part.protocol["hash"] == budget(DATA, percent=10, kind="SP", point="center").protocol["hash"]
