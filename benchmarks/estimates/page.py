"""The page of the benchmark, generated from its results."""

from __future__ import annotations

from typing import Any

GIVEN = "given: true, measured, estimated, labels per image: true, measured, estimated, priors"
NAMES = {
    "scores": "sigmoid of the scores",
    "estimated": "estimated from tags alone",
    "measured": "measured on complete labels",
}


def page(results: dict[str, Any]) -> str:
    """The page as Markdown."""
    machine, cases = results["machine"], results["cases"]
    return f"""---
orphan: true
---
# Estimates from tags alone

Written by `{results["command"]}` at commit `{results["commit"]}` on a machine with {machine["cores"]} cores
({machine["system"]}, Python {machine["python"]}, torch {machine["torch"]}).

Complete labels are hidden in three ways: one tag is drawn per image (*one per image*), each tag is kept with
probability 0.4 (*at random*), or with a probability that grows with the side length of its object, ½ for an object of
median area and between 0.05 and 0.95 (*when small*; objects without a box count as small, and there are no boxes for
the COCO photos). Logits are those of
`wan`, `em` and `ll-r` heads, combined and boosted as `auto` does, from 3 folds over frozen features. *Estimated* uses
these logits and the remaining tags only; *measured* also uses complete labels of other images. The constants of the
estimates were chosen while looking at all of these cases, so this is no independent test of them.

Since then `auto` ranks better, and the constants for one tag per image have changed; [fill](fill.md) has numbers for
these.

## Share of given tags, labels per image, class priors

{header("data, images, missing", GIVEN)}
{chr(10).join(map(shares, cases))}

The last column is the mean absolute error of the estimated share of images that show a class, relative to the mean.

## Probabilities of unknown pairs

Missing tags are the sum of the probabilities of all unknown pairs. *Right* and *found* are those of the tags that
`choose_additions` adds at a precision of {results["target"]:g}. The last columns are the share of pairs that are right
among those said to be 0.5–0.8, 0.8–0.9 and 0.9–1.

{header("data, images, missing, probabilities", "missing tags: said, true, right, found, 0.5–0.8, 0.8–0.9, 0.9–1")}
{chr(10).join(line for case in cases for line in qualities(case))}

If small objects are tagged less often, tags alone cannot show it, and fewer tags are expected than are missing.
"""


def header(text: str, numbers: str) -> str:
    """The first two lines of a table."""
    words, values = text.split(", "), numbers.split(", ")
    return f"| {' | '.join(words + values)} |\n|{'---|' * len(words)}{'---:|' * len(values)}"


def shares(case: dict[str, Any]) -> str:
    """A row of the first table."""
    true, estimated, measured = case["true"], case["estimated"], case.get("measured")
    given, count = (f"{measured[key]:.2f}" if measured else "–" for key in ("given", "labels_per_image"))
    return (
        f"| {case['data']} | {case['images']:,} | {case['way']} | {true['given']:.2f} | {given} | "
        f"{estimated['given']:.2f} | {true['labels_per_image']:.2f} | {count} | "
        f"{estimated['labels_per_image']:.2f} | {estimated['prior_error']:.0%} |"
    )


def qualities(case: dict[str, Any]) -> list[str]:
    """The rows of a case in the second table."""
    rows = []
    for key, name in NAMES.items():
        if one := case.get(key):
            bands = " | ".join(share(value) for value, _ in one["bands"].values())
            rows.append(
                f"| {case['data']} | {case['images']:,} | {case['way']} | {name} | {one['missing']:,.0f} | "
                f"{case['true']['missing']:,} | {share(one['precision'])} | {share(one['found'])} | {bands} |"
            )
    return rows


def share(value: float | None) -> str:
    """A share in percent."""
    return "–" if value is None else f"{value:.0%}"
