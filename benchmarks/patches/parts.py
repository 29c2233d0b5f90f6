"""Sections of the page besides the study itself, each from the results of one script."""

from __future__ import annotations

from collections.abc import Callable
from statistics import mean, median, stdev
from typing import Any

from paired import Scores, gain


def made(part: dict[str, Any]) -> str:
    return f"Written by `{part['command']}` at commit `{part['commit']}`."


def compared(scores: Scores, base: str) -> str:
    """A table of entries, with paired gains over one of them."""
    rows = []
    for name, mine in scores.items():
        shown = [f"{mean(mine[key]):.2f} ± {stdev(mine[key]):.2f} | {gain(name, base, key, scores)[1]}"
                 for key in ("cls", "loc_boxes")]  # fmt: skip
        bought = f"{mean(mine['positives']):.0f} | {mean(mine['negatives']):.0f}"
        rows.append(f"| {name} | {bought} | {' | '.join(shown)} | {mean(mine['loc_masks']):.2f} |")
    return f"""| entry | pos | neg | mAP-cls | gain over {base} | mAP-loc | gain over {base} | mAP-loc, masks |
|---|---:|---:|---:|---:|---:|---:|---:|
{chr(10).join(rows)}"""


def found(name: str, base: str, scores: Scores) -> str:
    """In words: above, below or level, on both measures; two standard errors make a difference."""
    said = []
    for key, measure in (("cls", "mAP-cls"), ("loc_boxes", "mAP-loc")):
        errors, shown = gain(name, base, key, scores)
        word = "above" if errors > 2 else "below" if errors < -2 else "level with"
        said.append(f"{word} {base} on {measure} ({shown})")
    return f"- {name} is {' and '.join(said)}."


CAUSES = {
    "SP": "unknown cells are ignored",
    "CSL-P": "as above: `patch_unknown: selective`, `k_patch: 25`",
    "diluted point alone": "weights 1, 1, 0: the point has 1/24 of its weight, the assumed absent cells have none",
    "whole point": "weights 24, 1, 1: the point has its weight without CSL-P, and the assumed absent cells are added",
    "whole point, γ_u 0": "the same with `patch_gammas` 0, 1, 0, so that unlikely cells count as much as likely ones",
    "whole point, k 40": "ignores all except 8 of 48 cells; weights 9, 1, 1",
    "sum of cells": "`cells: sum` with `w_patch: 0.1`, which equals the mean with 5 for an absent class",
}


def causes(part: dict[str, Any]) -> str:
    """Why CSL-P loses."""
    scores: Scores = part["scores"]
    return f"""
## Why CSL-P loses

{made(part)}

Points at {part["budget"]:g} %, {part["seeds"]} of the seeds above; SP and CSL-P are runs of the study{agreement(part)}.

With `cells: mean` the loss of a class in an image is divided by the number of its labeled cells. A class with a point
has one such cell, and 24 with CSL-P and k = 25 on 7×7 cells, so the point has 1/24 of its weight. The entries
separate the effects with `patch_weights` of marked, absent and unknown cells.

| entry | means |
|---|---|
{chr(10).join(f"| {name} | {text} |" for name, text in CAUSES.items() if name in scores)}

{compared(scores, "SP")}

{chr(10).join(found(name, "SP", scores) for name in scores if name != "SP")}

The diluted point alone loses as much as CSL-P, and with the point's weight restored nothing is lost: the mean over
cells is the cause, not the cells that CSL-P treats as absent. At the default γ of 4 these cells contribute almost
nothing; with γ_u 0 and the full weight of the point, CSL-P improves on points. These settings were compared on the
test images, with two seeds.
"""


def agreement(part: dict[str, Any]) -> str:
    """Whether a repeated run of the study gave the same scores."""
    if "again" not in part:
        return ""
    apart = max(abs(before - now) for before, now in part["again"].values())
    told = "gave the same scores" if apart < 0.005 else f"gave scores up to {apart:.2f} apart"
    return f", one of which was repeated and {told}"


def kinds(part: dict[str, Any]) -> str:
    """Other kinds of annotation and other pseudo-labels."""
    scores: Scores = part["scores"]
    pairs = {name: "I, pairs" if name == "I, FixMatch" else "I" for name in scores if name not in ("I", "I, pairs")}
    return f"""
## Boxes, all instances, other pseudo-labels

{made(part)}

At {part["budget"]:g} %, {part["seeds"]} of the seeds above, settings as above.

| entry | means |
|---|---|
| SB | a box around one instance |
| AP, AB | a point on every instance, a box around every instance |
| I+PC | I with `patchml+patchcluster` and `features: image` |
| I, pairs | I on a cache of weak and strong pairs instead of crops and flips |
| I, FixMatch | the same with `patchml+fixmatch` |

{compared(scores, "I")}

{chr(10).join(found(name, base, scores) for name, base in pairs.items())}
"""


def defaults(part: dict[str, Any]) -> str:
    """The command with its defaults."""
    scores, percent, seeds = part["scores"], part["budget"], part["seeds"]
    rows = []
    for name, mine in scores.items():
        shown = [f"{mean(values):.2f} | {gain(name, 'I', key, scores)[1]}" for key, values in mine.items()]
        rows.append(f"| {name} | {' | '.join(shown)} |")
    ahead = sum(points > tags for points, tags in zip(scores["SP"]["loc"], scores["I"]["loc"], strict=True))
    return f"""
## The command with its defaults

{made(part)}

```console
$ tagfill budget scenes --budgets {percent:g} --kinds I,SP --seeds {seeds} --features scenes-features --out study
```

On the scenes above: 20 epochs, `w_patch: 1` for SP, only the image loss for I; "I, absent cells" is a second study with
`--kinds I --absent-cells`. mAP-loc is against masks.

| kind | mAP-cls | gain over I | mAP-loc, masks | gain over I |
|---|---:|---:|---:|---:|
{chr(10).join(rows)}

SP is above I in mAP-loc with {ahead} of {seeds} seeds. At this weight of cells, most of the gain comes from absent
cells, which tags have too; with `w_patch: 5` points add to it, see above. The default is 1 because of photos:
[VOC 2012](voc12.md) prefers it.
"""


def deit(part: dict[str, Any]) -> str:
    """A transformer from random weights."""
    sizes, rows = part["sizes"], []
    for name, mine in part["scores"].items():
        loss = f"{mine['first_loss']:.2f} → {mine['last_loss']:.2f}" if "first_loss" in mine else "–"
        keys = [f"loc_{truth}_{maps}" for truth in ("boxes", "masks") for maps in ("minmax", "coupled")]
        places = " | ".join(f"{mine[key]:.2f}" if key in mine else "–" for key in keys)
        rows.append(f"| {name} | {loss} | {mine['cls']:.2f} | {places} |")
    return f"""
## A transformer from random weights

{made(part)}

`deit_tiny_patch16_224` on scenes of {part["pixels"]} px, {part["pixels"] // 16}×{part["pixels"] // 16} cells,
trained as a whole by `tagfill train` on {sizes["train"]} images with labels for {part["percent"]} % of the cost of all,
{part["epochs"]} epochs of AdamW 5e-4 with a cosine, one seed; scored by `tagfill evaluate` with `--localize` on
{sizes["test"]} test images. S are class maps (`--maps minmax`), A·S those times the attention of the class token
(`--maps coupled`). The `linear` head reads the class token and has no maps. mAP-loc is against boxes, then masks.

| entry | loss, first and last epoch | mAP-cls | mAP-loc, S | mAP-loc, A·S | masks, S | masks, A·S |
|---|---:|---:|---:|---:|---:|---:|
{chr(10).join(rows)}

This shows that the pipeline works, not what a transformer can learn: it starts from random weights and sees
{sizes["train"] * part["epochs"]:,} images in all. Losses fall, but no entry is far above the untrained network, whose
mAP-cls is at chance level, and hardly any map is right. One seed says nothing about differences of this size.
"""


def costs(part: dict[str, Any]) -> str:
    """Steps and looks."""
    names = next(iter(part["classes"].values()))
    rows = [f"| {name} | {' | '.join(ratio(size[name]) for size in part['classes'].values())} |" for name in names]
    look = part["looking"]
    passes, seconds = look["passes_per_second"], look["seconds"]
    head = " | ".join(f"{classes} classes" for classes in part["classes"])
    return f"""
## Cost

{made(part)} One thread.

A step is {part["batch"]} images of 7×7×1280 features → `cam` head through class maps → loss → backward → Adam. Numbers
are medians over {part["rounds"]} rounds of the ratio to `bce` with complete labels in the same round, with the
smallest and the largest in brackets, and milliseconds; `bce again` is the control. {part["known"]:.0%} of the labels
are known unless stated otherwise, each positive with a point.

| loss | {head} |
|---|{"---:|" * len(part["classes"])}
{chr(10).join(rows)}

PatchCluster on a cache of 600 training images (7×7×1280) and 200 validation images, 20 classes, medians over
{look["looks"]} looks inside a run: prototypes take {seconds["prototypes"]:.2f} s ({passes["prototypes"]:,.0f} images
per second; {median(look["ratios"]):.2f} times a bare evaluation pass of {passes["bare"]:,.0f} images per second), and
everything (prototypes, distances chosen on validation, pseudo-labels) takes {seconds["whole"]:.2f} s:
{passes["whole"]:,.0f} images per second in each of its three passes, {look["images_per_second"]:,.0f} training images
per second in all.
"""


def ratio(measured: dict[str, Any]) -> str:
    ratios = measured["ratios"]
    return f"{median(ratios):.2f} ({min(ratios):.2f}–{max(ratios):.2f}), {measured['ms']:.1f} ms"


PARTS: dict[str, Callable[[dict[str, Any]], str]] = {
    "defaults": defaults,
    "kinds": kinds,
    "causes": causes,
    "deit": deit,
    "costs": costs,
}
