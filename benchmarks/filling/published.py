"""Published numbers, from the recipes of the papers' tables.

<!-- numbers: published spml-voc12,spml-coco14 an,ll-r,ll-r+boost -->
<!-- numbers: published-by-budget patchml-coco14-kinds i,sp,sb -->
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import yaml

from filling.results import table

RECIPES = Path(__file__).parents[2] / "src" / "tagfill" / "experiments" / "recipes"
DATASETS = {
    "scratch-voc12": "VOC 2012, from scratch",
    "scratch-coco14": "COCO 2014, from scratch",
    "voc12": "VOC 2012",
    "coco14-fpc": "COCO 2014, 1,000 known per class",
    "coco14-rps": "COCO 2014, half of the entries known",
    "coco14": "COCO 2014",
    "nus": "NUS-WIDE",
    "cub": "CUB",
    "imagenet": "ImageNet, ReaL",
    "coco-panoptic": "COCO panoptic",
    "openimages-v3": "Open Images V3",
    "openimages-v5": "Open Images V5",
    "openimages-v6": "Open Images V6",
}


def published(arguments: str, top: str) -> str:
    """Rows of one or more tables side by side, one column per dataset."""
    recipes, _, names = arguments.partition(" ")
    tables = {recipe: _published(recipe) for recipe in recipes.split(",")}
    head = ["row", *map(_dataset, tables)]
    rows = [[f"`{name}`", *(_number(one, name) for one in tables.values())] for name in names.split(",")]
    return f"{table(head, rows)}\n\n{_source(tables, top)}"


def published_by_budget(arguments: str, top: str) -> str:
    """Rows of a table by kind, one column per budget. Rows are named KIND-BUDGET+ADDITION."""
    recipe, _, kinds = arguments.partition(" ")
    found = _published(recipe)
    parts = {name: re.fullmatch(r"(\w+)-([\d.]+)(.*)", name) for name in found["rows"]}
    numbers = {(part[1] + part[3], part[2]): _number(found, name) for name, part in parts.items() if part}
    budgets = sorted({budget for _, budget in numbers}, key=float)
    head = ["entry", *(f"{budget} %" for budget in budgets)]
    rows = [[f"`{kind}`", *(numbers.get((kind, budget), "–") for budget in budgets)] for kind in kinds.split(",")]
    return f"{table(head, rows)}\n\n{_source({recipe: found}, top)}"


def _published(recipe: str) -> dict[str, Any]:
    text = (RECIPES / f"{recipe}.yaml").read_text(encoding="utf-8")
    return dict(yaml.safe_load(text)["published"])


def _dataset(recipe: str) -> str:
    return next(title for end, title in DATASETS.items() if recipe.endswith(end))


def _number(found: dict[str, Any], name: str) -> str:
    """The mAP of a row, with as many digits as its table has."""
    every = {**found.get("untrained", {}), **found["rows"]}
    reported = {row: _first((content or {}).get("reported")) for row, content in every.items()}
    digits = 1 if all(value is None or round(value, 1) == value for value in reported.values()) else 2
    value = reported.get(name)
    return "–" if value is None else f"{value:.{digits}f}"


def _first(reported: Any) -> float | None:
    return next(iter(reported.values())) if isinstance(reported, dict) else reported


def _source(tables: dict[str, dict[str, Any]], top: str) -> str:
    recipes = ", ".join(f"`{name}`" for name in tables)
    papers = "; ".join(dict.fromkeys(f"{one['paper']}, {one['table']}" for one in tables.values()))
    return (
        f"mAP in percent as published: {papers}.\n"
        f"Whole networks, trained on accelerators ([recipes]({top}reproducing.md) {recipes}); we did not run them."
    )
