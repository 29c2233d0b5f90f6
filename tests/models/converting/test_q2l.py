from __future__ import annotations

import argparse

import numpy as np
import pytest
import torch

from models.converting import published
from reference.query import query2label
from tagfill.errors import TagfillError
from tagfill.models import Classifier
from tagfill.models.convert import CONVERTERS
from tagfill.models.published_weights import read_checkpoint

CLASSES = ["cat", "dog", "owl"]
PIXELS = torch.randint(0, 256, (2, 3, 64, 64), dtype=torch.uint8, generator=torch.Generator().manual_seed(0))
PLACES = {
    "transformer.encoder.layers.": "encoder.",
    "transformer.decoder.layers.": "decoder.",
    "transformer.decoder.norm.": "norm.",
    "query_embed.weight": "queries",
    "fc.W": "weight",
    "fc.b": "bias",
}


def converted(state, tmp_path, settings=None, **options) -> Classifier:
    content = {"epoch": 7, "state_dict": {f"module.{name}": value for name, value in state.items()}}
    torch.save(content | ({"args": argparse.Namespace(**settings)} if settings else {}), tmp_path / "q2l.pth")
    return CONVERTERS["q2l"](read_checkpoint(tmp_path / "q2l.pth"), CLASSES, **options)


def reference_logits(state, features, heads: int) -> list[np.ndarray]:
    """NumPy on the weights of the file itself."""
    weights = {}
    for name, value in published.as_arrays(state).items():
        for origin, place in PLACES.items():
            name = name.replace(origin, place)
        weights[name] = value[0] if name in ("weight", "bias") else value
    if "input_proj.weight" in weights:
        weights["input_proj.weight"] = weights["input_proj.weight"][:, :, 0, 0]
    return [query2label(image, weights, heads)[0] for image in features.double().numpy()]


@pytest.mark.parametrize("among", [(False, False), (True, True), (True, False), (False, True, True)])
def test_logits_are_those_of_the_published_model(tmp_path, among):
    network = published.resnet()
    state = published.q2l(network, 3, among=among)
    model = converted(state, tmp_path, {"nheads": 2, "img_size": 64})
    expected = reference_logits(state, published.grid_of(network, PIXELS), heads=2)
    with torch.no_grad():
        np.testing.assert_allclose(model(PIXELS).logits, expected, rtol=1e-5, atol=1e-5)
    assert model.backbone.name == "resnet18"


def test_without_a_projection_the_width_is_that_of_the_features(tmp_path):
    network = published.resnet()
    state = published.q2l(network, 3, width=512, ffn=8, project=False, among=(False,))
    model = converted(state, tmp_path)
    expected = reference_logits(state, published.grid_of(network, PIXELS), heads=4)
    with torch.no_grad():
        np.testing.assert_allclose(model(PIXELS).logits, expected, rtol=1e-4, atol=1e-4)


def test_the_size_follows_from_the_saved_positions(tmp_path):
    model = converted(published.q2l(published.resnet(), 3, among=(False,)), tmp_path)
    assert model.backbone.preprocessing.size == (64, 64)
    assert model.head.heads == 4


def test_given_options_outdo_saved_settings(tmp_path):
    state = published.q2l(published.resnet(), 3, among=(False,))
    model = converted(state, tmp_path, {"nheads": 2, "img_size": 64}, heads=8, image_size=96)
    assert model.head.heads == 8
    assert model.backbone.preprocessing.size == (96, 96)


def test_pixels_are_normalized_as_the_settings_say(tmp_path):
    network = published.resnet()
    state = published.q2l(network, 3, among=(False,))
    model = converted(state, tmp_path, {"nheads": 4, "orid_norm": True})
    features = published.grid_of(network, PIXELS, mean=torch.zeros(3), std=torch.ones(3))
    with torch.no_grad():
        torch.testing.assert_close(model.backbone(PIXELS), features, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ({"fc.W": None}, r"lacks fc\.W\."),
        (
            {"transformer.decoder.layers.0.linear1.weight": None},
            r"lacks transformer\.decoder\.layers\.0\.linear1\.weight",
        ),
        ({"transformer.decoder.norm.bias": None}, r"lacks weights for head\.norm\.bias"),
        (
            {"query_embed.weight": torch.zeros(3, 8)},
            r"query_embed\.weight of shape \(3, 8\); this model needs \(3, 16\)",
        ),
        ({"transformer.level_embed": torch.zeros(1)}, r"has transformer\.level_embed, which this model does not have"),
        (
            {"backbone.0.body.fc.weight": torch.zeros(1)},
            r"has backbone\.0\.body\.fc\.weight, which this model does not have",
        ),
    ],
)
def test_every_tensor_has_its_place(tmp_path, change, problem):
    state = published.q2l(published.resnet(), 3, among=(False,)) | change
    with pytest.raises(TagfillError, match=problem):
        converted({name: value for name, value in state.items() if value is not None}, tmp_path)


def test_another_backbone_is_refused(tmp_path):
    state = published.q2l_without_backbone(3, 512, grid=(2, 2)) | {"backbone.0.blocks.0.norm1.weight": torch.ones(8)}
    with pytest.raises(
        TagfillError, match="only Query2Label with a ResNet, TResNet, Swin transformer or CvT is supported"
    ):
        converted(state, tmp_path)


def test_published_settings_are_read_from_their_own_file(tmp_path):
    state = published.q2l(published.resnet(), 3, among=(False,))
    (tmp_path / "config.json").write_text('{"nheads": 8, "img_size": 96, "orid_norm": true}', encoding="utf-8")
    model = converted(state, tmp_path, {"nheads": 2, "img_size": 64}, config=tmp_path / "config.json")
    assert model.head.heads == 8
    assert model.backbone.preprocessing.size == (96, 96)
    assert model.backbone.preprocessing.mean == (0, 0, 0)


def test_settings_that_cannot_be_read_are_refused(tmp_path):
    state = published.q2l(published.resnet(), 3, among=(False,))
    (tmp_path / "config.json").write_text("[1]", encoding="utf-8")
    with pytest.raises(TagfillError, match=r"config\.json cannot be read: it is \[1\] \(Input should be an object"):
        converted(state, tmp_path, config=tmp_path / "config.json")
    with pytest.raises(TagfillError, match=r"gone\.json cannot be read: No such file"):
        converted(state, tmp_path, config=tmp_path / "gone.json")


def test_the_input_need_not_be_a_square(tmp_path):
    network = published.resnet()
    state = published.q2l(network, 3, among=(False,))
    model = converted(state, tmp_path, image_size=(64, 96))
    pixels = torch.cat([PIXELS, PIXELS[..., :32]], -1)
    expected = reference_logits(state, published.grid_of(network, pixels), heads=4)
    assert model.backbone.preprocessing.size == (64, 96)
    with torch.no_grad():
        np.testing.assert_allclose(model(pixels).logits, expected, rtol=1e-4, atol=1e-4)


def test_norms_before_attention_are_refused(tmp_path):
    with pytest.raises(TagfillError, match="was trained with pre_norm, which the query head does not have"):
        converted(published.q2l(published.resnet(), 3, among=(False,)), tmp_path, {"pre_norm": True})
