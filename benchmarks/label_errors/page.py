"""The page of the benchmark, generated from its results."""

from __future__ import annotations

from typing import Any

import numpy as np

RULES = {"tagfill": "`tagfill suggest`", "cleanlab": "cleanlab", "0.5": "probability 0.5"}


def page(results: dict[str, Any]) -> str:
    """The page as Markdown."""
    machine, settings, rows = results["machine"], results["settings"], results["rows"]
    photos = "; ".join(
        f"{settings['photos'][title]:,} training photos of {title} with `{method}`"
        for title, method in settings["methods"].items()
    )
    new = settings["new_seed"]
    return f"""# Wrong annotations

Written by `{results["command"]}`
at commit `{results["commit"]}` on a machine with {machine["cores"]} cores ({machine["system"]}, Python
{machine["python"]}, torch {machine["torch"]}, cleanlab {machine["cleanlab"]}).

Photos with errors that we made: {photos}.
Scores ({settings["epochs"]} epochs on cached features) are cross-fitted with {settings["folds"]} folds and without a
validation split. All rules judge the same probabilities.

- *Complete labels*: {100 * settings["share"]:g} % of the tags are wrong. Half of them moved to a class that the photo
  does not show, which makes two annotations wrong; the others were dropped, so that a class that is there is
  annotated as absent.
- *One tag per photo*: {100 * settings["share"]:g} % of the tags moved to a class that the photo does not show. All
  other pairs are unknown; cleanlab takes them as absent, and only its doubts about tags are counted.
- *Errors in one class*: {100 * settings["share_of_class"]:g} % of the tags of one class belong to photos that do not
  show it; all other tags are right.

*Precision* is that of the first N annotations, where N is the true number of errors, *AUROC* that of the order of all
annotations. *Shown* is what each rule calls wrong by itself, and *wrong* the share of it that is wrong indeed. cleanlab
is `find_multilabel_issues_per_class` with its default filter, ordered by `get_label_quality_scores_per_class`. Numbers
are means over seeds.

The constants of Tagfill's rule were chosen while looking at the first {new} seeds of VOC 2012 and at COCO photos with
one tag each; seed {new}, and COCO with complete labels, were not looked at before. cleanlab has its defaults. Moved
tags are easier for Tagfill than other errors, because its order uses the class that the tag replaced.

## Annotations

{_annotations(rows, new)}

## Photos

The same for photos with any wrong annotation. Tagfill uses the most suspicious annotation of a photo, cleanlab
`multilabel_classification.rank.get_label_quality_scores`.

{_photos(rows, new)}

## Correct labels

Number of annotations that each rule calls wrong if we made no errors. COCO has some of its own.

{_correct(rows)}

Tagfill doubts tags only if more have the scores of photos without the tag (E⁺ of `tagfill.curation.label_errors`) than
right tags explain (κ·R):

{_evidence(rows)}
"""


def _annotations(rows: list[dict[str, Any]], new: int) -> str:
    lines = [
        "| photos | labels | seeds | rule | errors | precision | AUROC | shown | wrong |",
        "|---|---|---|---|---:|---:|---:|---:|---:|",
    ]
    for names, of in _groups(rows, new, wrong=True):
        for rule, title in RULES.items():
            one = [row for row in of if row["rule"] == rule]
            shown = _mean(one, "shown")
            share = f"{100 * _mean(one, 'right') / shown:.0f} %" if shown else "–"
            lines.append(
                f"| {names} | {title} | {_mean(one, 'errors'):,.0f} | {100 * _mean(one, 'precision'):.1f} % | "
                f"{_mean(one, 'auroc'):.3f} | {shown:,.0f} | {share} |"
            )
    return "\n".join(lines)


def _photos(rows: list[dict[str, Any]], new: int) -> str:
    lines = ["| photos | labels | seeds | rule | precision | AUROC |", "|---|---|---|---|---:|---:|"]
    for names, of in _groups(rows, new, wrong=True):
        for rule, title in RULES.items():
            one = [row for row in of if row["rule"] == rule]
            precision, auroc = 100 * _mean(one, "photo_precision"), _mean(one, "photo_auroc")
            lines.append(f"| {names} | {title} | {precision:.1f} % | {auroc:.3f} |")
    return "\n".join(lines)


def _correct(rows: list[dict[str, Any]]) -> str:
    lines = [
        "| photos | labels | seed | annotations | " + " | ".join(RULES.values()) + " |",
        "|---|---|---:|---:" + "|---:" * len(RULES) + "|",
    ]
    for row in rows:
        if row["rule"] == "tagfill" and not row["wrong"]:
            shown = [f"{_same(rows, row, rule)['shown']:,}" for rule in RULES]
            lines.append(f"| {_names(row)} | {row['seed']} | {row['annotations']:,} | " + " | ".join(shown) + " |")
    return "\n".join(lines)


def _evidence(rows: list[dict[str, Any]]) -> str:
    lines = ["| photos | labels | wrong tags | seed | E⁺ | κ·R |", "|---|---|---|---:|---:|---:|"]
    for row in rows:
        if row["rule"] == "tagfill":
            some = "yes" if row["wrong"] else "no"
            numbers = f"{row['low_tags']:,.0f} | {row['hard_tags']:,.0f}"
            lines.append(f"| {_names(row)} | {some} | {row['seed']} | {numbers} |")
    return "\n".join(lines)


def _groups(rows: list[dict[str, Any]], new: int, *, wrong: bool) -> list[tuple[str, list[dict[str, Any]]]]:
    """Photos, labels and seeds, and their rows; the new seed is a group of its own."""
    found: dict[tuple[str, bool], list[dict[str, Any]]] = {}
    for row in rows:
        if row["wrong"] == wrong:
            found.setdefault((_names(row), row["seed"] == new), []).append(row)
    return [
        (f"{names} | {', '.join(str(seed) for seed in dict.fromkeys(row['seed'] for row in of))}", of)
        for (names, _), of in found.items()
    ]


def _names(row: dict[str, Any]) -> str:
    return f"{row['photos']} | {row['labels']}"


def _same(rows: list[dict[str, Any]], like: dict[str, Any], rule: str) -> dict[str, Any]:
    keys = ("photos", "labels", "wrong", "seed")
    return next(row for row in rows if row["rule"] == rule and all(row[key] == like[key] for key in keys))


def _mean(rows: list[dict[str, Any]], column: str) -> float:
    return float(np.mean([row[column] for row in rows]))
