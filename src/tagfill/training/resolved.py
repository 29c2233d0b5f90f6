"""All settings that decide the result of a run, by the paths that `--set` takes, with every default filled in.

A recipe gives what its author chose; the options of methods and heads have defaults in their own signatures, and
several stages may differ. Here they become one flat dictionary, which `tagfill train --dry-run` prints and the
documentation of the published recipes is made from.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from tagfill.methods import create, resolve_options
from tagfill.models import HEADS
from tagfill.models.heads import INITIAL_OPTIONS
from tagfill.options import check_options, option_parameters
from tagfill.training.recipe import Recipe, Stage

_BOOST_PARTS = ("from", "train", "eval", "unseen")
_PATCH_PARTS = ("patch_unknown", "patch_gammas", "patch_weights", "cells", "min_cover")  # of PatchML
_ELSEWHERE = {"options", "head_options", "stages"}  # added below
_NO_EFFECT = {"dataset", "features", "record", "memory", "threads", "seed", "max_bad_images"}
_ONLY_IF: dict[
    str, tuple[str, Callable[[Any], bool]]
] = {  # a setting, and the value of another that gives it an effect
    "optimizer.momentum": ("optimizer.name", lambda name: name == "sgd"),
    "optimizer.decay_vectors": ("optimizer.weight_decay", lambda decay: decay > 0),
    "schedule.milestones": ("schedule.name", lambda name: name == "step"),
    "schedule.factor": ("schedule.name", lambda name: name == "step"),
    "schedule.rise": ("schedule.name", lambda name: name == "one-cycle"),
    "short_side": ("short_side", lambda side: side is not None),
    **dict.fromkeys(("crop_scale", "flip", "vertical_flip", "strong"), ("input", lambda kind: kind == "images")),
    "randaugment": ("strong", bool),
    **{f"head_options.boost_{part}": ("head_options.boost", lambda boost: boost > 1) for part in _BOOST_PARTS},
    **{f"head_options.{name}": ("head_options.init", lambda init: init == "text") for name in INITIAL_OPTIONS},
    **{f"options.patchml.{part}": ("options.patchml.w_patch", lambda weight: weight > 0) for part in _PATCH_PARTS},
    **{
        f"options.patchml.{part}": (f"options.patchml.{level}_unknown", lambda mode: mode == "selective")
        for level, parts in {"image": ("k_image", "prior"), "patch": ("k_patch", "patch_scope")}.items()
        for part in parts
    },
    "options.patchml.prior_threshold": ("options.patchml.prior", lambda prior: prior != "none"),
    "options.patchcluster.precision": ("options.patchcluster.d_positive", lambda distance: distance == "auto"),
    "options.patchcluster.missed": ("options.patchcluster.d_negative", lambda distance: distance == "auto"),
}


class PerStage(tuple[Any, ...]):
    """The values of a setting in each stage, where they differ."""

    __slots__ = ()

    def __str__(self) -> str:
        return ", then ".join(setting_text(value) for value in self)


def resolved_settings(recipe: Recipe) -> dict[str, Any]:
    """Settings by path, as plain values; a setting in which stages differ holds a `PerStage`.

    Settings without effect are left out: those of another optimizer or schedule, of views that a cache replaces, where
    the data are, and what only a run decides, such as its seed.

    >>> recipe = Recipe(dataset="photos", method="ll-r", stages=[Stage(name="head"), Stage(name="all", epochs=3)])
    >>> found = resolved_settings(recipe)
    >>> found["options.ll-r.rate"], str(found["epochs"]), found["head_options.boost"]
    (0.5, '10, then 3', 1.0)
    """
    found = recipe.model_dump(mode="json", exclude=_ELSEWHERE | _NO_EFFECT)
    stages = [_of_stage(recipe, stage) for stage in recipe.stages]
    for path in dict.fromkeys(path for stage in stages for path in stage):
        values = [stage[path] for stage in stages if path in stage]  # an option belongs to the stages with its method
        found[path] = values[0] if all(value == values[0] for value in values) else PerStage(values)
    given = check_options(HEADS[recipe.head], recipe.head_options, f"head '{recipe.head}'")
    options = option_parameters(HEADS[recipe.head])
    head = {f"head_options.{name}": given.get(name, parameter.default) for name, parameter in options.items()}
    found |= _with_effect(head)
    for name in ("at", "compile"):
        if found[name] is None:
            del found[name]
    if not any(_needs_expected_positives(recipe, stage) for stage in recipe.stages):
        del found["expected_positives"]
    return {path: _plain(value) for path, value in found.items()}


def _of_stage(recipe: Recipe, stage: Stage) -> dict[str, Any]:
    method, options = recipe.method_of(stage)
    content = stage.model_dump(mode="json", exclude={"name", "method", "options"})
    content |= {"method": method, "options": resolve_options(method, options) if method != "auto" else options}
    return _with_effect(_flat(content))


def _with_effect(settings: Mapping[str, Any]) -> dict[str, Any]:
    def has_effect(path: str) -> bool:
        if path not in _ONLY_IF:
            return True
        other, gives_effect = _ONLY_IF[path]
        return other not in settings or gives_effect(settings[other])

    return {path: value for path, value in settings.items() if has_effect(path)}


def _needs_expected_positives(recipe: Recipe, stage: Stage) -> bool:
    method, options = recipe.method_of(stage)
    return method == "auto" or "expected_positives" in create(method, options).needs


def _flat(content: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    flat: dict[str, Any] = {}
    for name, value in content.items():
        flat |= _flat(value, f"{prefix}{name}.") if isinstance(value, Mapping) else {f"{prefix}{name}": value}
    return flat


def _plain(value: Any) -> Any:
    if isinstance(value, PerStage):
        return PerStage(_plain(part) for part in value)
    return [_plain(part) for part in value] if isinstance(value, (list, tuple)) else value


def setting_text(value: Any) -> str:
    """The value of a setting as a user writes it.

    >>> setting_text([0.25, 1.0]), setting_text(1e-05), setting_text(None), setting_text(PerStage([True, None]))
    ('[0.25, 1]', '1e-05', 'null', 'true, then null')
    """
    if isinstance(value, PerStage):
        return str(value)
    if isinstance(value, list):
        return f"[{', '.join(setting_text(part) for part in value)}]"
    if value is None or isinstance(value, bool):
        return "null" if value is None else str(value).lower()
    return f"{value:g}" if isinstance(value, float) else str(value)
