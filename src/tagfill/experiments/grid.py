"""A small grid of settings, tried on the first seed and chosen on validation.

optimizer.lr=1e-3,1e-4        two values of a setting of all stages
options.scl.weight=0.1,1      two values of an option of a method that has it
"""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from itertools import product
from typing import Any

import yaml

from tagfill.errors import TagfillError

Choice = tuple[tuple[str, Any], ...]


def parse(texts: Sequence[str]) -> list[Choice]:
    """All combinations; one empty choice for an empty grid.

    >>> parse(["optimizer.lr=1e-3,1e-4", "batch_size=16"])
    [(('optimizer.lr', 0.001), ('batch_size', 16)), (('optimizer.lr', 0.0001), ('batch_size', 16))]
    """
    axes = []
    for text in texts:
        path, equals, values = text.partition("=")
        if not equals or not values:
            raise TagfillError(f"--grid {text} has no values; write it as in --grid optimizer.lr=1e-3,1e-4.")
        axes.append([(path, value_of(value)) for value in values.split(",")])
    return list(product(*axes))


def single(texts: Sequence[str]) -> Choice:
    """Settings with one value each, as `--set` gives them.

    >>> single(["memory.storage=disk"])
    (('memory.storage', 'disk'),)
    """
    pairs = []
    for text in texts:
        path, equals, value = text.partition("=")
        if not equals:
            raise TagfillError(f"--set {text} has no value; write it as in --set memory.storage=disk.")
        pairs.append((path, value_of(value)))
    return tuple(pairs)


def fitting(choices: Sequence[Choice], method: str) -> list[Choice]:
    """The combinations that differ for a method: options of methods that it does not name are dropped.

    >>> fitting(parse(["options.scl.weight=0.1,1"]), "an")
    [()]
    """
    names = method.split("+")
    kept = [tuple((path, value) for path, value in choice if _concerns(path, names)) for choice in choices]
    return list(dict.fromkeys(kept))


def apply(
    choice: Choice, settings: Mapping[str, Any], stage: Mapping[str, Any]
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Settings of a run and of its stage with a choice put in.

    >>> apply((("optimizer.lr", 0.1), ("batch_size", 8)), {"seed": 1}, {"epochs": 2})
    ({'seed': 1, 'batch_size': 8}, {'epochs': 2, 'optimizer': {'lr': 0.1}})
    """
    from tagfill.training.overriding import override

    content = copy.deepcopy({**settings, "stages": [dict(stage)]})
    for path, value in choice:
        override(content, path, value)
    (inner,) = content.pop("stages")
    return content, inner


def _concerns(path: str, names: Sequence[str]) -> bool:
    parts = path.split(".")
    return parts[0] != "options" or parts[1] in names


def value_of(text: str) -> Any:
    """YAML's reading, but for 1e-3, which it takes for a word.

    >>> value_of("1e-3"), value_of("true"), value_of("disk")
    (0.001, True, 'disk')
    """
    value = yaml.safe_load(text)
    if isinstance(value, str):
        try:
            return float(value)
        except ValueError:
            return value
    return value
