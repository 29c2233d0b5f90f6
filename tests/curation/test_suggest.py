"""Suggestions for scenes with one known label per image, from models that were not trained on the images."""

import json
from datetime import UTC, datetime

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import tagfill
from reference import worth
from tagfill.curation import Suggestions
from tagfill.curation.crossfit import ScoredImages
from tagfill.curation.estimates import LabelEstimates
from tagfill.curation.suggest import Pairs, TopPairs, entropy, first_per_group, suggest
from tagfill.dataset import Dataset
from tagfill.dataset.tables import IMAGES_SCHEMA, from_records
from tagfill.errors import TagfillError
from tagfill.probabilities import Calibration

from .cases import CLASSES


@pytest.fixture(scope="module")
def found(run, part, place):
    return tagfill.suggest(part, run, folds=2, minimum=0.0, missing=100_000, wrong=50, out=place / "folds", jobs=1)


def test_every_unknown_pair_is_suggested_once_and_no_other(found, part):
    table = found.suggestions.table.filter(np.array(found.suggestions.table["kind"].to_pylist()) == "missing")
    labels = part.labels("train").dense()
    assert table.num_rows == (labels == -1).sum()
    pairs = set(zip(table["image"].to_pylist(), table["label"].to_pylist(), strict=True))
    assert len(pairs) == table.num_rows
    known = {(part.names()[row], part.classes[c]) for row, c in zip(*np.nonzero(labels == 1), strict=True)}
    assert pairs.isdisjoint(known)
    assert table["probability"].to_pylist() == sorted(table["probability"].to_pylist(), reverse=True)


def test_the_quality_is_measured(found, part):
    truth = Dataset.open(part.truth).labels()
    where = {name: row for row, name in enumerate(part.names())}
    rows = [row for row in found.suggestions.table.to_pylist() if row["kind"] == "missing"]
    there = [int(truth.rows(np.array([where[r["image"]]]))[0, part.classes.index(r["label"])]) == 1 for r in rows]
    assert found.measured.precision[100] == pytest.approx(np.mean(there[:100]))
    assert found.measured.recovered == pytest.approx(1.0)
    assert found.measured.per_hour == sum(there[:1800])
    assert found.measured.per_hour_random == pytest.approx(1800 * np.mean(there))


def test_value_is_uncertainty_times_rarity(run, part, cache, shares):
    settings = {"folds": 0, "minimum": 0.0, "missing": 100_000, "features": cache.folder, "order": "value"}
    table = suggest(part, run.folder, **settings).suggestions.table.to_pylist()
    missing = [row for row in table if row["kind"] == "missing"]
    expected = [worth.checking(row["probability"], shares[row["label"]]) for row in missing]
    assert [row["value"] for row in missing] == pytest.approx(expected, rel=1e-4)
    assert (np.diff([row["value"] for row in missing]) <= 0).all()


def test_calibration_is_reported(found):
    before, after = found.calibration
    assert 0 <= after < before


def test_fold_models_are_reused(found, run, part, place):
    stamps = {path: path.stat().st_mtime_ns for path in (place / "folds").rglob("best/model.safetensors")}
    assert len(stamps) == 2
    again = suggest(part, run.folder, folds=2, minimum=0.0, missing=100_000, wrong=50, out=place / "folds", jobs=1)
    assert again.suggestions.table.equals(found.suggestions.table)
    assert {path: path.stat().st_mtime_ns for path in stamps} == stamps


def test_other_splits_are_scored_by_the_run_itself(run, part, cache):
    found = suggest(part, run.folder, split="test", features=cache.folder, minimum=0.0)
    assert found.folds == 0
    summary = json.loads(json.dumps(found.to_json(), allow_nan=False))  # nothing is missing, so shares of it are null
    assert summary["measured"]["recovered"] is summary["measured"]["labels_per_hour_in_random_order"] is None
    with pytest.raises(TagfillError, match="--folds is for the training split"):
        suggest(part, run.folder, split="test", folds=3)
    with pytest.raises(TagfillError, match="has no recipe"):
        suggest(part, run.folder / "best")


def test_cannot_tell_is_not_suggested_again(run, part, cache, tmp_path):
    name = part.names(part.split("train"))[0]
    unknown = [c for c, known in zip(part.classes, part.labels("train").dense()[0], strict=True) if known == -1]
    row = {"image": name, "label": unknown[0], "present": None, "source": "review", "time": datetime.now(UTC)}
    data = part.replace(annotations=from_records([*part.rows().to_pylist(), row]), folder=None)
    data.save(tmp_path / "data")
    settings = {"folds": 0, "minimum": 0.0, "missing": 100_000, "features": cache.folder}
    found = suggest(tmp_path / "data", run.folder, **settings).suggestions.table
    suggested = set(zip(found["image"].to_pylist(), found["label"].to_pylist(), strict=True))
    assert (name, unknown[0]) not in suggested
    assert (name, unknown[1]) in suggested


@pytest.fixture
def contradicted(monkeypatch, tmp_path):
    """Scores of 600 images with one tag each in two batches; the model contradicts 60 tags of the class cup."""
    rng = np.random.default_rng(3)
    names = [f"{number:05d}.jpg" for number in range(600)]
    tags = rng.integers(0, 3, 600)
    shown = tags.copy()
    shown[np.flatnonzero(tags == 0)[:60]] = 1
    logits = (np.where(np.arange(3) == shown[:, None], 4.0, -4.0) + rng.normal(0, 1, (600, 3))).astype(np.float32)
    data = Dataset(
        name="photos",
        root=tmp_path,
        classes=CLASSES,
        images=from_records([{"image": name, "split": "train"} for name in names], IMAGES_SCHEMA),
        annotations=from_records(
            [{"image": n, "label": CLASSES[t], "present": True} for n, t in zip(names, tags, strict=True)]
        ),
    )
    estimates = LabelEstimates(Calibration.identity(3), np.ones(3), 0.0, "at random", 0.0, np.full(3, 1 / 3))
    batches = [ScoredImages(rows, logits[rows], estimates, None) for rows in np.split(np.arange(600), 2)]
    monkeypatch.setattr("tagfill.curation.suggest.cross_fit", lambda *_, **__: iter(batches))
    return data, {names[row] for row in np.flatnonzero(shown != tags)}


def test_annotations_that_the_model_contradicts_are_suggested_as_wrong(contradicted):
    data, wrong = contradicted
    found = suggest(data, "run", folds=2)
    rows = [row for row in found.suggestions.table.to_pylist() if row["kind"] == "wrong"]
    assert 30 < len(rows) == len(found.label_errors) == found.to_json()["wrong"] <= 60
    assert {row["image"] for row in rows} <= wrong
    assert {(row["label"], row["annotated"]) for row in rows} == {("cup", True)}
    assert all(row["probability"] < 0.5 for row in rows)
    limited = suggest(data, "run", folds=2, wrong=7).suggestions.table.to_pylist()
    assert [row for row in limited if row["kind"] == "wrong"] == rows[:7]
    by_class = suggest(data, "run", folds=2, per_class=5).suggestions.table.to_pylist()
    assert [row for row in by_class if row["kind"] == "wrong"] == rows[:5]


def test_annotations_that_do_not_fit_into_memory_together_are_judged_in_blocks(contradicted, monkeypatch):
    monkeypatch.setattr("tagfill.curation.suggest._MOST_PAIRS", 900)
    data, wrong = contradicted
    found = suggest(data, "run", folds=2)
    rows = [row for row in found.suggestions.table.to_pylist() if row["kind"] == "wrong"]
    assert {row["image"] for row in rows} <= wrong
    assert [row["image"] for row in rows] == data.names(found.label_errors.image)
    assert found.label_errors.annotations == 600


def test_annotations_are_not_doubted_by_the_model_that_learned_them(contradicted):
    found = suggest(contradicted[0], "run", folds=0).to_json()
    assert found["wrong"] == 0
    assert found["label_errors"]["reason"] == "the run was trained on these annotations; --folds 5 can doubt them"


def test_correct_tags_are_not_doubted(found):
    assert found.to_json()["wrong"] == 0
    assert found.label_errors.reason


def test_a_file_of_suggestions_stores_its_run(found, run, tmp_path):
    found.suggestions.save(tmp_path / "s.parquet")
    assert Suggestions.read(tmp_path / "s.parquet").origin["run"] == str(run.folder.absolute())


def pairs(rng, size):
    row, label = np.divmod(rng.permutation(400)[:size], 20)
    p = rng.integers(0, 8, size) / 8  # many ties
    return Pairs(row, label, p, entropy(p), np.full(size, -1, np.int8))


@given(st.integers(0, 300), st.integers(1, 40), st.one_of(st.none(), st.integers(1, 4)), st.integers(1, 7))
def test_the_top_of_a_stream_is_the_top_of_all(size, limit, per_class, parts):
    everything = pairs(np.random.default_rng(size), size)
    top = TopPairs(limit, per_class, lambda some: some.probability)
    for part in np.array_split(np.arange(size), parts):
        some = everything.take(part)
        top.add(some.take(np.flatnonzero(some.probability >= top.floor(some.label))))
        top._shrink()  # as if there had been too many to keep
    expected, counts = [], {}
    for p, row, label in sorted(zip(-everything.probability, everything.row, everything.label, strict=True)):
        counts[label] = counts.get(label, 0) + 1
        if per_class is None or counts[label] <= per_class:
            expected.append((row, label, -p))
    found = top.top()
    assert list(zip(found.row, found.label, found.probability, strict=True)) == expected[:limit]


@given(st.lists(st.integers(0, 4), max_size=30), st.integers(1, 5))
def test_groups_are_limited_one_by_one(groups, limit):
    expected = [groups[:position].count(group) < limit for position, group in enumerate(groups)]
    assert first_per_group(np.array(groups, dtype=np.int64), limit).tolist() == expected


def test_entropy_of_certain_events_is_zero():
    assert entropy(np.array([0.0, 0.25, 0.5, 1.0])).round(4).tolist() == [0.0, 0.8113, 1.0, 0.0]


def test_the_old_order_of_arguments_still_works_and_warns(run, part, cache, found, place):
    settings = {"folds": 2, "minimum": 0.0, "missing": 100_000, "wrong": 50, "out": place / "folds", "jobs": 1}
    with pytest.warns(DeprecationWarning, match="takes the dataset first"):
        assert suggest(run, part, **settings).suggestions.table.equals(found.suggestions.table)
