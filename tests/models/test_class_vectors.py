"""Heads that begin with text vectors: without training, their logits are scaled cosines."""

from __future__ import annotations

import json

import numpy as np
import pytest
import torch
from safetensors.torch import save_file

from tagfill.errors import TagfillError
from tagfill.models import Classifier, create, create_backbone
from tagfill.models.class_vectors import read_class_vectors, write_class_vectors

CLASSES = ["cat", "dog", "größe 1"]
BACKBONE = "vit_xsmall_patch16_clip_224_joint"  # texts of 512 numbers, as published with CLIP's ViT-B
PIXELS = torch.randint(0, 256, (2, 3, 32, 48), dtype=torch.uint8, generator=torch.Generator().manual_seed(0))


def cosine(one, other):
    return float(np.dot(one, other) / np.linalg.norm(one) / np.linalg.norm(other))


@pytest.fixture(scope="module")
def texts(tmp_path_factory):
    """Random text vectors of any length, of more classes than are needed and in another order."""
    path = tmp_path_factory.mktemp("texts") / "texts.safetensors"
    vectors = np.random.default_rng(0).normal(size=(4, 512)).astype(np.float32)
    write_class_vectors(path, ["dog", "owl", "größe 1", "cat"], vectors)
    return str(path), dict(zip(["dog", "owl", "größe 1", "cat"], vectors, strict=True))


@pytest.fixture(scope="module")
def tower():
    """What timm's tower itself says about the pixels: B×D image vectors."""
    backbone = create_backbone(BACKBONE, image_size=(32, 48)).eval()
    with torch.no_grad():
        return backbone.model.tower((PIXELS - backbone.mean) / backbone.std).numpy()


def test_untrained_logits_of_the_image_vector_are_scaled_cosines(texts, tower):
    path, vectors = texts
    options = {"pool": "token", "init": "text", "vectors": path, "text_scale": 40.0, "text_bias": -10.0}
    model = create(BACKBONE, "linear", CLASSES, image_size=(32, 48), **options).eval()
    with torch.no_grad():
        found = model(PIXELS).logits.numpy()
    expected = [[40.0 * cosine(image, vectors[name]) - 10.0 for name in CLASSES] for image in tower]
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-4)


def test_untrained_class_maps_are_scaled_cosines_of_the_cells(texts):
    path, vectors = texts
    model = create(BACKBONE, "cam", CLASSES, image_size=(32, 48), init="text", vectors=path).eval()
    with torch.no_grad():
        prediction = model(PIXELS, maps=True)
        cells = model.backbone(PIXELS).numpy()
    assert prediction.maps.shape == (2, 3, 2, 3)
    for label, name in enumerate(CLASSES):
        expected = 100.0 * cosine(cells[1, :, 0, 2], vectors[name]) - 25.0
        assert prediction.maps[1, label, 0, 2].item() == pytest.approx(expected, abs=1e-3)
    torch.testing.assert_close(prediction.logits, prediction.maps.mean((2, 3)), rtol=1e-4, atol=1e-4)


def test_the_dual_head_compares_a_class_with_the_mean_of_all(texts):
    path, vectors = texts
    options = {"init": "text", "vectors": path, "sharpness": 0.0}
    model = create(BACKBONE, "dual", CLASSES, image_size=(32, 48), **options).eval()
    with torch.no_grad():
        found = model(PIXELS).logits[0].numpy()
        cells = model.backbone(PIXELS)[0].flatten(1).T.numpy()
    units = [vectors[name] / np.linalg.norm(vectors[name]) for name in CLASSES]
    for label, unit in enumerate(units):
        each = [100 * (cosine(cell, unit) - cosine(cell, np.mean(units, axis=0))) for cell in cells]
        assert found[label] == pytest.approx(np.mean(each), abs=1e-3)


def test_a_saved_model_does_not_need_the_vectors_again(texts, tmp_path):
    _, vectors = texts
    copy = tmp_path / "copy.safetensors"
    write_class_vectors(copy, list(vectors), np.stack(list(vectors.values())))
    model = create(BACKBONE, "cam", CLASSES, image_size=(32, 48), init="text", vectors=str(copy)).eval()
    model.save(tmp_path / "model")
    copy.unlink()
    assert "vectors" not in json.loads((tmp_path / "model" / "model.json").read_text())["head_options"]
    loaded = Classifier.load(tmp_path / "model")
    assert torch.equal(loaded(PIXELS).logits, model(PIXELS).logits)
    with pytest.raises(TagfillError, match=f"There is no file {copy} of text vectors"):
        create(BACKBONE, "cam", CLASSES, image_size=(32, 48), init="text", vectors=str(copy))


def test_features_of_another_size_are_refused(texts):
    with pytest.raises(
        TagfillError, match=r"'cat' in .* has 512 numbers, but features of the backbone test_vit have 64"
    ):
        create("test_vit", "cam", CLASSES, image_size=32, init="text", vectors=texts[0])


def test_mistakes_are_sentences(texts, tmp_path):
    with pytest.raises(TagfillError, match="init=text needs the text vectors of the classes"):
        create("test_vit", "linear", CLASSES, image_size=32, init="text")
    with pytest.raises(TagfillError, match="has no vector of the class 'hen'"):
        read_class_vectors(texts[0], ["cat", "hen"], 512, "x")
    (tmp_path / "no.safetensors").write_bytes(b"nothing")
    with pytest.raises(TagfillError, match="cannot be read as a safetensors file of text vectors"):
        read_class_vectors(tmp_path / "no.safetensors", ["cat"], 512, "x")
    save_file({"cat": torch.zeros(4)}, tmp_path / "zero.safetensors")
    with pytest.raises(TagfillError, match="is zero or not finite"):
        read_class_vectors(tmp_path / "zero.safetensors", ["cat"], 4, "x")
    with pytest.raises(TagfillError, match="'init'"):
        create("test_vit", "tscam", CLASSES, image_size=32, init="text", vectors=texts[0])
