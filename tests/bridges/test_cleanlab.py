"""Cleanlab judges arrays that Tagfill made, and its issues come back as suggestions."""

from __future__ import annotations

import numpy as np
import pytest
from cleanlab.multilabel_classification.filter import find_multilabel_issues_per_class

from tagfill import features, scenes, train
from tagfill.curation.cleanlab import arrays, issues_as_suggestions
from tagfill.curation.suggestions import Suggestions
from tagfill.errors import TagfillError

pytestmark = pytest.mark.filterwarnings("ignore:May not flag all label issues")  # there are few images


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    return tmp_path_factory.mktemp("cleanlab")


@pytest.fixture(scope="module")
def data(place):
    """Complete labels, except the first label of each tenth image, which is unknown."""
    full = scenes.make(place / "scenes", train=80, val=20, test=10, size=64)
    rows = full.rows().to_pylist()
    hidden = dict.fromkeys(full.names(full.split("train"))[::10], full.classes[0])
    kept = [row for row in rows if hidden.get(row["image"]) != row["label"]]
    return full.from_records(full.name, full.root, full.classes, full.images.to_pylist(), kept).save(place / "data")


@pytest.fixture(scope="module")
def given(place, data):
    cache = features(data, backbone="resnet10t", pretrained=False, image_size=64, views="eval", out=place / "cache")
    run = train(
        data, method="ignore", backbone="resnet10t", pretrained=False, features=cache, epochs=2, out=place / "run"
    )
    return arrays(data, run, folds=2, jobs=1)


def test_arrays_are_those_of_the_labeled_images(data, given):
    assert sorted(given.rows.tolist()) == sorted(data.split("train").tolist())
    states = data.labels().rows(given.rows)
    assert (given.states == states).all()
    assert given.labels == [np.flatnonzero(row == 1).tolist() for row in states]
    assert given.pred_probs.shape == states.shape
    assert ((given.pred_probs > 0) & (given.pred_probs < 1)).all()


def test_issues_come_back_as_suggestions_of_known_labels(place, data, given):
    mask = np.asarray(find_multilabel_issues_per_class(given.labels, given.pred_probs, n_jobs=1))
    known = mask & (given.states >= 0)
    assert known.any()
    found = issues_as_suggestions(data, given, mask)
    pairs = set(zip(found.table["image"].to_pylist(), found.table["label"].to_pylist(), strict=True))
    names = data.names(given.rows)
    assert pairs == {(names[image], data.classes[label]) for image, label in np.argwhere(known)}
    probability = np.array(found.table["probability"].to_pylist())
    doubt = np.where(found.table["annotated"].to_pylist(), 1 - probability, probability)
    assert (np.diff(doubt) <= 1e-6).all()
    found.save(place / "issues.parquet")
    assert len(Suggestions.read(place / "issues.parquet", data)) == len(found)


def test_ranked_issues_mean_the_same(data, given):
    mask = np.asarray(find_multilabel_issues_per_class(given.labels, given.pred_probs, n_jobs=1))
    ranked, *_ = find_multilabel_issues_per_class(
        given.labels, given.pred_probs, return_indices_ranked_by="self_confidence", n_jobs=1
    )
    assert issues_as_suggestions(data, given, ranked).table == issues_as_suggestions(data, given, mask).table


def test_issues_of_another_shape_are_refused(data, given):
    with pytest.raises(TagfillError, match=r"bool of the shape \(80, \d+\)"):
        issues_as_suggestions(data, given, np.zeros((3, 2), bool))
