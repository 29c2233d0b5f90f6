"""What `tagfill fill` adds to photos with one tag each.

<!-- numbers: tags -->
"""

from __future__ import annotations

from statistics import fmean

from filling.results import results, table

NAMES = {
    "scenes": "rendered scenes",
    "VOC 2012": "photos of VOC 2012",
    "COCO": "photos of COCO",
    "COCO, other photos": "other photos of COCO",
    "COCO, kept apart": "photos of COCO, kept apart until the end",
}


def tags(arguments: str, top: str) -> str:
    """How many tags are added, how many of them are right, and how many of the missing ones they are."""
    del arguments
    found = results("fill")
    if found is None:
        return ""
    rows = []
    for name, draws in found["cases"].items():
        rules = [draw["rules"]["fill"] for draw in draws]
        right = fmean(rule["right"] / max(rule["added"], 1) for rule in rules)
        share = fmean(rule["right"] / draw["missing"] for rule, draw in zip(rules, draws, strict=True))
        added = fmean(rule["added"] for rule in rules)
        rows.append([f"{draws[0]['photos']:,} {NAMES[name]}", f"{added:,.0f}", f"{right:.0%}", f"{share:.0%}"])
    counts = " or ".join(sorted({str(len(draws)) for draws in found["cases"].values()}))
    heads = ["one tag each", "tags added", "of these right", "of the missing tags found"]
    return f"""{table(heads, rows)}

Means of {counts} draws of the given tags; [details]({top}benchmarks/fill.md)."""
