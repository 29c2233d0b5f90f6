"""Backbones: from pixels to a grid of features.

    pixels (uint8) → (x − mean) / std → the model's `forward_features` → B×D×H×W

The model is one of timm's, possibly with the projection of CLIP (`tagfill.models.joint`), a CvT (`tagfill.models.cvt`),
or a module of your own that is registered in `BACKBONES`.
`tagfill.models.feature_layout` rearranges the different outputs of timm models to B×D×H×W.
"""

from __future__ import annotations

import copy
import difflib
import hashlib
import math
import warnings
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Self

import torch
from pydantic import ConfigDict, PositiveFloat, PositiveInt
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

import tagfill.torchvision_remedy  # noqa: F401  (before timm, which imports torchvision)
from tagfill.deprecation import warn_renamed
from tagfill.errors import TagfillError, unknown_name
from tagfill.models.cvt import CVT_NAMES, Q2L_SUFFIX, Cvt
from tagfill.models.feature_layout import check_patches, class_token_attention, detect_layout, unused_parameters
from tagfill.models.joint import JOINT_SUFFIX, JointTower, is_joint
from tagfill.models.stages import (
    FEATURES,
    default_stage,
    from_cells,
    modules_above,
    public_names,
    run_below,
    to_cells,
)
from tagfill.models.tfjs_resnet import RESNET_V1, create_resnet_v1
from tagfill.models.weights import (
    BUNDLED_MEAN,
    BUNDLED_STD,
    check_bundled,
    load_bundled_weights,
    load_weights,
    read_safetensors,
)
from tagfill.rng import seed_of

BACKBONES: dict[str, Callable[[], nn.Module]] = {}
"""Your own backbones by name: functions or classes that make a module. They take precedence over timm's.

The module maps pixels in 0…1 (B×3×H×W) to features B×D×H'×W', and scales pixels further if it wants to. If it is an
`nn.Sequential` or has a method `stages()`, it can be divided (`tagfill.models.stages`). Recipes and
model folders store the name only, so register it in every process that trains or loads such a model.
"""

_DEFAULT_SIDE = 224  # input of a custom backbone, if no image size is given


@dataclass(frozen=True)
class Preprocessing:
    """How pixels in 0..255 become network input: resized to `size` (height, width), then (x − mean) / std."""

    __pydantic_config__: ClassVar[ConfigDict] = ConfigDict(extra="forbid", strict=True)

    size: tuple[PositiveInt, PositiveInt]
    mean: tuple[float, float, float]
    std: tuple[PositiveFloat, PositiveFloat, PositiveFloat]


@dataclass(frozen=True, slots=True)
class BackboneOutput:
    """Features of a batch of images.

    Attributes:
        features: B×D×H×W.
        token: B×D, the class token; None if not requested.
        attention: B×blocks×H·W, the class token's attention to the patches in each block, averaged over heads, without
            a gradient; None if not requested.
    """

    features: Tensor
    token: Tensor | None = None
    attention: Tensor | None = None

    @property
    def grid(self) -> Tensor:
        """Old name of `features`."""
        warn_renamed("BackboneOutput.grid", "BackboneOutput.features")
        return self.features


class _Freezable(nn.Module):
    """What trains of a network.

    `requires_grad` is the only record of what is frozen: a batch norm whose scale does not train keeps its statistics
    too. Query2Label freezes the stem and the batch norms, because its batches are too small to estimate better
    statistics than ImageNet's.
    """

    _unused: tuple[str, ...] = ()  # parameters that the features do not depend on

    def requires_grad_(self, requires_grad: bool = True) -> Self:
        """Unfreeze or freeze all weights; parameters that the features do not depend on never train."""
        super().requires_grad_(requires_grad)
        self._freeze_unused()
        return self

    @property
    def frozen(self) -> bool:
        """Whether no parameter trains."""
        return not any(parameter.requires_grad for parameter in self.parameters())

    def freeze_batch_norm(self) -> None:
        """Freeze the scales and the statistics of all batch norms."""
        for norm in self._batch_norms():
            norm.requires_grad_(False)
        self.train(self.training)

    def train(self, mode: bool = True) -> Self:
        """Set training mode; frozen batch norms stay in evaluation mode."""
        super().train(mode)
        for norm in self._batch_norms():
            if norm.affine and not norm.weight.requires_grad:
                norm.eval()
        return self

    def _batch_norms(self) -> list[_BatchNorm]:
        return [module for module in self.modules() if isinstance(module, _BatchNorm)]

    def _freeze_unused(self) -> None:
        for name in self._unused:
            self.get_parameter(name).requires_grad_(False)


class Backbone(_Freezable):
    """A model that returns its last grid of features.

    Attributes:
        name: timm's name, or a name in `BACKBONES`.
        preprocessing: what the weights expect.
        grid: rows and columns of the features.
        channels: D.
        class_token: whether the model has a class token.
        bound: largest value that a feature can take; None if unbounded.

    >>> backbone = create_backbone("test_vit", image_size=(64, 96))
    >>> output = backbone.encode(torch.zeros(2, 3, 64, 96, dtype=torch.uint8), token=True, attention=True)
    >>> output.features.shape, output.token.shape, output.attention.shape
    (torch.Size([2, 64, 4, 6]), torch.Size([2, 64]), torch.Size([2, 6, 24]))
    """

    def __init__(self, name: str, model: Any, preprocessing: Preprocessing) -> None:
        super().__init__()
        self.name = name
        self._frozen_below: frozenset[str] = frozenset()  # names of modules
        self.model = _without_inplace_copies(model.to(memory_format=torch.channels_last))
        self.preprocessing = preprocessing
        self.mean: Tensor
        self.std: Tensor
        self.register_buffer("mean", torch.tensor(preprocessing.mean).view(1, 3, 1, 1), persistent=False)
        self.register_buffer("std", torch.tensor(preprocessing.std).view(1, 3, 1, 1), persistent=False)
        features = self._probe()
        self._layout = detect_layout(name, self.model, features)
        unused = unused_parameters(self.model, features) if features.requires_grad else ()
        self._unused = tuple(f"model.{name}" for name in unused)
        self._freeze_unused()
        self.channels, self.grid = self._layout.channels, self._layout.grid
        self.class_token = self._layout.class_token
        self.bound = 6.0 if isinstance(_last_activation(model), nn.ReLU6) else None

    def forward(self, pixels: Tensor) -> Tensor:
        """Compute features of uint8 pixels: B×3×H×W to B×D×G×G."""
        return self._layout.to_grid(self._features(pixels))

    def encode(self, pixels: Tensor, *, token: bool = False, attention: bool = False) -> BackboneOutput:
        """Compute features of uint8 pixels, and the class token and its attention if requested."""
        if (token or attention) and not self.class_token:
            raise TagfillError(
                f"The backbone {self.name} has no class token; choose a ViT or DeiT, such as deit_small_patch16_224."
            )
        collecting: AbstractContextManager[list[Tensor]] = nullcontext([])
        if attention:
            collecting = class_token_attention(self.name, self.model, self._layout.prefix)
        with collecting as rows:
            features = self._features(pixels)
        return BackboneOutput(
            self._layout.to_grid(features),
            features[:, 0] if token else None,
            torch.stack(rows, dim=1) if attention else None,
        )

    def look(self, pixels: Tensor, *, token: bool = False, attention: bool = False) -> BackboneOutput:
        """Old name of `encode`."""
        warn_renamed("Backbone.look", "Backbone.encode")
        return self.encode(pixels, token=token, attention=attention)

    @torch.inference_mode()
    def pooled(self, pixels: Tensor) -> Tensor:
        """Compute the mean over cells of each image's features, B×D float32, without a gradient."""
        features: Tensor = self(pixels)
        return features.float().mean((2, 3))

    def fingerprint(self, at: str = FEATURES) -> str:
        """Hash the weights and the preprocessing, which feature caches depend on.

        Args:
            at: only hash what the output of this stage depends on.
        """
        where = () if at == FEATURES else (at,)
        digest = hashlib.sha256(repr((self.name, self.preprocessing, *where)).encode())
        above = tuple(f"{name}." for name in self.above(at).names) if where else ()
        for key, value in sorted(self.model.state_dict().items()):
            if key.startswith(above):
                continue
            digest.update(key.encode())
            digest.update(value.detach().cpu().contiguous().numpy().tobytes())
        return digest.hexdigest()

    def freeze_stem(self) -> None:
        """Freeze the first layers and the first stage; in a transformer, the embedding and the first block."""
        from timm.models import group_parameters

        if not hasattr(self.model, "group_matcher"):
            raise TagfillError(
                f"The backbone {self.name} does not say which layers are its stem; freeze all of it or none."
            )
        groups: dict[int, list[str]] = group_parameters(self.model, self.model.group_matcher(coarse=True))
        for parameter in groups[0] + groups[1]:
            self.model.get_parameter(parameter).requires_grad_(False)
        self.train(self.training)

    # Stages, at which a backbone is divided (`tagfill.models.stages`).

    @property
    def stages(self) -> list[str]:
        """Names of the stages at which it can be divided, first to last; none if it has no known ones."""
        return list(public_names(self.model))

    def default_stage(self) -> str:
        """The stage that is cached unless another one is asked for."""
        if len(self.stages) < 2:
            raise TagfillError(
                f"The backbone {self.name} has no known stages, so no part of it can be cached; train its head or the "
                "whole of it."
            )
        return default_stage(self.stages)

    def above(self, stage: str) -> BackboneTop:
        """The part behind a stage, which shares its weights.

        >>> backbone = create_backbone("test_resnet", image_size=64).eval()
        >>> pixels = torch.zeros(2, 3, 64, 64, dtype=torch.uint8)
        >>> inner = backbone.below(pixels, "layer3")
        >>> torch.equal(backbone.above("layer3")(inner), backbone(pixels))
        True
        """
        training, unused = self.model.training, set(self._unused)
        self.model.eval()
        try:
            shape = (1, 3, *self.preprocessing.size)
            pixels = (torch.arange(math.prod(shape), device=self.mean.device) * 7 % 256).to(torch.uint8).view(shape)
            names = modules_above(self.name, self.model, stage, self._scale(pixels))
            with torch.no_grad():
                inner = self.below(pixels, stage)
        finally:
            self.train(training)
        top = BackboneTop(self, stage, names, tuple(inner.shape[1:]))
        top._unused = tuple(
            f"parts.{number}.{inside}"
            for number, name in enumerate(names)
            for inside, _ in top.parts[number].named_parameters()
            if f"model.{name}.{inside}" in unused
        )
        return top

    def below(self, pixels: Tensor, stage: str) -> Tensor:
        """Compute the output of a stage from uint8 pixels: B×3×H×W to B×C×H'×W'; tokens are one row, B×C×1×T."""
        inner = run_below(self.model, public_names(self.model)[stage], self._scale(pixels))
        return to_cells(inner, self._inner_order(inner))

    def replace_top(self, top: BackboneTop) -> Backbone:
        """A copy with other weights behind a stage, such as averaged ones."""
        whole = copy.deepcopy(self)
        for name, part in zip(top.names, top.parts, strict=True):
            whole.model.get_submodule(name).load_state_dict(part.state_dict())
        return whole

    def requires_grad_(self, requires_grad: bool = True) -> Self:
        """Unfreeze or freeze all weights; parameters that the features do not depend on never train."""
        self._frozen_below = frozenset()
        return super().requires_grad_(requires_grad)

    def freeze_below(self, stage: str) -> None:
        """Freeze everything up to a stage, which then stays in evaluation mode."""
        above = self.above(stage)
        trained = {id(parameter) for parameter in above.parameters() if parameter.requires_grad}
        for parameter in self.parameters():
            parameter.requires_grad_(id(parameter) in trained)
        kept = {id(module) for module in above.modules()}
        self._frozen_below = frozenset(name for name, module in self.named_modules() if id(module) not in kept)
        self.train(self.training)

    def train(self, mode: bool = True) -> Self:
        """Set training mode; frozen batch norms and what `freeze_below` froze stay in evaluation mode."""
        super().train(mode)
        for name in self._frozen_below:
            self.get_submodule(name).training = False
        return self

    def _inner_order(self, inner: Tensor) -> str:
        if inner.ndim == 3:
            return "tokens"
        return str(getattr(self.model, "output_fmt", "NCHW")).rpartition(".")[2]

    def _scale(self, pixels: Tensor) -> Tensor:
        scaled = (pixels.to(self.mean.dtype) - self.mean) / self.std
        return scaled.contiguous(memory_format=torch.channels_last)

    def _features(self, pixels: Tensor) -> Any:
        return self.model.forward_features(self._scale(pixels))

    @torch.enable_grad()
    def _probe(self) -> Any:
        """Run the model on one black image."""
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


class BackboneTop(_Freezable):
    """The part of a backbone behind a stage: takes the output of the stage, which a feature cache holds.

    Attributes:
        name: of the backbone.
        at: the stage.
        names: modules of the backbone's model, in the order in which they run.
        parts: these modules; the same objects, unless it was copied.
        inner: C, H' and W' of what it takes.
        preprocessing: of the backbone.
        grid: rows and columns of the features.
        channels: D.
        class_token: whether the features have a class token.
    """

    def __init__(self, backbone: Backbone, at: str, names: Sequence[str], inner: tuple[int, ...]) -> None:
        super().__init__()
        self.name, self.at, self.names, self.inner = backbone.name, at, tuple(names), inner
        self.preprocessing, self.grid, self.channels = backbone.preprocessing, backbone.grid, backbone.channels
        self.class_token, self._layout = backbone.class_token, backbone._layout
        order = "tokens" if self._layout.order == "tokens" else backbone._inner_order(torch.empty(inner)[None])
        self._order = order
        self.parts = nn.ModuleList(backbone.model.get_submodule(name) for name in names)

    def forward(self, inner: Tensor) -> Tensor:
        """Compute features of a stage's output: B×C×H'×W' to B×D×G×G."""
        return self._layout.to_grid(self._features(inner))

    def encode(self, inner: Tensor, *, token: bool = False, attention: bool = False) -> BackboneOutput:
        """Compute features, and the class token if requested; attention needs the whole backbone and stays None."""
        features = self._features(inner)
        return BackboneOutput(self._layout.to_grid(features), features[:, 0] if token else None)

    @torch.inference_mode()
    def pooled(self, inner: Tensor) -> Tensor:
        """Compute the mean over cells of each image's features, B×D float32, without a gradient."""
        features: Tensor = self(inner)
        return features.float().mean((2, 3))

    def freeze_stem(self) -> None:
        """Raise: the stem lies below every stage."""
        raise TagfillError("The stem lies below the cached stage and never trains; leave out freeze: stem.")

    def _features(self, inner: Tensor) -> Tensor:
        features = from_cells(inner, self._order)
        for part in self.parts:
            features = part(features)
        return features


def _without_inplace_copies(model: Any) -> Any:
    """Make activations out-of-place where autograd would copy the input of an in-place one in order to keep it."""
    for module in model.modules():
        if isinstance(module, (nn.Hardtanh, nn.Hardswish, nn.SiLU)):  # ReLU6 is a Hardtanh
            module.inplace = False
    return model


def _last_activation(model: nn.Module) -> nn.Module | None:
    """The activation after the last normalization, where timm's EfficientNets keep it."""
    return getattr(getattr(model, "bn2", None), "act", None)


def create_backbone(
    name: str,
    *,
    pretrained: bool | str = False,
    image_size: int | tuple[int, int] | None = None,
    seed: int = 0,
    whole_patches: bool = True,
) -> Backbone:
    """Create a backbone with its weights.

    Args:
        name: timm's name of the model, or a name in `BACKBONES`.
        pretrained: True for timm's weights from its hub, `"bundled"` for those of the extra `pretrained`, the path of a
            safetensors file, or False for random weights (or those that your own module comes with).
        image_size: input size, (height, width) or the side of a square; None takes the model's default. Learned
            position embeddings of pretrained weights are interpolated.
        seed: seed of random weights.
        whole_patches: raise if the patches of a transformer do not cover an image of this size.
    """
    size = (image_size, image_size) if isinstance(image_size, int) else image_size
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed_of(seed, "backbone"))
        model = _bare_model(name, pretrained is True, size)
    config = model.pretrained_cfg
    mean, std = tuple(255 * m for m in config["mean"]), tuple(255 * s for s in config["std"])
    if pretrained == "bundled":
        state = load_bundled_weights(model, name)
        mean, std = BUNDLED_MEAN, BUNDLED_STD
    elif isinstance(pretrained, str):
        state = read_safetensors(Path(pretrained))
    model.reset_classifier(0)
    if isinstance(pretrained, str):
        load_weights(model, state, name)
    size = size or tuple(config["input_size"][1:])
    if whole_patches:
        check_patches(name, model, size)
    return Backbone(name, model, Preprocessing(size, mean, std))


def check_backbone(name: str, pretrained: bool | str = False) -> None:
    """Raise if there is no such backbone, or no bundled weights of it although they are wanted."""
    with warnings.catch_warnings():  # in a notebook, tqdm asks for ipywidgets, which are not needed
        warnings.filterwarnings("ignore", message="IProgress not found")
        import timm

    others = (*CVT_NAMES, RESNET_V1, *BACKBONES)
    if name not in others and not timm.is_model(name) and not is_joint(name):
        near = difflib.get_close_matches(name, [*timm.list_models(), *others], n=6)
        raise unknown_name("backbone", name, near or ["tf_efficientnet_lite0", "resnet50"])
    if pretrained == "bundled":
        check_bundled(name)


def _bare_model(name: str, pretrained: bool, size: tuple[int, int] | None) -> Any:
    check_backbone(name)
    import timm

    if name in BACKBONES:
        if pretrained:
            raise TagfillError(
                f"timm's hub has no weights for {name}, which is your own; give the path of a safetensors file, or "
                "False for the weights that it comes with."
            )
        return CustomBackbone(name)
    if name in CVT_NAMES:
        if pretrained:
            published = name.removesuffix(Q2L_SUFFIX).replace("_", "-")
            raise TagfillError(
                f"timm has no weights for {name}; download the model.safetensors of microsoft/{published} "
                "and give its path."
            )
        return Cvt(name)
    if name == RESNET_V1:
        if pretrained:
            raise TagfillError(
                f"timm has no weights for {name}; convert Keras's with 'tagfill convert tfjs-resnet' and give the path."
            )
        return create_resnet_v1()
    joint = is_joint(name)
    plain = name.removesuffix(JOINT_SUFFIX) if joint else name
    config = timm.get_pretrained_cfg(plain)
    fixed: dict[str, Any] = (
        {"img_size": size} if size is not None and config is not None and config.fixed_input_size else {}
    )
    try:
        model = timm.create_model(plain, pretrained=pretrained, **fixed)
    except (OSError, RuntimeError) as error:
        if not pretrained:
            raise
        raise TagfillError(
            f"The weights of {name} could not be loaded from timm's hub ({str(error).partition('. ')[0].rstrip('.')}); "
            "give the path of a safetensors file, or train from random weights."
        ) from None
    return JointTower(name, model, (config.tag if config is not None else None) or "") if joint else model


class CustomBackbone(nn.Module):
    """A registered module with the attributes that `Backbone` expects of a timm model.

    >>> BACKBONES["stripes"] = lambda: nn.Conv2d(3, 8, kernel_size=16, stride=16)
    >>> CustomBackbone("stripes").module.out_channels
    8
    >>> del BACKBONES["stripes"]
    """

    output_fmt = "NCHW"

    def __init__(self, name: str) -> None:
        super().__init__()
        module: Any = BACKBONES[name]()
        if not isinstance(module, nn.Module):
            raise TagfillError(
                f"BACKBONES['{name}'] makes an object of type {type(module).__name__}; register a subclass of "
                "nn.Module, or a function that returns a module."
            )
        self.module = module
        self.pretrained_cfg = {"input_size": (3, _DEFAULT_SIDE, _DEFAULT_SIDE), "mean": (0.0,) * 3, "std": (1.0,) * 3}

    def forward_features(self, pixels: Tensor) -> Tensor:
        """B×3×H×W to B×D×H'×W'."""
        features: Tensor = self.module(pixels)
        return features

    def reset_classifier(self, classes: int) -> None:
        """Do nothing: it has no classifier."""


def checkpoint_filter_fn(state: dict[str, Tensor], model: CustomBackbone) -> dict[str, Tensor]:
    """Rename weights of the registered module to those of `CustomBackbone`; `load_weights` finds it by this name."""
    return {f"module.{name}": value for name, value in state.items()}
