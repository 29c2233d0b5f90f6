"""How many photos ROLE needs, on COCO 2014.

<!-- numbers: photo-counts -->
"""

from __future__ import annotations

from typing import Any

from filling.results import results, table

SLACK = 0.3
"""Points of mAP that one seed cannot tell apart."""


def photo_counts(arguments: str, top: str) -> str:
    """Scores of AN and ROLE by the number of training photos."""
    found = results("coco14-s")
    if found is None:
        return "Not measured yet."
    rows = []
    for count, scores in found["sizes"].items():
        cells = [f"{scores[name]['test']:.2f}" if name in scores else "–" for name in ("an", "role")]
        both = "role" in scores and "an" in scores
        gain = f"{scores['role']['test'] - scores['an']['test']:+.2f}" if both else "–"
        rows.append([f"{int(count):,}", *cells, gain])
    head = ["training photos", "`an`", "`role`", "gain over `an`"]
    legend = f"""[COCO 2014]({top}benchmarks/coco14.md), 80 classes, one positive per photo, frozen features; test mAP,
one seed, rates chosen on validation; small sets get more epochs."""
    return f"{table(head, rows)}\n\n{conclusion(found['sizes'])}\n\n{legend}"


def conclusion(sizes: dict[str, Any]) -> str:
    """From which size on ROLE is better than AN; a difference below 0.3 counts as none.

    >>> conclusion({"2900": {"an": {"test": 43.0}, "role": {"test": 40.0}}})
    'With 80 classes, `role` is below `an` up to 2,900 photos.'
    """
    gains = {int(count): of["role"]["test"] - of["an"]["test"] for count, of in sizes.items() if len(of) == 2}
    below = [count for count, gain in gains.items() if gain < -SLACK]
    above = [count for count, gain in gains.items() if gain > SLACK]
    equal = [count for count in gains if count not in (*below, *above)]
    parts = [f"below `an` up to {max(below):,} photos"] if below else []
    parts += [f"no better and no worse with {' and '.join(f'{count:,}' for count in equal)}"] if equal else []
    parts += [f"above it from {min(above):,} on"] if above else []
    return f"With 80 classes, `role` is {', '.join(parts)}."
