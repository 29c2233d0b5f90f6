"""How many photos ROLE needs, on COCO 2014.

<!-- numbers: photo-counts -->
"""

from __future__ import annotations

from filling.results import results, table


def photo_counts(arguments: str, top: str) -> str:
    """Scores of complete labels, AN and ROLE by the number of training photos."""
    found = results("coco14-s")
    if found is None:
        return "Not measured yet."
    rows = []
    for count, scores in found["sizes"].items():
        cells = [f"{scores[name]['test']:.2f}" if name in scores else "–" for name in ("full", "an", "role")]
        both = "role" in scores and "an" in scores
        gain = f"{scores['role']['test'] - scores['an']['test']:+.2f}" if both else "–"
        rows.append([f"{int(count):,}", *cells, gain])
    head = ["training photos", "complete labels", "`an`", "`role`", "gain over `an`"]
    legend = f"""[COCO 2014]({top}benchmarks/coco14.md), 80 classes, one positive per photo, frozen features; test mAP,
one seed, rates chosen on validation at each size; small sets get more epochs."""
    return f"{table(head, rows)}\n\n{legend}"
