"""The page of the benchmark, generated from its results."""

from __future__ import annotations

from statistics import mean, stdev
from typing import Any

from paired import Scores, gain
from parts import PARTS

WHAT = {
    "I": "image labels; only the image loss, as in the paper",
    "I, CSL-I": "the same with `image_unknown: selective`",
    "I, absent cells": "image labels; an absent class is absent in all cells, `w_patch: 5`",
    "SP": "a point on one instance of each present class, `w_patch: 5`",
    "SP, CSL-P": "the same with `patch_unknown: selective`, `k_patch: 25`",
    "SP, PatchCluster": "SP with `patchml+patchcluster`",
}

UNPROVEN = """\
- Why CSL-P loses is not proven. With `cells: mean`, the loss of a class in an image is divided by the number of its
  labeled cells: one if a class has a point and unknown cells are ignored, 24 with CSL-P and k = 25 on 7×7 cells. The
point   then has 1/24 of its weight, which may be the whole reason; `python benchmarks/patches/causes.py` separates
the two effects.
"""


def page(parts: dict[str, dict[str, Any]]) -> str:
    """The page as Markdown: the study, and the parts that were measured separately."""
    results = parts["run"]
    sizes, machine = results["sizes"], results["machine"]
    unproven = "" if "causes" in parts else UNPROVEN
    meanings = "\n".join(f"| {name} | {text} |" for name, text in WHAT.items())
    sections = "\n".join(section(float(budget), scores) for budget, scores in results["budgets"].items())
    return f"""---
orphan: true
---
# Points and tags at equal cost

Written by `{results["command"]}` at commit `{results["commit"]}` on a machine with {machine["cores"]} cores
({machine["system"]}, Python {machine["python"]}).{later(results)}

Scenes: {sizes["train"]} training images with labels bought by a [budget](../protocols.md#annotation-budget),
{sizes["val"]} validation images with complete labels, which chose the epoch, {sizes["test"]} test images. A `cam` head
on cached features of the bundled backbone, class maps of 7×7 cells, Adam 1e-3, batches of 16, {results["epochs"]}
epochs, {results["seeds"]} seeds. All entries share the labels, order and initial weights of a seed, so gains over I are
paired: the mean and its standard error.

| entry | meaning |
|---|---|
{meanings}

`w_patch` and `k_patch` were chosen on validation images with the first seed at 10 %, out of weights 1, 5 and 20, k 10
and 25; other γ and weights of cells were tried there too and left at their defaults. PatchCluster chooses its distances
on validation. mAP-loc compares maps, scaled by min and max, with the objects' boxes; the last column with their masks,
which are thin pictograms: half of a blob in any 7×7 map lies outside them, so these numbers are small. Below, "level"
means a difference of less than two standard errors.

What to know before quoting these numbers:

- Two choices were made after a first look at validation results (one seed, 10 %), in which SP at the default
  `w_patch: 1` did not beat the same method on I by masks (9.02 against 9.14): that I uses only the image loss, as in
  the paper, with "I, absent cells" as a harder baseline; and that boxes are the main truth of mAP-loc, with masks in
  the last column.
- SP was given more tuning than I: about eight settings of weights, γ and k against three of `w_patch` (0, 1, 5). One
  look at a budget of 30 % (one seed, validation) found SP and I with absent cells level, 52.7 and 52.5.
- The seed that settings were chosen with is one of the five, and draws the same labels.
- Five or six of the sixty runs, all of the first seed, predate a change to the training code in the stated commit; they
  were not repeated.
{unproven}- `tagfill budget` scores by masks where there are any. With `--absent-cells` its I is
  "I, absent cells", and it can show SP level with I on such data.

{sections}{"".join(write(parts[name]) for name, write in PARTS.items() if name in parts)}"""


def later(results: dict[str, Any]) -> str:
    """Which rows were measured at other commits."""
    return "".join(
        f"\nMeasured later, at commit `{at}`: {', '.join(rows)}." for at, rows in results.get("later", {}).items()
    )


def section(budget: float, scores: Scores) -> str:
    """A table and what it says."""
    rows = [row(name, scores) for name in scores]
    return f"""## Budget of {budget:g} %, {mean(scores["I"]["seconds"]) / 3600:.2f} hours

| entry | pos | neg | mAP-cls | gain over I | mAP-loc | gain over I | mAP-loc, masks |
|---|---:|---:|---:|---:|---:|---:|---:|
{chr(10).join(rows)}

{verdict(scores)}
"""


def row(name: str, scores: Scores) -> str:
    mine = scores[name]
    numbers = [f"{mean(mine['positives']):.0f}", f"{mean(mine['negatives']):.0f}"]
    for key in ("cls", "loc_boxes"):
        numbers += [f"{mean(mine[key]):.2f} ± {stdev(mine[key]):.2f}", gain(name, "I", key, scores)[1]]
    return f"| {name} | {' | '.join(numbers)} | {mean(mine['loc_masks']):.2f} ± {stdev(mine['loc_masks']):.2f} |"


def verdict(scores: Scores) -> str:
    """What was expected, and what came out: two standard errors make a difference."""
    expected = [
        ("SP", "I", "loc_boxes", "mAP-loc"),
        ("SP", "I", "cls", "mAP-cls"),
        ("SP", "I, absent cells", "loc_boxes", "mAP-loc"),
        ("SP", "I, absent cells", "cls", "mAP-cls"),
        ("SP, CSL-P", "SP", "loc_boxes", "mAP-loc"),
        ("SP, PatchCluster", "SP", "cls", "mAP-cls"),
    ]
    lines = []
    for name, base, key, measure in expected:
        errors, shown = gain(name, base, key, scores)
        won = sum(mine > other for mine, other in zip(scores[name][key], scores[base][key], strict=True))
        found = "beats" if errors > 2 else "is below" if errors < -2 else "is level with"
        lines.append(f"- {name} {found} {base} on {measure}: {shown}, {won} of {len(scores[name][key])} seeds.")
    return "\n".join(lines)
