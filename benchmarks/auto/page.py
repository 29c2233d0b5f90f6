"""The page of the benchmark, generated from its results."""

from __future__ import annotations

import math
from statistics import mean, stdev
from typing import Any

CEILING, CEILING_AUTO, FLOOR, SECONDS = "complete labels", "complete labels, auto", "an", "seconds of auto"
NAMES = {"coco": "COCO", "coco-2": "COCO, other photos", "voc": "VOC 2012", "scenes": "Scenes"}
SHOWN_AS = {CEILING: "complete labels, `bce`", CEILING_AUTO: "complete labels, `auto`"}

Scores = dict[str, list[float]]


def page(results: dict[str, Any]) -> str:
    """The page as Markdown."""
    machine = results["machine"]
    tables = [
        section(source, protocol, scores)
        for source, protocols in results["scores"].items()
        for protocol, scores in protocols.items()
    ]
    sources = [
        f"- {NAMES[name]}: {size['train']:,} training and {size['test']:,} test images, {size['classes']} classes, "
        f"{size['labels']:.2f} labels per training image"
        for name, size in results["sizes"].items()
    ]
    return f"""# The method `auto`

Written by `{results["command"]}` at commit `{results["commit"]}` on a machine with {machine["cores"]} cores
({machine["system"]}, Python {machine["python"]}).

{chr(10).join(sources)}

[`auto`](../training.md#the-method-auto) beside its members, single methods, the ensemble that it used before, and
complete labels. Defaults everywhere: a `cam` head on cached features of the bundled backbone, Adam 1e-3, batches of 16,
{results["epochs"]} epochs. No validation split is used; the last epoch is kept. Everything, also `an` and complete
labels, is tested with the boost that `auto` uses (BoostLU, α = {results["boost"]:g}, at inference only). All entries of
a seed share known labels, order and initial weights, so gains over `an` are paired. The share of the gap is that
between `an` and the best use of complete labels, `auto` or `bce`.

The members of `auto` and their strengths of shrinkage were chosen by test scores on scenes, COCO and VOC 2012, with a
few other draws of the labels, and by the unknown tags of the photos of [fill](fill.md). Sums such as *wan + lda* are
earlier versions of `auto`, in which classes do not compete.

{chr(10).join(overview(results["scores"]))}

{chr(10).join(tables)}{earlier(results)}"""


def earlier(results: dict[str, Any]) -> str:
    """What was measured with an earlier version and not again."""
    before = results.get("earlier")
    if before is None:
        return ""
    shares = chr(10).join(overview(before["scores"]))
    return f"""
## Before `lda-cells` and competing classes

Measured at commit `{before["commit"]}`, when `auto` combined wan, lda and lda-soft, or csl and lda-soft, without
competing classes. The other photos of COCO were not used for any choice.

{shares}
"""


def overview(scores: dict[str, dict[str, Scores]]) -> list[str]:
    """Share of the gap that `auto` closes, by source and protocol."""
    protocols = list(dict.fromkeys(protocol for found in scores.values() for protocol in found))
    lines = [f"| gap closed by `auto` | {' | '.join(protocols)} |", f"|---|{'---:|' * len(protocols)}"]
    for source, found in scores.items():
        cells = [gap_closed("auto", found[protocol]) if protocol in found else "–" for protocol in protocols]
        lines.append(f"| {NAMES[source]} | {' | '.join(cells)} |")
    return lines


def section(source: str, protocol: str, scores: Scores) -> str:
    """One source with one protocol."""
    names = sorted((name for name in scores if name != SECONDS), key=lambda name: -mean(scores[name]))
    seeds = len(scores[FLOOR])
    return f"""## {NAMES[source]}, {protocol}

{seeds} seed{"s" * (seeds > 1)}.

| | test mAP | gain over `an` | ± of the mean | gap closed |
|---|---:|---:|---:|---:|
{chr(10).join(row(name, scores) for name in names)}
"""


def row(name: str, scores: Scores) -> str:
    """One line of a table."""
    gains = [value - base for value, base in zip(scores[name], scores[FLOOR], strict=True)]
    error = f"{stdev(gains) / math.sqrt(len(gains)):.2f}" if len(gains) > 1 else "–"
    shown = SHOWN_AS.get(name, f"`{name}`" if " + " not in name else name)
    return f"| {shown} | {mean(scores[name]):.2f} | {mean(gains):+.2f} | {error} | {gap_closed(name, scores)} |"


def gap_closed(name: str, scores: Scores) -> str:
    """The share of the gap between `an` and the best use of complete labels."""
    floor = mean(scores[FLOOR])
    ceiling = max(mean(scores[entry]) for entry in (CEILING, CEILING_AUTO) if entry in scores)
    return f"{(mean(scores[name]) - floor) / (ceiling - floor):.0%}"
