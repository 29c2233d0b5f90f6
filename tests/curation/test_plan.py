"""A plan spends at most its hours, on the most valuable pairs, as the study says; other tools can read it."""

import csv
import json
from dataclasses import replace

import numpy as np
import pytest

from reference import worth
from tagfill.curation.plan import forecasts, plan
from tagfill.errors import TagfillError
from tagfill.formats import cvat, label_studio
from tagfill.protocols.costs import Costs


def study(folder, **curves):
    """A study with a score of each kind at 1, 10 and 100 %."""
    findings = [
        {"kind": kind, "percent": percent, "mAP_cls": [score - 1, score + 1], "mAP_loc": [score / 2] * (kind != "I")}
        for kind, scores in curves.items()
        for percent, score in zip((1.0, 10.0, 100.0), scores, strict=True)
    ]
    folder.mkdir(exist_ok=True)
    (folder / "budget.json").write_text(json.dumps({"findings": findings}))
    return folder


@pytest.fixture(scope="module")
def made(run, part, place):
    return plan(part, 0.1, run=run.folder, folds=2, models=place / "folds", jobs=1)


def test_hours_are_kept_and_used(made):
    assert made.kind == "I"
    assert made.seconds.sum() <= 360
    assert made.seconds.sum() > 359
    assert len(made.pairs) == 360


def test_pairs_are_unknown_ones_and_the_most_valuable_of_them(made, part):
    labels = part.labels()
    assert not labels.is_annotated(made.pairs.row)[np.arange(360), made.pairs.label].any()
    assert (np.diff(made.pairs.value) <= 0).all()
    assert len({*zip(made.pairs.row.tolist(), made.pairs.label.tolist(), strict=True)}) == 360


def test_enough_hours_cover_all_pairs_and_value_is_probability_times_rarity(run, part, cache, shares):
    everything = plan(part, 100, run=run.folder, folds=0, features=cache.folder, models="unused")
    chances, labels = everything.pairs.probability.tolist(), everything.pairs.label.tolist()
    expected = [worth.planning(p, shares[part.classes[c]]) for p, c in zip(chances, labels, strict=True)]
    assert everything.pairs.value.tolist() == pytest.approx(expected)
    assert len(everything.pairs) == (part.labels("train").dense() == -1).sum()


def test_points_cost_more_where_the_label_is_likely(run, part, place):
    costs = Costs(1.0, 10.0, 6.0)
    found = plan(part, 0.1, run=run.folder, folds=2, kind="SP", costs=costs, models=place / "folds", jobs=1)
    assert found.seconds == pytest.approx(1 + 10 * found.pairs.probability)
    assert found.seconds.sum() <= 360


def test_tasks_open_in_label_studio_and_cvat(made, tmp_path):
    files = made.save(tmp_path)
    assert [file.name for file in files] == ["plan.json", "tasks.csv", "label-studio.json", "cvat.xml"]
    names = made.dataset.names(made.images)
    tasks = json.loads(files[2].read_text())
    assert [task["data"]["image"].partition("?d=")[2] for task in tasks] == names
    read = label_studio.read(files[2], root=made.dataset.root, absent_means="unknown", classes=made.dataset.classes)
    assert read.names() == names
    assert cvat.read(files[3], root=made.dataset.root, absent_means="unknown").names() == names
    with files[1].open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == len(made.pairs)
    assert [int(row["task"]) for row in rows] == sorted(int(row["task"]) for row in rows)
    assert json.loads(files[0].read_text())["images"] == len(names)
    formulas = replace(made, dataset=made.dataset.replace(classes=tuple(f"={name}" for name in made.dataset.classes)))
    with formulas.save(tmp_path, spreadsheet=True)[1].open(encoding="utf-8", newline="") as file:
        assert [row | {"label": row["label"].removeprefix("'=")} for row in csv.DictReader(file)] == rows


def test_the_study_chooses_the_kind(run, part, place, tmp_path):
    folder = study(tmp_path / "study", I=(10, 20, 30), SP=(12, 19, 40))
    chosen = plan(part, 0.5, run=run.folder, study=folder, folds=2, models=place / "folds", jobs=1)
    size = 120 * len(part.classes)
    spent, planned = 100 * 120 / size, 100 * 1800 / size
    assert chosen.forecasts == tuple(forecasts(folder, "tags", spent, planned))
    assert chosen.kind == max(chosen.forecasts, key=lambda one: one.after).kind


@pytest.mark.parametrize(
    ("spent", "planned", "kind", "before", "after", "within"),
    [
        (1, 9, "I", 10.0, 20.0, True),
        (1, 99, "SP", 12.0, 40.0, True),
        (0, 1, "SP", 12.0, 12.0, True),
        (10, 990, "SP", 19.0, 40.0, False),
        (10, 21.6227766, "SP", 19.0, 29.5, True),
    ],
)
def test_curves_are_read_between_their_points(tmp_path, spent, planned, kind, before, after, within):
    best = forecasts(study(tmp_path / "s", I=(10, 20, 30), SP=(12, 19, 40)), "tags", spent, planned)[0]
    assert (best.kind, best.within) == (kind, within)
    assert (best.before, best.after) == (pytest.approx(before), pytest.approx(after))


def test_places_need_a_study_that_measured_them(tmp_path):
    folder = study(tmp_path / "s", I=(10, 20, 30), SP=(12, 19, 40))
    assert [one.kind for one in forecasts(folder, "places", 1, 9)] == ["SP"]
    with pytest.raises(TagfillError, match="no scores for the goal"):
        forecasts(study(tmp_path / "t", I=(1, 2, 3)), "places", 1, 9)
    with pytest.raises(TagfillError, match="not the result of a budget study"):
        forecasts(tmp_path / "none", "tags", 1, 9)
    with pytest.raises(TagfillError, match="goal is 'fame'"):
        forecasts(folder, "fame", 1, 9)


def test_no_hours_are_refused(run, part):
    with pytest.raises(TagfillError, match="give more than 0"):
        plan(part, 0, run=run.folder, models="unused")


def test_a_kind_is_expected_to_score_what_the_best_of_its_methods_does(tmp_path):
    both = study(tmp_path / "s", **{"SP": (10, 20, 30), "SP+patchcluster": (8, 24, 36), "I": (9, 9, 9)})
    found = forecasts(both, "tags", 1, 9)
    assert [(one.kind, one.before, one.after) for one in found] == [("SP", 10.0, 24.0), ("I", 9.0, 9.0)]
