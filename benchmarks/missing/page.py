"""The page of the benchmark, from its results alone."""

from __future__ import annotations

import math
from statistics import fmean, stdev
from typing import Any

CEILING, FLOOR = "full", "an"
MEANS = {
    "1 positive, 1 negative": "one random positive and one random negative of each image",
    "1 positive, 4 negatives": "one random positive and four random negatives of each image",
    "10 % of entries": "each pair of an image and a class with probability 0.1, whatever it says",
    "25 of each class": "25 random positives and 25 random negatives of each class",
    "40 % of positives": "each positive with probability 0.4, no negative",
    "hierarchy": "random nodes above what is there, and their absent siblings; 20 classes and their five groups",
}


def page(results: dict[str, Any]) -> str:
    """The page as Markdown."""
    sizes, machine, ways = results["sizes"], results["machine"], results["ways"]
    names = list(dict.fromkeys(name for way in ways.values() for name in way["scores"]))
    return f"""# Which method for which labels

Written by `{results["command"]}` at commit `{results["commit"]}` on a machine of {machine["cores"]} cores
({machine["system"]}, Python {machine["python"]}).

Scenes: {sizes["train"]} training images whose labels are missing in one of six ways, {sizes["val"]} validation images
with complete labels, which chose the epoch and counted the expected number of labels, {sizes["test"]} test images. A
`cam` head on cached features of the bundled backbone, Adam 1e-3, batches of 16, {results["epochs"]} epochs,
{results["seeds"]} seeds. Methods are at their defaults, but for `csl` with `likely: 1` and `threshold: 0.5`, as its
page advises for few classes, and `ll-r+boost`, whose head has `boost: 5`. `full` are complete labels and `bce`.
[One positive an image](learning.md), without negatives, has its own page.

| way | training images keep |
|---|---|
{chr(10).join(f"| {way} | {MEANS[way]} |" for way in ways)}

## Test mAP

| method | {" | ".join(ways)} |
|---|{"---:|" * len(ways)}
{chr(10).join(cells(name, ways) for name in names)}

The best of each column, complete labels aside, is bold. A dash is a method that refuses such labels.

## Gain over reading unknown as absent

Over `an`, paired by seed: the mean, and the standard error of that mean.

| method | {" | ".join(ways)} |
|---|{"---:|" * len(ways)}
{chr(10).join(gains(name, ways) for name in names if name != FLOOR)}

With {results["seeds"]} seeds, a difference of less than two standard errors says little.
"""


def cells(name: str, ways: dict[str, Any]) -> str:
    return f"| `{name}` | {' | '.join(cell(name, way['scores']) for way in ways.values())} |"


def gains(name: str, ways: dict[str, Any]) -> str:
    return f"| `{name}` | {' | '.join(gain(name, way['scores']) for way in ways.values())} |"


def cell(name: str, scores: dict[str, list[float]]) -> str:
    if name not in scores:
        return "–"
    best = max((other for other in scores if other != CEILING), key=lambda other: fmean(scores[other]))
    shown = f"{fmean(scores[name]):.2f}"
    return f"**{shown}**" if name == best else shown


def gain(name: str, scores: dict[str, list[float]]) -> str:
    if name not in scores:
        return "–"
    apart = [mine - other for mine, other in zip(scores[name], scores[FLOOR], strict=True)]
    return f"{fmean(apart):+.2f} ± {stdev(apart) / math.sqrt(len(apart)):.2f}"
