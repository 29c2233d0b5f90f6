"""Changing one setting of a recipe by its path, as `--set KEY=VALUE` and the rows of a recipe do."""

from __future__ import annotations

from typing import Any

from tagfill.errors import TagfillError
from tagfill.training.recipe import Recipe, Stage


def override(content: dict[str, Any], path: str, value: Any) -> None:
    """Set one value of a recipe's plain content; a setting of stages goes to all of them.

    Args:
        content: the settings, changed in place.
        path: names joined by dots, as in `memory.storage` or `optimizer.lr`.
        value: its new value.

    >>> content = {"method": "an", "stages": [{"name": "head"}, {"name": "everything"}]}
    >>> override(content, "optimizer.lr", 1e-4)
    >>> [stage["optimizer"] for stage in content["stages"]]
    [{'lr': 0.0001}, {'lr': 0.0001}]
    """
    *parents, last = path.split(".")
    first = (*parents, last)[0]
    of_stages = first not in Recipe.model_fields and first in Stage.model_fields
    targets: list[dict[str, Any]] = content.setdefault("stages", [{}]) if of_stages else [content]
    for target in targets:
        for key in parents:
            target = target.setdefault(key, {})
            if not isinstance(target, dict):
                raise TagfillError(f"The setting '{path}' cannot be: '{key}' holds a single value and has no parts.")
        target[last] = value
