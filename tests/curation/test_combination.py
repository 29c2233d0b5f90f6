"""Model and evidence as one logit, and suggestions that use both."""

import re

import numpy as np
import pyarrow as pa
import pytest

from tagfill import Dataset
from tagfill.curation.combination import MODEL, Combination, open_standardized
from tagfill.curation.suggest import suggest
from tagfill.evidence import ScoreMatrix, import_scores
from tagfill.progress import SILENT

IMAGES, WIDTH = 400, 5


@pytest.fixture(scope="module")
def drawn():
    """Truth, two independent opinions of it, and one known tag of each image."""
    rng = np.random.default_rng(0)
    truth = rng.random((IMAGES, WIDTH)) < 0.3
    truth[np.arange(IMAGES), rng.integers(WIDTH, size=IMAGES)] = True
    model, tagger = (2.5 * truth - 2 + rng.normal(size=truth.shape) for _ in range(2))
    labels = np.full(truth.shape, -1, np.int8)
    for image, shown in enumerate(truth):
        labels[image, rng.choice(np.flatnonzero(shown))] = 1
    return truth, model, tagger, labels


def right(scores, truth, labels, first=200):
    unknown = labels == -1
    return int(truth[unknown][np.argsort(-scores[unknown], kind="stable")[:first]].sum())


def test_two_opinions_find_more_than_either(drawn):
    truth, model, tagger, labels = drawn
    every = np.arange(IMAGES)
    found = Combination.learn({"clip": ScoreMatrix.from_dense(tagger)}, every, model, lambda rows: labels[rows])
    assert found.shares.keys() == {MODEL, "clip"}
    assert 0.25 < found.shares["clip"] < 0.75
    both = right(found(every, model), truth, labels)
    assert both > max(right(model, truth, labels), right(tagger, truth, labels))


def test_noise_is_ignored(drawn):
    _, model, _, labels = drawn
    noise = ScoreMatrix.from_dense(np.random.default_rng(1).normal(size=model.shape))
    found = Combination.learn({"noise": noise}, np.arange(IMAGES), model, lambda rows: labels[rows])
    assert found.shares["noise"] < 0.2


def test_images_without_evidence_are_ranked_as_the_model_ranks_them(drawn):
    _, model, tagger, labels = drawn
    tagger = np.where(np.arange(IMAGES)[:, None] < 300, tagger, np.nan)
    found = Combination.learn({"clip": ScoreMatrix.from_dense(tagger)}, np.arange(IMAGES), model, lambda r: labels[r])
    rows = np.arange(300, IMAGES)
    combined = found(rows, model[rows])
    assert (np.argsort(combined, axis=None) == np.argsort(model[rows], axis=None)).all()
    assert found.covers(rows) == 0.0


def test_too_few_tags_teach_no_weights(drawn):
    _, model, tagger, labels = drawn
    few = np.where(np.arange(IMAGES)[:, None] < 5, labels, -1)
    assert Combination.learn({"a": ScoreMatrix.from_dense(tagger)}, np.arange(IMAGES), model, lambda r: few[r]) is None


@pytest.fixture(scope="module")
def told(part, tmp_path_factory):
    """The scenes with the scores of a tagger that is mostly right."""
    data = part.save(tmp_path_factory.mktemp("told") / "part")
    truth = Dataset.open(part.truth).labels().dense()
    scores = 0.25 + 0.03 * truth + 0.01 * np.random.default_rng(2).normal(size=truth.shape)
    table = pa.table({"image": data.names(), **dict(zip(data.classes, scores.T, strict=True))})
    import_scores(table, data, name="clip", scale="cosines")
    return data


class Said:
    """Progress that remembers what is said."""

    def __init__(self):
        self.lines = []

    def bar(self, name, total, unit):
        return SILENT.bar(name, total, unit)

    def say(self, text):
        self.lines.append(text)


@pytest.mark.parametrize(
    ("split", "reason"),
    [
        ("train", "the run was trained on these labels."),
        ("test", r"too few tags are known to learn how much it counts \(\d+; it takes about 100\)."),
    ],
)
def test_evidence_that_is_not_used_is_reported(told, run, cache, monkeypatch, split, reason):
    monkeypatch.setattr(Combination, "learn", lambda *_: None)
    said = Said()
    suggest(told, run.folder, split=split, folds=0, features=cache.folder, progress=said)
    assert [line for line in said.lines if re.fullmatch(rf"Evidence is not used \(clip\): {reason}", line)]


def test_suggestions_use_the_evidence_of_the_dataset(told, run, cache, place):
    shared = {
        "folds": 2,
        "out": place / "told-folds",
        "features": cache.folder,
        "jobs": 1,
        "missing": 60,
        "minimum": 0.0,
    }
    without = suggest(told, run.folder, evidence=[], **shared)
    found = suggest(told, run.folder, **shared)
    assert without.weights == {}
    assert found.weights["clip"] > 0.5
    assert found.to_json()["weights"] == dict(found.weights)
    assert found.measured.precision[60] > without.measured.precision[60] + 0.1
    assert found.calibration is not None
    assert list(open_standardized(told)) == ["clip"]
