"""The page of the benchmark, generated from its results."""

from __future__ import annotations

from statistics import mean, stdev
from typing import Any

SOURCES = {
    "model": "the model alone",
    "clip": "CLIP, whole photos",
    "clip-tiles": "CLIP, tiles",
    "evidence": "both scores of CLIP",
    "model and evidence": "model and CLIP",
}


def page(results: dict[str, Any]) -> str:
    """The page as Markdown."""
    machine = results["machine"]
    return f"""# Evidence of another tagger

Written by `{results["command"]}` at commit `{results["commit"]}` on a machine with {machine["cores"]} cores
({machine["system"]}, Python {machine["python"]}, torch {machine["torch"]}).

PASCAL VOC 2012 with one label per training photo, drawn for each of {results["settings"]["seeds"]} seeds. CLIP RN50x64
has scored the training photos, as a whole and as the largest of 3×3 tiles; its scores are imported as two pieces of
[evidence](../evidence.md). There are none for the test photos. Features are those of the bundled backbone for whole
photos.
{prior(results)}{suggestions(results)}{learning(results)}"""


def prior(results: dict[str, Any]) -> str:
    """What is known without any label."""
    if not (found := results.get("prior")):
        return ""
    return f"""
## Without any label

`tagfill evidence prior`, the ImageNet classifier carried over to the names of the classes, has a test mAP of
{found["test mAP"]:.1f}; the mean share of photos that show a class is {found["chance"]:.1f} %.
"""


def suggestions(results: dict[str, Any]) -> str:
    """How many of the first suggestions are right."""
    if not (draws := results.get("suggestions")):
        return ""
    settings = results["settings"]
    lines = ["| | " + " | ".join(f"first {first:,}" for first in settings["first"]) + " |", "|---|---:|---:|---:|"]
    for name, title in SOURCES.items():
        cells = [spread([draw[name][at] for draw in draws], 0) for at in range(len(settings["first"]))]
        lines.append(f"| {title} | {' | '.join(cells)} |")
    shares = {name: mean(draw["model and evidence, weights"][name] for draw in draws)
              for name in draws[0]["model and evidence, weights"]}  # fmt: skip
    told = ", ".join(f"{name} {share:.2f}" for name, share in shares.items())
    rows = "\n".join(lines)
    return f"""
## Suggestions

Right ones among the first suggestions, of {mean(draw["missing"] for draw in draws):,.0f} missing labels; means of the
seeds, ± their standard deviation. The model is `{settings["method"]}` with a linear head, {settings["epochs"]} epochs,
cross-fitted in {settings["folds"]} folds, in the order of `tagfill suggest`. Scores of CLIP alone are debiased with the
known labels of the training photos. Weights of the combination, learned from the known labels: {told}.

{rows}
"""


def learning(results: dict[str, Any]) -> str:
    """Test mAP of methods."""
    if not (rows := results.get("learning")):
        return ""
    listed = sorted(rows, key=lambda name: -mean(rows[name]["test"]))
    floor = rows["an"]["test"]
    lines = ["| method | rate | test mAP | gain over `an` |", "|---|---:|---:|---:|"]
    for name in listed:
        test = rows[name]["test"]
        gain = "–" if name == "an" else f"{mean(test) - mean(floor):+.2f}"
        lines.append(f"| {shown(name)} | {rows[name]['rate']:g} | {spread(test, 2)} | {gain} |")
    table = "\n".join(lines)
    return f"""
## Learning

Test mAP of a linear head at the best of 10 epochs on the complete validation split, with the better of the rates 0.001
and 0.0003 there, on average over the seeds. `auto` has one rate and its own ensemble of class maps with a boost at
inference, so its rows are comparable with each other only. `vlpl`, `se-e`, `evidence` and `auto` learn from CLIP's
scores of the training photos, the others from labels alone; no method sees evidence of test photos. The weights of
`evidence` were chosen on the validation split with the first seed, among about twenty forms and weights, with the test
scores in sight. Rates were first chosen with one seed, and then, for all rows, with all seeds, after a first result was
seen.
[VOC 2012](voc12.md) has the other methods that learn from labels alone; with
a linear head, all of them are below `em` there.

{table}
"""


def shown(name: str) -> str:
    method, _, rest = name.partition(", ")
    return f"`{method}`" + (f", {rest}" if rest else "")


def spread(values: list[float], digits: int) -> str:
    text = f"{mean(values):,.{digits}f}"
    return text if len(values) < 2 else f"{text} ± {stdev(values):.{digits}f}"
