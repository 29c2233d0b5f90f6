"""Backbones: from pixels to a grid of features, through timm."""

from __future__ import annotations

import difflib
import hashlib
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file
from torch import Tensor, nn

import tagfill.torchvision_remedy  # noqa: F401  (before timm, which imports torchvision)
from tagfill.draws import seed_of
from tagfill.errors import TagfillError, unknown_name
from tagfill.models import bundled


@dataclass(frozen=True)
class Preprocessing:
    """How pixels in 0..255 become network input: resized to `size` (height, width), then (x − mean) / std."""

    size: tuple[int, int]
    mean: tuple[float, float, float]
    std: tuple[float, float, float]

    def to_json(self) -> dict[str, Any]:
        """As plain lists and numbers."""
        return {name: list(value) for name, value in asdict(self).items()}

    @classmethod
    def from_json(cls, content: dict[str, Any]) -> Preprocessing:
        """Back from `to_json`."""
        return cls(**{name: tuple(value) for name, value in content.items()})


class Backbone(nn.Module):
    """A timm model that gives its last feature grid.

    Attributes:
        name: timm's name.
        preprocessing: what the weights expect.
        grid: rows and columns of the features.
        channels: D.
        bound: the largest value a feature can take, if there is one.
    """

    def __init__(self, name: str, model: Any, preprocessing: Preprocessing) -> None:
        super().__init__()
        self.name = name
        self.model = _without_copies(model.to(memory_format=torch.channels_last))
        self.preprocessing = preprocessing
        self.mean: Tensor
        self.std: Tensor
        self.register_buffer("mean", torch.tensor(preprocessing.mean).view(1, 3, 1, 1), persistent=False)
        self.register_buffer("std", torch.tensor(preprocessing.std).view(1, 3, 1, 1), persistent=False)
        shape = self._probe()
        self.channels, self.grid = shape[0], (shape[1], shape[2])
        self.bound = 6.0 if isinstance(_last_activation(model), nn.ReLU6) else None

    def forward(self, pixels: Tensor) -> Tensor:
        """Features of uint8 pixels: B×3×H×W to B×D×G×G."""
        scaled = (pixels.to(self.mean.dtype) - self.mean) / self.std
        features: Tensor = self.model.forward_features(scaled.contiguous(memory_format=torch.channels_last))
        return features

    @torch.inference_mode()
    def pooled(self, pixels: Tensor) -> Tensor:
        """The mean over cells of each image's features, B×D float32, without a gradient."""
        features: Tensor = self(pixels)
        return features.float().mean((2, 3))

    def fingerprint(self) -> str:
        """A hash of the weights and the preprocessing, which feature caches depend on."""
        digest = hashlib.sha256(repr((self.name, self.preprocessing)).encode())
        for key, value in sorted(self.model.state_dict().items()):
            digest.update(key.encode())
            digest.update(value.detach().cpu().contiguous().numpy().tobytes())
        return digest.hexdigest()

    @torch.no_grad()
    def _probe(self) -> tuple[int, int, int]:
        training = self.model.training
        self.model.eval()
        features = self(torch.zeros(1, 3, *self.preprocessing.size, dtype=torch.uint8))
        self.model.train(training)
        channels_last = self.model.num_features == features.shape[-1] != features.shape[1]
        if features.ndim != 4 or channels_last:
            raise TagfillError(
                f"The backbone {self.name} gives features of shape {tuple(features.shape)}, not a grid with "
                "channels first; choose one that does, such as tf_efficientnet_lite0, resnet50 or convnext_tiny."
            )
        return features.shape[1], features.shape[2], features.shape[3]


def create_backbone(
    name: str, *, pretrained: bool | str = False, image_size: int | None = None, seed: int = 0
) -> Backbone:
    """A timm backbone with the weights asked for.

    Args:
        name: timm's name of the model.
        pretrained: True for timm's own weights from its hub, `"bundled"` for those of the extra `pretrained`, the
            path of a safetensors file, or False for random ones.
        image_size: side of the square input; None takes the model's own.
        seed: of random weights.
    """
    import timm

    if not timm.is_model(name):
        near = difflib.get_close_matches(name, timm.list_models(), n=6)
        raise unknown_name("backbone", name, near or ["tf_efficientnet_lite0", "resnet50"])
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed_of(seed, "backbone"))
        model: Any = timm.create_model(name, pretrained=pretrained is True)
    config = model.pretrained_cfg
    side = (image_size, image_size) if image_size else tuple(config["input_size"][1:])
    mean, std = tuple(255 * m for m in config["mean"]), tuple(255 * s for s in config["std"])
    if pretrained == "bundled":
        state = bundled.weights(model, name)
        mean, std = bundled.MEAN, bundled.STD
    elif isinstance(pretrained, str):
        state = _read_weights(Path(pretrained))
    model.reset_classifier(0)
    if isinstance(pretrained, str):
        _load(model, state, name)
    return Backbone(name, model, Preprocessing((side[0], side[1]), mean, std))


def _read_weights(path: Path) -> dict[str, Tensor]:
    if path.suffix != ".safetensors" or not path.is_file():
        raise TagfillError(f"{path} is not a safetensors file; pretrained weights are read from those only.")
    return load_file(path)


def _load(model: nn.Module, state: dict[str, Tensor], name: str) -> None:
    wanted = model.state_dict()
    lacking = sorted(key for key in wanted if key not in state or state[key].shape != wanted[key].shape)
    if lacking:
        raise TagfillError(f"The weights given for {name} lack {len(lacking)} of its tensors, {lacking[0]} first.")
    model.load_state_dict({key: state[key] for key in wanted})


def _without_copies(model: Any) -> Any:
    """The model with activations out of place where autograd would copy the input of one in place, to keep it."""
    for module in model.modules():
        if isinstance(module, (nn.Hardtanh, nn.Hardswish, nn.SiLU)):  # ReLU6 is a Hardtanh
            module.inplace = False
    return model


def _last_activation(model: nn.Module) -> nn.Module | None:
    """The activation after the last normalisation, where timm's EfficientNets keep it."""
    last = getattr(model, "bn2", None)
    return getattr(last, "act", None)
