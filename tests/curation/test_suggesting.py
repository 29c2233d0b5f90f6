"""Suggestions on scenes with one known label each, from models that did not see what they are asked about."""

import json
from datetime import UTC, datetime

import numpy as np
import pytest

import tagfill
from reference import worth
from tagfill.curation import Suggestions
from tagfill.curation.crossfit import HELD, divided, without
from tagfill.curation.suggest import suggest
from tagfill.dataset import Dataset
from tagfill.dataset.tables import from_records
from tagfill.errors import TagfillError


@pytest.fixture(scope="module")
def found(run, part, place):
    return tagfill.suggest(run, part, folds=2, minimum=0.0, missing=100_000, wrong=50, out=place / "folds", jobs=1)


def test_every_unknown_pair_is_suggested_once_and_no_other(found, part):
    table = found.suggestions.table.filter(np.array(found.suggestions.table["kind"].to_pylist()) == "missing")
    labels = part.labels("train").dense()
    assert table.num_rows == (labels == -1).sum()
    pairs = set(zip(table["image"].to_pylist(), table["label"].to_pylist(), strict=True))
    assert len(pairs) == table.num_rows
    known = {(part.names()[row], part.classes[c]) for row, c in zip(*np.nonzero(labels == 1), strict=True)}
    assert pairs.isdisjoint(known)
    assert table["probability"].to_pylist() == sorted(table["probability"].to_pylist(), reverse=True)


def test_it_measures_itself(found, part):
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
    table = suggest(run.folder, part, **settings).suggestions.table.to_pylist()
    missing = [row for row in table if row["kind"] == "missing"]
    expected = [worth.checking(row["probability"], shares[row["label"]]) for row in missing]
    assert [row["value"] for row in missing] == pytest.approx(expected, rel=1e-4)
    assert (np.diff([row["value"] for row in missing]) <= 0).all()


def test_calibration_is_reported(found):
    before, after = found.calibration
    assert 0 <= after < before


def test_the_second_time_nothing_is_trained(found, run, part, place):
    stamps = {path: path.stat().st_mtime_ns for path in (place / "folds").rglob("best/model.safetensors")}
    assert len(stamps) == 2
    again = suggest(run.folder, part, folds=2, minimum=0.0, missing=100_000, wrong=50, out=place / "folds", jobs=1)
    assert again.suggestions.table.equals(found.suggestions.table)
    assert {path: path.stat().st_mtime_ns for path in stamps} == stamps


def test_other_splits_are_asked_of_the_run_itself(run, part, cache):
    found = suggest(run.folder, part, split="test", features=cache.folder, minimum=0.0)
    assert found.folds == 0
    told = json.loads(json.dumps(found.to_json(), allow_nan=False))  # nothing is missing: no share of it is a number
    assert told["measured"]["recovered"] is told["measured"]["labels_per_hour_in_random_order"] is None
    with pytest.raises(TagfillError, match="Folds are of the training split"):
        suggest(run.folder, part, split="test", folds=3)
    with pytest.raises(TagfillError, match="a model without its recipe"):
        suggest(run.folder / "best", part)


def test_what_nobody_could_tell_is_not_suggested_again(run, part, cache, tmp_path):
    name = part.names(part.split("train"))[0]
    unknown = [c for c, known in zip(part.classes, part.labels("train").dense()[0], strict=True) if known == -1]
    row = {"image": name, "label": unknown[0], "present": None, "source": "review", "time": datetime.now(UTC)}
    data = part.replace(annotations=from_records([*part.rows().to_pylist(), row]), folder=None)
    data.save(tmp_path / "data")
    settings = {"folds": 0, "minimum": 0.0, "missing": 100_000, "features": cache.folder}
    found = suggest(run.folder, tmp_path / "data", **settings).suggestions.table
    suggested = set(zip(found["image"].to_pylist(), found["label"].to_pylist(), strict=True))
    assert (name, unknown[0]) not in suggested
    assert (name, unknown[1]) in suggested


def test_annotations_are_doubted_where_the_model_says_otherwise(run, part, cache, tmp_path):
    rows = part.rows().to_pylist()
    test = set(part.names(part.split("test")))
    for row in rows:
        if row["image"] in test:
            row["present"] = not row["present"]  # all of them wrong
    data = part.replace(annotations=from_records(rows), folder=None).save(tmp_path / "data")
    found = suggest(run.folder, data, split="test", features=cache.folder).suggestions.table.to_pylist()
    wrong = [row for row in found if row["kind"] == "wrong"]
    assert wrong
    assert all(row["annotated"] != (row["probability"] > 0.5) for row in wrong)


def test_folds_share_nothing_and_cover_all():
    parts = divided(11, 3, seed=5)
    assert sorted(np.concatenate(parts).tolist()) == list(range(11))
    assert sorted(map(len, parts)) == [3, 4, 4]
    assert not all(np.array_equal(a, b) for a, b in zip(parts, divided(11, 3, seed=6), strict=True))
    with pytest.raises(TagfillError, match="cannot be divided"):
        divided(2, 3, seed=0)


def test_a_fold_is_set_aside(part):
    rows = part.split("train")[:7]
    left = without(part, rows)
    assert left.split(HELD).tolist() == rows.tolist()
    assert len(left.split("train")) == len(part.split("train")) - 7
    assert left.identities["images"] == part.identities["images"]


def test_a_file_of_suggestions_remembers_its_run(found, run, tmp_path):
    found.suggestions.save(tmp_path / "s.parquet")
    assert Suggestions.read(tmp_path / "s.parquet").origin["run"] == str(run.folder.absolute())
