from __future__ import annotations

import json

import numpy as np
import pytest
import torch
from torch import nn

from tagfill.errors import TagfillError
from tagfill.models import create_backbone
from tagfill.models.tfjs_resnet import convert_tfjs_resnet, create_resnet_v1

KERAS_LETTERS = "abcdef"


def keras_tensors() -> dict[str, np.ndarray]:
    """Every tensor of Keras's ResNet-50 by its published name, with two channels each and three in the input."""
    rng = np.random.default_rng(0)
    pairs = [("conv1", "bn_conv1", 7)]
    for stage, blocks in ((2, 3), (3, 4), (4, 6), (5, 3)):
        for block in KERAS_LETTERS[:blocks]:
            parts = [("2a", 1), ("2b", 3), ("2c", 1), *([("1", 1)] if block == "a" else [])]
            pairs += [
                (f"res{stage}{block}_branch{part}", f"bn{stage}{block}_branch{part}", side) for part, side in parts
            ]
    tensors = {}
    for conv, norm, side in pairs:
        tensors[f"{conv}/kernel"] = rng.normal(size=(side, side, 3 if conv == "conv1" else 2, 2))
        for name in (f"{conv}/bias", f"{norm}/gamma", f"{norm}/beta", f"{norm}/moving_mean"):
            tensors[name] = rng.normal(size=2)
        tensors[f"{norm}/moving_variance"] = rng.uniform(0, 0.1, size=2)
    tensors |= {"fc1000/kernel": rng.normal(size=(2, 5)), "fc1000/bias": rng.normal(size=5)}
    return {name: value.astype(np.float32) for name, value in tensors.items()}


def write(folder, tensors, dtype="float32") -> None:
    folder.mkdir(exist_ok=True)
    content = b"".join(value.tobytes() for value in tensors.values())
    for number, part in enumerate((content[:1001], content[1001:])):
        (folder / f"shard{number}.bin").write_bytes(part)
    weights = [{"name": name, "shape": list(value.shape), "dtype": dtype} for name, value in tensors.items()]
    manifest = [{"paths": ["shard0.bin", "shard1.bin"], "weights": weights}]
    (folder / "model.json").write_text(json.dumps({"weightsManifest": manifest}), encoding="utf-8")


def test_names_are_those_of_the_model_and_outputs_those_of_keras(tmp_path):
    tensors = keras_tensors()
    assert len(tensors) == 320
    write(tmp_path / "ResNet50", tensors)
    state = convert_tfjs_resnet(tmp_path / "ResNet50")
    assert state.keys() == create_resnet_v1().state_dict().keys()

    pixels = np.random.default_rng(1).normal(size=(7, 7, 3)).astype(np.float32)  # red, green, blue
    kernel, bias = tensors["conv1/kernel"], tensors["conv1/bias"]
    convolved = np.einsum("hwc,hwco->o", pixels[..., ::-1], kernel) + bias
    deviation = np.sqrt(tensors["bn_conv1/moving_variance"] + 1e-3)
    standardized = (convolved - tensors["bn_conv1/moving_mean"]) / deviation
    expected = tensors["bn_conv1/gamma"] * standardized + tensors["bn_conv1/beta"]

    first = nn.Sequential(nn.Conv2d(3, 2, 7, bias=False), nn.BatchNorm2d(2)).eval()
    first[0].load_state_dict({"weight": state["conv1.weight"]})
    first[1].load_state_dict({key.removeprefix("bn1."): state[key] for key in state if key.startswith("bn1.")})
    with torch.no_grad():
        found = first(torch.from_numpy(pixels).permute(2, 0, 1)[None])
    np.testing.assert_allclose(found.ravel(), expected, rtol=1e-4, atol=1e-4)


def test_strides_and_preprocessing_are_those_of_keras():
    backbone = create_backbone("resnet50_v1", image_size=64)
    strides = [(block[0].conv1.stride, block[0].conv2.stride) for block in list(backbone.model.children())[4:8]]
    assert strides == [((1, 1), (1, 1))] + 3 * [((2, 2), (1, 1))]
    assert backbone.preprocessing.mean == pytest.approx((123.68, 116.779, 103.939))
    assert backbone.preprocessing.std == pytest.approx((1, 1, 1))
    with pytest.raises(TagfillError, match="timm has no weights for resnet50_v1; convert Keras's with 'tagfill conv"):
        create_backbone("resnet50_v1", pretrained=True)


def test_damaged_and_other_models_are_refused(tmp_path):
    folder, tensors = tmp_path / "model", keras_tensors()
    with pytest.raises(TagfillError, match=r"There is no file .*model; give the folder of a TensorFlow\.js model"):
        convert_tfjs_resnet(folder)
    write(folder, tensors, dtype="uint8")
    with pytest.raises(TagfillError, match=r"is not the model\.json of a float32 model: .*dtype"):
        convert_tfjs_resnet(folder)
    write(folder, tensors | {"lstm/kernel": np.zeros(1, np.float32)})
    with pytest.raises(TagfillError, match="is not Keras's ResNet-50: it has a tensor lstm/kernel"):
        convert_tfjs_resnet(folder / "model.json")
    write(folder, {name: value for name, value in tensors.items() if name != "res5c_branch2c/bias"})
    with pytest.raises(TagfillError, match="is not Keras's ResNet-50: it has no tensor res5c_branch2c/bias"):
        convert_tfjs_resnet(folder)
    write(folder, tensors)
    (folder / "shard1.bin").write_bytes(b"")
    with pytest.raises(TagfillError, match=r"have 1,001 bytes instead of .*; unpack them again"):
        convert_tfjs_resnet(folder)
    (folder / "shard1.bin").unlink()
    with pytest.raises(TagfillError, match=r"There is no shard shard1\.bin in "):
        convert_tfjs_resnet(folder)
    manifest = json.loads((folder / "model.json").read_text(encoding="utf-8"))
    manifest["weightsManifest"][0]["paths"][0] = "../model/shard0.bin"
    (folder / "model.json").write_text(json.dumps(manifest), encoding="utf-8")
    with pytest.raises(TagfillError, match=r"There is no shard \.\./model/shard0\.bin in "):
        convert_tfjs_resnet(folder)
