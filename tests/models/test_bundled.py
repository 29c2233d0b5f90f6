from __future__ import annotations

import functools

import pytest
import torch
from safetensors.torch import save_file

from tagfill.errors import TagfillError
from tagfill.models import create_backbone, weights


@functools.cache
def model(**options) -> torch.nn.Module:
    import timm  # after tagfill, which lets it import torchvision

    return timm.create_model(weights.BUNDLED_BACKBONE, **options)


@pytest.fixture
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("TAGFILL_CACHE", str(tmp_path))
    return tmp_path


def test_weights_are_the_same_from_the_package_and_from_what_is_stored(cache, monkeypatch):
    from_package = weights.load_bundled_weights(model(), weights.BUNDLED_BACKBONE)

    def gone():
        raise AssertionError("the package is not needed any more")

    monkeypatch.setattr(weights, "_find_package_file", gone)
    stored = weights.load_bundled_weights(model(), weights.BUNDLED_BACKBONE)
    assert stored.keys() == from_package.keys()
    assert all(torch.equal(stored[name], from_package[name]) for name in stored)


def test_weights_are_those_of_the_package_file(cache):
    """By position: the tensors of the legacy file, in its order, under the names of timm."""
    legacy = torch.load(weights._find_package_file(), map_location="cpu", weights_only=True)
    found = weights.load_bundled_weights(model(), weights.BUNDLED_BACKBONE)
    for (name, expected), origin in zip(model().state_dict().items(), legacy.values(), strict=True):
        assert origin.shape == expected.shape
        assert name.startswith("classifier.") or torch.equal(found[name], origin)


def test_the_classifier_is_left_out(cache):
    assert not [
        name
        for name in weights.load_bundled_weights(model(), weights.BUNDLED_BACKBONE)
        if name.startswith("classifier.")
    ]


def test_a_damaged_package_file_is_refused(cache, tmp_path, monkeypatch):
    damaged = tmp_path / "damaged.pth"
    content = bytearray(weights._find_package_file().read_bytes())
    content[len(content) // 2] ^= 1
    damaged.write_bytes(content)
    monkeypatch.setattr(weights, "_find_package_file", lambda: damaged)
    with pytest.raises(TagfillError, match=r"damaged\.pth has sha256 .*, not the expected .*; reinstall the package"):
        weights.load_bundled_weights(model(), weights.BUNDLED_BACKBONE)
    assert not (cache / "weights").exists()


def test_a_model_of_other_shapes_is_refused(cache):
    wider = model(num_classes=7)
    with pytest.raises(TagfillError, match=r"has shape \(1000, 1280\), but classifier.weight needs \(7, 1280\)"):
        weights.load_bundled_weights(wider, weights.BUNDLED_BACKBONE)


def test_a_model_of_other_tensors_is_refused(cache):
    with pytest.raises(TagfillError, match="have 296 tensors, the model 294; use the pinned timm"):
        weights.load_bundled_weights(model(num_classes=0), weights.BUNDLED_BACKBONE)


def test_weights_of_another_backbone_are_refused():
    with pytest.raises(TagfillError, match="exist for tf_efficientnet_lite0 only, not for resnet18"):
        create_backbone("resnet18", pretrained="bundled")


def test_the_backbone_has_the_preprocessing_of_its_weights(cache):
    preprocessing = create_backbone(weights.BUNDLED_BACKBONE, pretrained="bundled", image_size=64).preprocessing
    assert preprocessing.mean == (127.0, 127.0, 127.0)
    assert preprocessing.std == (128.0, 128.0, 128.0)


@pytest.mark.parametrize("damage", ["one bit", "cut short", "another tensor"])
def test_a_damaged_copy_is_made_again(cache, damage):
    expected = weights.load_bundled_weights(model(), weights.BUNDLED_BACKBONE)
    (stored,) = (cache / "weights").iterdir()
    whole = stored.read_bytes()
    if damage == "one bit":
        stored.write_bytes(whole[:-1] + bytes([whole[-1] ^ 1]))
    elif damage == "cut short":
        stored.write_bytes(whole[: len(whole) // 2])
    else:
        save_file({"conv_stem.weight": torch.zeros(3)}, stored)
    again = weights.load_bundled_weights(model(), weights.BUNDLED_BACKBONE)
    assert all(torch.equal(again[name], value) for name, value in expected.items())
    assert stored.read_bytes() == whole
