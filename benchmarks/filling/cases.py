"""The best methods for each kind of partial labels, over all benchmarks.

<!-- numbers: cases -->
"""

from __future__ import annotations

from collections.abc import Iterator
from statistics import fmean
from typing import Any

from filling.results import results, table
from filling.single_positive import on_coco, on_photos, on_scenes

Scores = dict[str, list[float]]

FLOORS = ("an", "ignore")  # the baseline is the first of these that was measured
NOT_RANKED = ("full", "bce-ls", "iun")  # complete labels, with or without a boost, and an oracle
SHOWN = 3
SCENES, PHOTOS = "[scenes]({top}benchmarks/learning.md)", "[VOC 2012]({top}benchmarks/voc12.md)"
COCO = "[COCO 2014]({top}benchmarks/coco14.md)"
WAYS = {
    "10 % of entries": "each entry with probability 0.1",
    "50 % of entries": "each entry with probability 0.5",
    "90 % of entries": "each entry with probability 0.9",
    "100 of each class": "100 positives and 100 negatives per class",
    "75 % of positives": "each positive with probability 0.75, no negative",
    "40 % of positives": "each positive with probability 0.4, no negative",
}
PARTS = {
    "10": "10 % of all positives, about as many negatives",
    "50": "50 % of all positives, about as many negatives",
}
HIERARCHY = "down a hierarchy, to varying depth"
SAME = {"negative": "an", "ne": "ignore"}


def cases(arguments: str, top: str) -> str:
    """One row per kind of labels and dataset."""
    rows = [[title, source.format(top=top), *_said(scores)] for title, source, scores in measured()]
    head = [
        "known training labels",
        "measured on",
        "baseline",
        "best, one per family",
        "below the baseline",
    ]
    legend = """Test mAP in percent, means over seeds. The baseline is `an`, or `ignore` if `an` was not measured.
A boost changes inference and helps the baseline too, so entries with a boost are to be compared with the boosted
baseline. If fewer than three are listed, no other family beats the baseline."""
    return f"{table(head, rows, left=len(head))}\n\n{legend}"


def measured() -> Iterator[tuple[str, str, Scores]]:
    """Title, source and scores of each kind of labels with results."""
    for source, found in ((SCENES, on_scenes()), (PHOTOS, on_photos()), (COCO, on_coco())):
        if found:
            yield "one positive", source, found
    missing, parts, groups = (results(name) for name in ("voc12-b3", "voc12-b1", "voc12-b2"))
    for way, title in WAYS.items() if missing else ():
        yield title, PHOTOS, _named({name: of[way] for name, of in missing["methods"].items()})
    for percent, title in PARTS.items() if parts else ():
        yield title, PHOTOS, _named({name: of[percent]["mAP"] for name, of in parts["methods"].items()})
    if groups:
        scores = _named({name: of["mAP"] for name, of in groups["methods"].items()})
        yield HIERARCHY, PHOTOS, scores


def _named(scores: dict[str, Any]) -> Scores:
    """By command line name, without methods that refused the data."""
    return {SAME.get(name.lower(), name.lower()): values for name, values in scores.items() if values}


def _said(scores: Scores) -> list[str]:
    means = {name: fmean(values) for name, values in scores.items()}
    floor = next(name for name in FLOORS if name in means)
    boosted = max((name for name in means if name.startswith(f"{floor}+boost")), key=means.__getitem__, default=None)
    baselines = {floor, *(name for name in means if name.startswith(f"{floor}+boost"))}
    ranked = [name for name in means if name.partition("+")[0] not in NOT_RANKED and name not in baselines]
    ranked.sort(key=lambda name: -means[name])
    best: dict[str, str] = {}
    for name in ranked:
        if means[name] > means[floor]:
            best.setdefault(_family(name), name)
    below = [name for name in reversed(ranked) if means[name] < means[floor]]
    shown = list(best.values())[:SHOWN]
    alike = [boosted] if boosted and any("+boost" in name for name in shown) else []
    return [
        ", ".join(f"`{name}` {means[name]:.1f}" for name in [floor, *alike]),
        ", ".join(f"`{name}` {means[name]:.1f}" for name in shown) or "–",
        ", ".join(f"`{name}`" for name in below) or "–",
    ]


def _family(name: str) -> str:
    """The common name of methods that differ in an option or an added term.

    >>> _family("ll-ct+boost"), _family("en+scl")
    ('ll', 'en')
    """
    return name.partition("+")[0].partition("-")[0]
