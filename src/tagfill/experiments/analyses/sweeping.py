"""Which settings a sweep tries: paths of a recipe, options of methods and heads, or the letters that papers use.

optimizer.lr=1e-3,1e-4          a setting by its path
en.expected=1.5,2.5             an option of a method
momentum=0.5,0.8                an option of every method of the run that has it, or of its head
K=1.5,2.5  mu=0.5,0.8           the same by its letter, see `LETTERS`
crop_scale=[0.25,1],[0.5,1]     values that are lists
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from inspect import signature
from itertools import product
from typing import Any

import yaml

from tagfill import methods
from tagfill.errors import TagfillError, unknown_name
from tagfill.experiments.grid import value_of
from tagfill.methods import METHODS
from tagfill.models import HEADS
from tagfill.training import Recipe, make_recipe, override
from tagfill.training.recipe import Stage

LETTERS = {
    "K": ("expected",),
    "kappa": ("expected",),
    "mu": ("momentum",),
    "alpha": ("boost", "alpha"),
    "beta": ("boost_from", "beta"),
    "delta": ("rate",),
    "gamma": ("gamma", "weight"),
    "d+": ("d_positive",),
    "d-": ("d_negative",),
}


@dataclass(frozen=True)
class Axis:
    """A setting to vary.

    Attributes:
        name: as it was written.
        paths: of the recipe, which all take the same value.
        values: to try.
    """

    name: str
    paths: tuple[str, ...]
    values: tuple[Any, ...]


def parse(texts: Sequence[str], recipe: Recipe) -> list[Axis]:
    """Settings and their values for the methods and the head of a recipe."""
    if not texts:
        raise TagfillError("A sweep needs something to vary; write --set K=1.5,2.5 or --set optimizer.lr=1e-3,1e-4.")
    axes = []
    for text in texts:
        name, equals, values = text.partition("=")
        if not equals or not values:
            raise TagfillError(f"--set {text} has no values; write it as in --set mu=0.5,0.8.")
        axes.append(Axis(name, _paths(name, recipe), tuple(_values(text, values))))
    return axes


def combinations(axes: Sequence[Axis]) -> list[tuple[Any, ...]]:
    """All choices of one value of each axis."""
    return list(product(*(axis.values for axis in axes)))


def varied(recipe: Recipe, axes: Sequence[Axis], choice: Sequence[Any], seed: int) -> Recipe:
    """The recipe with a choice put in, and another seed."""
    content = recipe.model_dump(mode="json") | {"seed": seed, "record": []}
    for axis, value in zip(axes, choice, strict=True):
        for path in axis.paths:
            _put(content, path, value)
    return make_recipe(content, "the settings of the sweep")


def _values(text: str, values: str) -> list[Any]:
    """The values of a list without its brackets.

    >>> _values("", "1e-3,[0.25,1.0]")
    [0.001, [0.25, 1.0]]
    """
    try:
        read = yaml.safe_load(f"[{values}]")
    except yaml.YAMLError:
        raise TagfillError(f"--set {text}: its values are no list; write it as in --set mu=0.5,0.8.") from None
    return [value_of(value) if isinstance(value, str) else value for value in read]


def _paths(name: str, recipe: Recipe) -> tuple[str, ...]:
    first, _, rest = name.partition(".")
    if first in Recipe.model_fields or first in Stage.model_fields:
        return (name,)
    options = {
        f"options.{method}.{option}": option for method in recipe.method.split("+") for option in _options_of(method)
    }
    options |= {f"head_options.{option}": option for option in signature(HEADS[recipe.head]).parameters}
    if rest and f"options.{name}" in options:
        return (f"options.{name}",)
    for wanted in LETTERS.get(name, (name,)):
        found = tuple(path for path, option in options.items() if option == wanted)
        if found:
            return found
    known = {*options.values(), *Recipe.model_fields, *Stage.model_fields} - {"channels", "classes"}
    raise unknown_name("setting", name, known, of=recipe.method)


def _options_of(method: str) -> list[str]:
    return list(signature(METHODS[methods.ALIASES.get(method, method)]).parameters)


def _put(content: dict[str, Any], path: str, value: Any) -> None:
    """Set a value by its path; options of a method also where a stage has its own."""
    override(content, path, value)
    head, _, rest = path.partition(".")
    if head == "options":
        for stage in content["stages"]:
            if rest.partition(".")[0] in (stage["options"] or {}):
                override(stage, path, value)
