"""Backbones: from pixels to a grid of features, through timm.

    pixels (uint8) → (x − mean) / std → timm's `forward_features` → B×D×H×W

whatever the order in which the model gives its features (`tagfill.models.grids`).
"""

from __future__ import annotations

import difflib
import hashlib
from contextlib import AbstractContextManager, nullcontext
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

import tagfill.torchvision_remedy  # noqa: F401  (before timm, which imports torchvision)
from tagfill.draws import seed_of
from tagfill.errors import TagfillError, unknown_name
from tagfill.models import bundled, cvt, freezing, own, reach
from tagfill.models.attention import class_token_rows
from tagfill.models.grids import layout_of
from tagfill.models.weights import load_weights, read_weights


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


@dataclass(frozen=True, slots=True)
class Seen:
    """What a backbone saw in a few images.

    Attributes:
        grid: B×D×H×W features.
        token: B×D, the class token; None where nobody asked for it.
        attention: B×blocks×H·W, the class token's attention to the patches in each block, averaged over heads, without
            a gradient; None where nobody asked for it.
    """

    grid: Tensor
    token: Tensor | None = None
    attention: Tensor | None = None


class Backbone(nn.Module):
    """A model of timm, a CvT, or a module of your own, that gives its last feature grid.

    Attributes:
        name: timm's name, or that in `BACKBONES`.
        preprocessing: what the weights expect.
        grid: rows and columns of the features.
        channels: D.
        class_token: whether there is a token that stands for the whole image.
        bound: the largest value a feature can take, if there is one.

    >>> backbone = create_backbone("test_vit", image_size=(64, 96))
    >>> seen = backbone.look(torch.zeros(2, 3, 64, 96, dtype=torch.uint8), token=True, attention=True)
    >>> seen.grid.shape, seen.token.shape, seen.attention.shape
    (torch.Size([2, 64, 4, 6]), torch.Size([2, 64]), torch.Size([2, 6, 24]))
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
        features = self._probe()
        self._layout = layout_of(name, self.model, features)
        self._beyond = tuple(reach.beyond(self.model, features)) if features.requires_grad else ()
        self._still_beyond()
        self.channels, self.grid = self._layout.channels, self._layout.grid
        self.class_token = self._layout.class_token
        self.bound = 6.0 if isinstance(_last_activation(model), nn.ReLU6) else None

    def forward(self, pixels: Tensor) -> Tensor:
        """Features of uint8 pixels: B×3×H×W to B×D×G×G."""
        return self._layout.to_grid(self._features(pixels))

    def look(self, pixels: Tensor, *, token: bool = False, attention: bool = False) -> Seen:
        """Features of uint8 pixels, with the class token and its attention where they are asked for."""
        if (token or attention) and not self.class_token:
            raise TagfillError(
                f"The backbone {self.name} has no class token; choose a ViT or DeiT, such as deit_small_patch16_224."
            )
        watching: AbstractContextManager[list[Tensor]] = nullcontext([])
        if attention:
            watching = class_token_rows(self.name, self.model, self._layout.prefix)
        with watching as rows:
            features = self._features(pixels)
        return Seen(
            self._layout.to_grid(features),
            features[:, 0] if token else None,
            torch.stack(rows, dim=1) if attention else None,
        )

    def requires_grad_(self, requires_grad: bool = True) -> Backbone:
        """Let it train, or not; parameters that the features do not depend on never train."""
        super().requires_grad_(requires_grad)
        self._still_beyond()
        return self

    @property
    def frozen(self) -> bool:
        """Whether nothing of it trains."""
        return not any(parameter.requires_grad for parameter in self.parameters())

    def freeze_stem(self) -> None:
        """Stop the training of the first layers and the first stage."""
        freezing.freeze_stem(self.name, self.model)
        self.train(self.training)

    def freeze_batch_norm(self) -> None:
        """Stop the training of all batch norms, of their scales as of their statistics."""
        freezing.freeze_batch_norm(self.model)
        self.train(self.training)

    def train(self, mode: bool = True) -> Backbone:
        """Training mode; batch norms that do not train stay in evaluation mode."""
        super().train(mode)
        freezing.keep_statistics(self.model)
        return self

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

    def _features(self, pixels: Tensor) -> Any:
        scaled = (pixels.to(self.mean.dtype) - self.mean) / self.std
        return self.model.forward_features(scaled.contiguous(memory_format=torch.channels_last))

    def _still_beyond(self) -> None:
        for name in self._beyond:
            self.model.get_parameter(name).requires_grad_(False)

    @torch.enable_grad()
    def _probe(self) -> Any:
        """What the model gives for one black image."""
        training = self.model.training
        height, width = self.preprocessing.size
        self.model.eval()
        try:
            return self._features(torch.zeros(1, 3, height, width, dtype=torch.uint8))
        except (AssertionError, RuntimeError, ValueError) as error:
            raise TagfillError(
                f"The backbone {self.name} does not take images of {height}×{width} pixels; choose another image size"
                f"{f' ({error})' if str(error) else ''}."
            ) from None
        finally:
            self.model.train(training)


def create_backbone(
    name: str, *, pretrained: bool | str = False, image_size: int | tuple[int, int] | None = None, seed: int = 0
) -> Backbone:
    """A backbone with the weights asked for.

    Args:
        name: timm's name of the model, or that of one of your own in `BACKBONES`.
        pretrained: True for timm's own weights from its hub, `"bundled"` for those of the extra `pretrained`, the
            path of a safetensors file, or False for random ones, or for those that your own model was made with.
        image_size: of the input, (height, width) or the side of a square; None takes the model's own. Where positions
            are learned, those of pretrained weights are interpolated.
        seed: of random weights.
    """
    size = (image_size, image_size) if isinstance(image_size, int) else image_size
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed_of(seed, "backbone"))
        model = _bare_model(name, pretrained is True, size)
    config = model.pretrained_cfg
    mean, std = tuple(255 * m for m in config["mean"]), tuple(255 * s for s in config["std"])
    if pretrained == "bundled":
        state = bundled.weights(model, name)
        mean, std = bundled.MEAN, bundled.STD
    elif isinstance(pretrained, str):
        state = read_weights(Path(pretrained))
    model.reset_classifier(0)
    if isinstance(pretrained, str):
        load_weights(model, state, name)
    return Backbone(name, model, Preprocessing(size or tuple(config["input_size"][1:]), mean, std))


def _bare_model(name: str, pretrained: bool, size: tuple[int, int] | None) -> Any:
    import timm

    if name in own.BACKBONES:
        if pretrained:
            raise TagfillError(
                f"timm's hub has no weights for {name}, which is your own; give the path of a safetensors file, or "
                "False for those that it was made with."
            )
        return own.Own(name)
    if name in cvt.NAMES:
        if pretrained:
            published = name.removesuffix(cvt.IN_QUERY2LABEL).replace("_", "-")
            raise TagfillError(
                f"timm has no weights for {name}; download the model.safetensors of microsoft/{published} "
                "and give its path."
            )
        return cvt.Cvt(name)
    if not timm.is_model(name):
        near = difflib.get_close_matches(name, [*timm.list_models(), *cvt.NAMES, *own.BACKBONES], n=6)
        raise unknown_name("backbone", name, near or ["tf_efficientnet_lite0", "resnet50"])
    config = timm.get_pretrained_cfg(name)
    fixed: dict[str, Any] = (
        {"img_size": size} if size is not None and config is not None and config.fixed_input_size else {}
    )
    try:
        return timm.create_model(name, pretrained=pretrained, **fixed)
    except (OSError, RuntimeError) as error:
        if not pretrained:
            raise
        raise TagfillError(
            f"timm's hub gave no weights for {name} ({str(error).partition('. ')[0].rstrip('.')}); "
            "give the path of a safetensors file, or train from random weights."
        ) from None


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
