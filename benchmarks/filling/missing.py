"""Results on VOC 2012 for kinds of partial labels other than one positive per image.

<!-- numbers: missing ignore,an,csl,se -->
"""

from __future__ import annotations

from filling.cases import FLOORS, HIERARCHY, PARTS, WAYS, measured
from filling.results import mean, table

SHORT = {
    **{title: way for way, title in WAYS.items()},
    **{title: f"{percent} % of positives, and negatives" for percent, title in PARTS.items()},
    HIERARCHY: "hierarchy",
}


def missing(arguments: str, top: str) -> str:
    """One column per kind of labels with results."""
    names = arguments.split(",")
    asked = set(names) - set(FLOORS)
    found = {SHORT[title]: scores for title, source, scores in measured() if title in SHORT and "VOC" in source}
    columns = {way: scores for way, scores in found.items() if asked & scores.keys()}
    if not columns:
        return "Not measured on VOC 2012 yet."
    shown = [name for name in names if any(name in scores for scores in columns.values())]
    rows = [
        [f"`{name}`", *(mean(scores[name]) if name in scores else "–" for scores in columns.values())] for name in shown
    ]
    legend = f"""By kind of known labels, on [VOC 2012]({top}benchmarks/voc12.md); test mAP in percent, means over
seeds, learning rates chosen on validation."""
    return f"{table(['method', *columns], rows)}\n\n{legend}"
