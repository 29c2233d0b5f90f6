from __future__ import annotations

import argparse

import numpy as np
import pytest
import torch

from models import published, published_backbones
from reference.cvt import cvt
from reference.query import query2label
from reference.swin import swin
from reference.tresnet import tresnet
from tagfill.errors import TagfillError
from tagfill.models import Classifier, convert_q2l
from tagfill.models.backbone import _bare_model
from tagfill.models.convert import CONVERTERS
from tagfill.models.published_weights import read_published_weights

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
    return CONVERTERS["q2l"](read_published_weights(tmp_path / "q2l.pth"), CLASSES, **options)


def reference_logits(state, features, heads: int) -> list[np.ndarray]:
    """Logits computed with NumPy from the weights of the file."""
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


def test_given_options_override_saved_settings(tmp_path):
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
def test_missing_and_unknown_tensors_are_refused(tmp_path, change, problem):
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


# Query2Label with TResNet, Swin and CvT: logits compared with the reference, which does not use our models.


SWIN_TINY = (96, (2, 2, 6, 2), (3, 6, 12, 24), 7)


def pixels_of(side: int) -> torch.Tensor:
    return torch.randint(0, 256, (2, 3, side, side), dtype=torch.uint8, generator=torch.Generator().manual_seed(0))


def normalized(pixels: torch.Tensor) -> torch.Tensor:
    return (pixels / 255 - published.MEAN.view(1, 3, 1, 1)) / published.STD.view(1, 3, 1, 1)


def a_file(body: dict[str, torch.Tensor], prefix: str, channels: int, grid: int) -> dict[str, torch.Tensor]:
    torch.manual_seed(0)
    head = published.q2l_without_backbone(3, channels, grid=(grid, grid))
    return head | {f"{prefix}{name}": value for name, value in body.items()}


def check(model, pixels, state, grid) -> None:
    """Compare features and logits."""
    with torch.no_grad():
        torch.testing.assert_close(model.backbone(pixels), grid, rtol=1e-3, atol=1e-3)
        np.testing.assert_allclose(model(pixels).logits, reference_logits(state, grid, 4), rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize(
    ("name", "depths", "deep"), [("tresnet_m", (3, 4, 11, 3), False), ("tresnet_v2_l", (3, 4, 23, 3), True)]
)
def test_a_tresnet_with_in_place_norms(tmp_path, name, depths, deep):
    body = published_backbones.filled(published_backbones.tresnet(64, depths, deep=deep))
    assert any((value < -0.1).any() for place, value in body.items() if place.endswith("conv1.1.weight"))
    state = a_file(body, "backbone.0.body.", 2048, 2)
    model = converted(state, tmp_path, {"nheads": 4, "orid_norm": True})
    pixels = pixels_of(64)
    assert (model.backbone.name, model.backbone.preprocessing.size) == (name, (64, 64))
    check(model, pixels, state, tresnet(pixels / 255, body))


def test_a_tresnet_does_not_guess_how_pixels_are_normalized(tmp_path):
    body = published_backbones.filled(published_backbones.tresnet(64, (3, 4, 11, 3)))
    with pytest.raises(TagfillError, match="does not say how pixels are normalized"):
        converted(a_file(body, "backbone.0.body.", 2048, 2), tmp_path, {"nheads": 4})


def test_a_swin_transformer(tmp_path):
    body = published_backbones.filled(published_backbones.swin(*SWIN_TINY))
    state = a_file(body | published_backbones.swin_buffers(SWIN_TINY[1], 7), "backbone.0.", 768, 7)
    model = converted(state, tmp_path)
    pixels = pixels_of(224)
    assert (model.backbone.name, model.backbone.preprocessing.size) == ("swin_tiny_patch4_window7_224", (224, 224))
    body_only = {name: value for name, value in state.items() if not name.endswith(("_index", "attn_mask"))}
    check(model, pixels, body_only, swin(normalized(pixels), body, window=7))


def test_a_cvt_with_its_last_norm_on_each_cell(tmp_path):
    body = published_backbones.filled(published_backbones.cvt((64, 192, 384), (1, 2, 10)))
    state = a_file(body, "backbone.0.", 384, 4)
    model = converted(state, tmp_path)
    pixels = pixels_of(64)
    assert (model.backbone.name, model.backbone.preprocessing.size) == ("cvt_13_q2l", (64, 64))
    check(model, pixels, state, cvt(normalized(pixels), body, heads=(1, 3, 6)))


@pytest.mark.parametrize(
    ("name", "prefix", "shapes"),
    [
        ("tresnet_l", "backbone.0.body.", published_backbones.tresnet(76, (4, 5, 18, 3))),
        ("tresnet_xl", "backbone.0.body.", published_backbones.tresnet(83, (4, 5, 24, 3))),
        (
            "swin_large_patch4_window12_384",
            "backbone.0.",
            published_backbones.swin(192, (2, 2, 18, 2), (6, 12, 24, 48), 12),
        ),
        ("cvt_w24_q2l", "backbone.0.", published_backbones.cvt((192, 768, 1024), (2, 2, 20))),
    ],
)
def test_every_tensor_of_the_large_models_is_mapped(tmp_path, name, prefix, shapes):
    """Names and shapes of the published sizes, without values."""
    weights = {place: torch.empty(shape, device="meta") for place, shape in shapes.items()}
    family = convert_q2l.identify_family(tmp_path, {prefix + place: value for place, value in weights.items()})
    assert family.identify(tmp_path, weights) == name
    found = {target: tuple(value.shape) for _, target, value in family.rename(weights)}
    with torch.device("meta"):
        model = _bare_model(name, False, None)
        model.reset_classifier(0)
    wanted = {place: tuple(value.shape) for place, value in model.state_dict().items()}
    counts = {place for place in wanted if place.endswith("num_batches_tracked") and place not in found}
    assert found == {place: shape for place, shape in wanted.items() if place not in counts}


@pytest.mark.parametrize(
    ("shapes", "prefix", "problem"),
    [
        (
            published_backbones.tresnet(64, (1, 1, 1, 1)),
            "backbone.0.body.",
            r"TResNet.* stages have \(1, 1, 1, 1\) blocks",
        ),
        (published_backbones.swin(96, (2, 2, 2, 2), (3, 6, 12, 24), 7), "backbone.0.", "Swin.* windows have side 7"),
        (
            published_backbones.cvt((8, 8, 8), (1, 1, 1)),
            "backbone.0.",
            r"CvT.* \(1, 1, 1\) blocks of width \(8, 8, 8",
        ),
    ],
)
def test_other_sizes_are_refused(tmp_path, shapes, prefix, problem):
    weights = {place: torch.empty(shape, device="meta") for place, shape in shapes.items()}
    family = convert_q2l.identify_family(tmp_path, {prefix + place: value for place, value in weights.items()})
    with pytest.raises(TagfillError, match=problem):
        family.identify(tmp_path, weights)
