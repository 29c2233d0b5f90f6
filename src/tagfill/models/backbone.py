"""From what a timm model gives to a grid of features with channels first.

timm's models end in one of three forms, and each model says itself in which:

    NCHW    B×D×H×W, most convolutional networks, and what users register as their own
    NHWC    B×H×W×D, Swin and others that state `output_fmt`
    tokens  B×(P + H·W)×D: `num_prefix_tokens` P of class, distillation and registers, then the patches, row by row,
            of the `grid_size` H×W of the patch embedding

Shapes alone do not decide: seven channels on a 7×7 grid look alike in every order.


Backbones of your own: any module that turns pixels into a grid of features, under a name that you give it.

    pixels in 0…1 (B×3×H×W) → your module → B×D×H'×W'

Scaling pixels further is the module's own business. Its name is what recipes and model folders keep, so it has to be
registered in every process that trains or loads such a model.

Parts of a backbone that do not train: its stem, its batch norms.

Query2Label's recipe keeps the first convolution and the first stage of a ResNet as ImageNet made them, and the batch
norms with their statistics, because its batches are too small to estimate better ones. What is frozen is told by
`requires_grad` alone: a batch norm whose scale does not train keeps its statistics too.

Which parameters of a model its features depend on.

Some models of timm keep layers for after pooling (ConvNeXt's last norm, MobileNetV3's last convolution) that the grid
of features does not pass. They must not train: there is nothing to learn for them, weight decay would shrink them, and
processes that train together would wait for their gradients.

Backbones: from pixels to a grid of features, through timm.

    pixels (uint8) → (x − mean) / std → timm's `forward_features` → B×D×H×W

whatever the order in which the model gives its features (`tagfill.models.backbone`).
"""

from __future__ import annotations

import difflib
import hashlib
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

import tagfill.torchvision_remedy  # noqa: F401  (before timm, which imports torchvision)
from tagfill.errors import TagfillError, unknown_name
from tagfill.models import bundled, cvt
from tagfill.models.heads import class_token_rows
from tagfill.models.weights import load_weights, read_weights
from tagfill.rng import seed_of

WITH_A_GRID = "tf_efficientnet_lite0, resnet50, convnext_tiny, swin_tiny_patch4_window7_224 or deit_small_patch16_224"


@dataclass(frozen=True)
class Layout:
    """How the features of one model lie.

    Attributes:
        order: `NCHW`, `NHWC` or `tokens`.
        channels: D.
        grid: rows and columns.
        prefix: tokens before those of the patches.
        class_token: whether the first of them stands for the whole image.
    """

    order: str
    channels: int
    grid: tuple[int, int]
    prefix: int = 0
    class_token: bool = False

    def to_grid(self, features: Tensor) -> Tensor:
        """B×D×H×W of what the model gave; a view, never a copy."""
        if self.order == "NHWC":
            return features.permute(0, 3, 1, 2)
        if self.order == "tokens":
            return features[:, self.prefix :].transpose(1, 2).reshape(features.shape[0], -1, *self.grid)
        return features


def layout_of(name: str, model: Any, features: object) -> Layout:
    """How the features of a model lie, by what the model says of itself.

    Args:
        name: of the model, for the error.
        model: a timm model.
        features: what its `forward_features` gave for one image.
    """
    if not isinstance(features, Tensor):
        raise _without_grid(name, f"gives {type(features).__name__} instead of one tensor")
    shape = tuple(features.shape)
    if len(shape) == 4:
        return _of_maps(name, model, shape)
    if len(shape) == 3:
        return _of_tokens(name, model, shape)
    raise _without_grid(name, f"gives features of shape {shape}")


def _of_maps(name: str, model: Any, shape: tuple[int, ...]) -> Layout:
    order = str(getattr(model, "output_fmt", "NCHW")).rpartition(".")[2]
    if order == "NHWC":
        return Layout(order, shape[3], (shape[1], shape[2]))
    if order == "NCHW" and shape[1] == getattr(model, "num_features", shape[1]):
        return Layout(order, shape[1], (shape[2], shape[3]))
    raise _without_grid(name, f"gives features of shape {shape} and does not say which of them is the channel")


def _of_tokens(name: str, model: Any, shape: tuple[int, ...]) -> Layout:
    grid = _patch_grid(model)
    if grid is None:
        raise _without_grid(name, f"gives features of shape {shape} and does not say how its tokens lie in the image")
    class_token = isinstance(getattr(model, "cls_token", None), nn.Parameter)
    prefix = int(getattr(model, "num_prefix_tokens", int(class_token)))
    if shape[1] != prefix + grid[0] * grid[1]:
        raise _without_grid(
            name,
            f"gives {shape[1]} tokens, which are not {prefix} and then one for each of {grid[0]}×{grid[1]} patches",
        )
    return Layout("tokens", shape[2], grid, prefix, class_token and prefix > 0)


def _patch_grid(model: Any) -> tuple[int, int] | None:
    for embedding in ("patch_embed", "stem"):  # MLP-Mixers call theirs the stem
        grid = getattr(getattr(model, embedding, None), "grid_size", None)
        if grid is not None:
            return int(grid[0]), int(grid[1])
    return None


def _without_grid(name: str, found: str) -> TagfillError:
    return TagfillError(
        f"The backbone {name} {found}, so there is no grid of features; choose one that has it, such as {WITH_A_GRID}."
    )


BACKBONES: dict[str, Callable[[], nn.Module]] = {}
"""Functions, or classes of modules, that make your backbones, by name; they come before timm's."""

SIDE = 224  # of the input, where nobody says another


class CustomBackbone(nn.Module):
    """A module of yours, with what `Backbone` asks of a timm model.

    >>> BACKBONES["stripes"] = lambda: nn.Conv2d(3, 8, kernel_size=16, stride=16)
    >>> Own("stripes").module.out_channels
    8
    >>> del BACKBONES["stripes"]
    """

    output_fmt = "NCHW"

    def __init__(self, name: str) -> None:
        super().__init__()
        module: Any = BACKBONES[name]()
        if not isinstance(module, nn.Module):
            raise TagfillError(
                f"What BACKBONES['{name}'] makes is of type {type(module).__name__}; register a class of modules, or a "
                "function that returns a module."
            )
        self.module = module
        self.pretrained_cfg = {"input_size": (3, SIDE, SIDE), "mean": (0.0,) * 3, "std": (1.0,) * 3}

    def forward_features(self, pixels: Tensor) -> Tensor:
        """B×3×H×W to B×D×H'×W'."""
        features: Tensor = self.module(pixels)
        return features

    def reset_classifier(self, classes: int) -> None:
        """It has none."""


def checkpoint_filter_fn(state: dict[str, Tensor], model: CustomBackbone) -> dict[str, Tensor]:
    """Weights under the names of your module."""
    return {f"module.{name}": value for name, value in state.items()}


def freeze_stem(name: str, model: Any) -> None:
    """Stop the training of the first layers and the first stage; of a transformer, the embedding and the first block.

    Args:
        name: of the model, for the error.
        model: a timm model, which groups its layers itself.
    """
    from timm.models import group_parameters

    if not hasattr(model, "group_matcher"):
        raise TagfillError(f"The backbone {name} does not say which layers are its stem; freeze all of it or none.")
    groups: dict[int, list[str]] = group_parameters(model, model.group_matcher(coarse=True))
    for parameter in groups[0] + groups[1]:
        model.get_parameter(parameter).requires_grad_(False)


def freeze_batch_norm(model: nn.Module) -> None:
    """Stop the training of all batch norms, of their scales as of their statistics."""
    for norm in _batch_norms(model):
        norm.requires_grad_(False)


def keep_statistics(model: nn.Module) -> None:
    """Put the batch norms that do not train into evaluation mode."""
    for norm in _batch_norms(model):
        if norm.affine and not norm.weight.requires_grad:
            norm.eval()


def _batch_norms(model: nn.Module) -> list[_BatchNorm]:
    return [module for module in model.modules() if isinstance(module, _BatchNorm)]


def unused_parameters(model: nn.Module, features: Tensor) -> list[str]:
    """Names of the parameters that features, computed with a gradient, do not depend on.

    >>> import torch
    >>> model = nn.ModuleDict({"first": nn.Linear(2, 2), "last": nn.Linear(2, 2)})
    >>> beyond(model, model["first"](torch.zeros(1, 2)))
    ['last.weight', 'last.bias']
    """
    met: set[int] = set()
    seen: set[Any] = set()
    ahead: list[Any] = [features.grad_fn]
    while ahead:
        node = ahead.pop()
        if node is None or node in seen:
            continue
        seen.add(node)
        if hasattr(node, "variable"):  # where autograd adds up the gradient of a parameter
            met.add(id(node.variable))
        ahead.extend(following for following, _ in node.next_functions)
    return [name for name, parameter in model.named_parameters() if id(parameter) not in met]


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
        self._beyond = tuple(unused_parameters(self.model, features)) if features.requires_grad else ()
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
        freeze_stem(self.name, self.model)
        self.train(self.training)

    def freeze_batch_norm(self) -> None:
        """Stop the training of all batch norms, of their scales as of their statistics."""
        freeze_batch_norm(self.model)
        self.train(self.training)

    def train(self, mode: bool = True) -> Backbone:
        """Training mode; batch norms that do not train stay in evaluation mode."""
        super().train(mode)
        keep_statistics(self.model)
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

    if name in BACKBONES:
        if pretrained:
            raise TagfillError(
                f"timm's hub has no weights for {name}, which is your own; give the path of a safetensors file, or "
                "False for those that it was made with."
            )
        return CustomBackbone(name)
    if name in cvt.NAMES:
        if pretrained:
            published = name.removesuffix(cvt.IN_QUERY2LABEL).replace("_", "-")
            raise TagfillError(
                f"timm has no weights for {name}; download the model.safetensors of microsoft/{published} "
                "and give its path."
            )
        return cvt.Cvt(name)
    if not timm.is_model(name):
        near = difflib.get_close_matches(name, [*timm.list_models(), *cvt.NAMES, *BACKBONES], n=6)
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
