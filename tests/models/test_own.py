"""Backbones that users register under names of their own."""

from __future__ import annotations

import pytest
import torch
from safetensors.torch import save_file
from torch import nn

import tagfill
from tagfill.errors import TagfillError
from tagfill.models import BACKBONES, Classifier, create, create_backbone

PIXELS = torch.randint(0, 256, (2, 3, 64, 96), dtype=torch.uint8, generator=torch.Generator().manual_seed(0))


def stripes() -> nn.Module:
    return nn.Sequential(nn.Conv2d(3, 8, kernel_size=16, stride=16), nn.ReLU())


@pytest.fixture(autouse=True)
def _registered(monkeypatch):
    monkeypatch.setitem(BACKBONES, "stripes", stripes)


def test_it_sees_pixels_between_zero_and_one_and_gives_its_grid():
    backbone = create_backbone("stripes", image_size=(64, 96)).eval()
    assert (backbone.channels, backbone.grid) == (8, (4, 6))
    torch.testing.assert_close(backbone(PIXELS), backbone.model.module(PIXELS / 255))


def test_its_random_weights_depend_on_the_seed():
    one, same, other = (create_backbone("stripes", image_size=64, seed=seed).fingerprint() for seed in (4, 4, 5))
    assert one == same != other


def test_a_name_of_your_own_comes_before_that_of_timm(monkeypatch):
    monkeypatch.setitem(BACKBONES, "resnet18", stripes)
    assert create_backbone("resnet18", image_size=64).channels == 8


def test_weights_of_a_file_have_the_names_of_the_module(tmp_path):
    state = {name: torch.full_like(value, 0.5) for name, value in stripes().state_dict().items()}
    save_file(state, tmp_path / "weights.safetensors")
    backbone = create_backbone("stripes", pretrained=str(tmp_path / "weights.safetensors"), image_size=64)
    assert backbone.model.module[0].weight.unique().tolist() == [0.5]
    save_file({"0.weight": state["0.weight"]}, tmp_path / "half.safetensors")
    with pytest.raises(TagfillError, match=r"lack .*0\.bias"):
        create_backbone("stripes", pretrained=str(tmp_path / "half.safetensors"), image_size=64)


@pytest.mark.parametrize("pretrained", [True, "bundled"])
def test_weights_that_it_cannot_have_are_refused(pretrained):
    with pytest.raises(TagfillError, match=r"give (the path of )?a safetensors file"):
        create_backbone("stripes", pretrained=pretrained)


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda: 3, "of type int; register a subclass"),
        (lambda: nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Flatten()), "no grid of features"),
        (lambda: nn.Conv2d(3, 8, kernel_size=300), "does not take images of 224×224"),
    ],
)
def test_what_is_no_backbone_is_refused_in_a_sentence(make, said, monkeypatch):
    monkeypatch.setitem(BACKBONES, "wrong", make)
    with pytest.raises(TagfillError, match=said):
        create_backbone("wrong")


def test_a_saved_model_is_loaded_where_the_name_is_registered_and_nowhere_else(tmp_path, monkeypatch):
    model = create("stripes", "cam", ["cat", "dog"], image_size=(64, 96)).eval()
    model.save(tmp_path / "model")
    again = Classifier.load(tmp_path / "model")
    torch.testing.assert_close(again(PIXELS, maps=True).maps, model(PIXELS, maps=True).maps)
    monkeypatch.delitem(BACKBONES, "stripes")
    with pytest.raises(TagfillError, match="There is no backbone 'stripes'"):
        Classifier.load(tmp_path / "model")


def test_it_caches_trains_predicts_and_exports_like_any_other(tmp_path):
    data = tagfill.scenes.make(tmp_path / "scenes", train=12, val=4, test=4, size=64)
    of_it = {"backbone": "stripes", "pretrained": False, "image_size": 64}
    cache = tagfill.features(data, out=tmp_path / "cache", views="eval", **of_it)
    run = tagfill.train(data, method="bce", features=cache, epochs=1, out=tmp_path / "run", **of_it)
    by_torch = list(tagfill.predict(run, data, split="test"))
    tagfill.export(run, tmp_path / "model.onnx", maps=True)
    by_onnx = list(tagfill.predict(tmp_path / "model.onnx", data, split="test"))
    assert len(by_torch) == 4
    for one, other in zip(by_torch, by_onnx, strict=True):
        assert one.scores == pytest.approx(other.scores, abs=1e-5)
