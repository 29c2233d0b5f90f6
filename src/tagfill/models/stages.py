"""Stages of a backbone: where it can be divided into a part below, whose output is cached, and a part above.

    pixels → below: everything up to the stage, frozen → inner features → above: everything behind it → features

The part above is a list of modules that run one after the other: the later stages, and what timm's models have behind
the last one (EfficientNet's final convolution, a last norm). Stages have timm's names: `layer3` of a ResNet, `blocks.5`
of an EfficientNet or ViT, `stages.2` of a ConvNeXt, `s3` of a RegNet, `layers.2` of a Swin. The part below is the model
itself, stopped at the stage. Whether both together are the whole model is tested on an image before they are used.

A custom backbone has stages if it is an `nn.Sequential`, or if it has a method `stages()` that returns its modules by
name, in the order in which they run.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from tagfill.errors import TagfillError

FEATURES = "features"
"""The end of a backbone: its features, which heads take."""

_SERIES = (("layer1", "layer2", "layer3", "layer4"), ("s1", "s2", "s3", "s4"))  # ResNet, RegNet
_CONTAINERS = ("stages", "layers", "blocks", "body")
_ENDINGS = (("conv_head", "bn2"), ("norm_pre",), ("final_conv",), ("norm",), ())  # behind the last stage
_SHARE_BELOW = 0.75  # of the blocks of a transformer, which are many and alike


def stage_names(model: nn.Module) -> list[str]:
    """Names of the stages of a model, first to last; none if it has no known ones.

    >>> import tagfill.torchvision_remedy, timm
    >>> stage_names(timm.create_model("test_resnet"))
    ['layer1', 'layer2', 'layer3', 'layer4']
    """
    custom = getattr(model, "module", None)
    if custom is not None:  # a `CustomBackbone`
        return [f"module.{name}" for name in _custom_stages(custom)]
    for series in _SERIES:
        if all(hasattr(model, name) for name in series):
            return list(series)
    for container in _CONTAINERS:
        children = getattr(model, container, None)
        if isinstance(children, (nn.Sequential, nn.ModuleList)) and len(children) > 1:
            return [f"{container}.{name}" for name, _ in children.named_children()]
    return []


def _custom_stages(module: nn.Module) -> list[str]:
    """Names of the stages of a custom backbone, as submodules of it."""
    if not hasattr(module, "stages"):
        return [name for name, _ in module.named_children()] if isinstance(module, nn.Sequential) else []
    names = {id(part): name for name, part in module.named_modules()}
    return [names[id(part)] for part in _declared(module).values()]


def _declared(module: Any) -> dict[str, nn.Module]:
    declared = module.stages()
    if not isinstance(declared, dict) or not all(isinstance(part, nn.Module) for part in declared.values()):
        raise TagfillError(
            f"stages() of {type(module).__name__} must return a dictionary of names and modules, in the order in which "
            "they run."
        )
    submodules = {id(part) for part in module.modules()}
    for name, part in declared.items():
        if id(part) not in submodules:
            raise TagfillError(f"The stage '{name}' of {type(module).__name__} is not one of its modules.")
    return dict(declared)


def public_names(model: Any) -> dict[str, str]:
    """The module of each stage at which a model can be divided, by the name of the stage."""
    modules = stage_names(model)
    custom = getattr(model, "module", None)
    shown = modules
    if custom is not None:
        shown = list(_declared(custom)) if hasattr(custom, "stages") else [name.partition(".")[2] for name in modules]
    return dict(zip(shown, modules, strict=True))


def default_stage(names: list[str]) -> str:
    """The stage to cache unless another one is asked for: below the last; of many blocks, below the last quarter.

    >>> default_stage(["layer1", "layer2", "layer3", "layer4"])
    'layer3'
    >>> default_stage([f"blocks.{n}" for n in range(12)])
    'blocks.8'
    """
    return names[int(_SHARE_BELOW * len(names)) - 1] if len(names) > 8 else names[-2]


def modules_above(backbone: str, model: nn.Module, stage: str, pixels: Tensor) -> list[str]:
    """Names of the modules behind a stage, in the order in which they run.

    Args:
        backbone: name of the model, for errors.
        model: in evaluation mode.
        stage: name of the stage.
        pixels: B×3×H×W, scaled, on which the division is tested.

    Raises:
        TagfillError: if the model has no such stage, or cannot be divided at it.
    """
    names = public_names(model)
    if stage not in names:
        known = ", ".join(list(names)[:-1]) or "none"
        raise TagfillError(f"The backbone {backbone} has no stage '{stage}' to cache; it has: {known}.")
    modules = list(names.values())
    later = modules[modules.index(names[stage]) + 1 :]
    with torch.no_grad():
        inner, whole = run_below(model, names[stage], pixels), model.forward_features(pixels)  # type: ignore[operator]
        for ending in _ENDINGS:
            above = [*later, *ending]
            if above and all(hasattr(model, name) for name in ending) and _runs_to(model, above, inner, whole):
                return above
    if not later:
        raise TagfillError(f"Nothing of the backbone {backbone} lies above its last stage '{stage}'.")
    raise TagfillError(
        f"The backbone {backbone} cannot be divided at '{stage}', because its stages do not simply run one after the "
        "other; train it as a whole (train: all)."
    )


def _runs_to(model: nn.Module, names: list[str], inner: Tensor, whole: Tensor) -> bool:
    """Whether these modules turn the output of a stage into that of the model."""
    features = inner
    try:
        for name in names:
            features = model.get_submodule(name)(features)
    except (RuntimeError, TypeError, ValueError):
        return False
    return isinstance(features, Tensor) and features.shape == whole.shape and torch.equal(features, whole)


class _ReachedError(Exception):
    """Carries the output of a stage out of the model."""

    def __init__(self, output: Tensor) -> None:
        self.output = output


def run_below(model: Any, module: str, pixels: Tensor) -> Tensor:
    """Run a model up to one of its modules and return the output of that; what lies behind it does not run."""
    with _stopping(model.get_submodule(module)):
        try:
            model.forward_features(pixels)
        except _ReachedError as reached:
            return reached.output
    raise TagfillError(f"The model does not run its module '{module}'.")


@contextmanager
def _stopping(module: nn.Module) -> Iterator[None]:
    def stop(_module: nn.Module, _inputs: Any, output: Tensor) -> None:
        raise _ReachedError(output)

    hook = module.register_forward_hook(stop)
    try:
        yield
    finally:
        hook.remove()


def to_cells(inner: Tensor, order: str) -> Tensor:
    """Rearrange the output of a stage to B×C×H×W; tokens become one row, B×C×1×T."""
    if order == "NHWC":
        return inner.permute(0, 3, 1, 2)
    return inner.transpose(1, 2).unsqueeze(2) if order == "tokens" else inner


def from_cells(cells: Tensor, order: str) -> Tensor:
    """Invert `to_cells`."""
    if order == "NHWC":
        return cells.permute(0, 2, 3, 1)
    return cells.squeeze(2).transpose(1, 2) if order == "tokens" else cells
