"""Labels of a dataset from its rows, one row after the other, straight from the rules.

A row is a dict with image, label, present (True, False or None), kind, time (a number or None) and source.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

Row = dict[str, Any]
Pair = tuple[str, str]


def newest(rows: list[Row]) -> dict[Pair, list[Row]]:
    """The newest rows about each pair, those that speak of a region only left out."""
    about: dict[Pair, list[Row]] = {}
    for row in rows:
        if row["kind"] != "image" and row["present"] is False:
            continue
        pair = (row["image"], row["label"])
        rivals = about.get(pair, [])
        if not rivals or age(row) == age(rivals[0]):
            about[pair] = [*rivals, row]
        elif age(row) > age(rivals[0]):
            about[pair] = [row]
    return about


def age(row: Row) -> float:
    """A row without a time is older than any row with one."""
    return float("-inf") if row["time"] is None else row["time"]


def value(present: bool | None) -> int:
    return {True: 1, False: 0, None: -1}[present]


def clashes(rows: list[Row]) -> set[Pair]:
    """Pairs whose newest rows do not all say the same."""
    return {pair for pair, rivals in newest(rows).items() if len({row["present"] for row in rivals}) > 1}


def elected(rivals: list[Row]) -> int:
    """What more than half of the votes say; a source has one vote for each thing it says, a row without one its own."""
    ballots = {(row["source"] if row["source"] is not None else number, row["present"])
               for number, row in enumerate(rivals)}  # fmt: skip
    votes = Counter(present for _, present in ballots)
    for present, count in votes.items():
        if 2 * count > len(ballots):
            return value(present)
    return -1


def decide(rows: list[Row]) -> dict[Pair, int]:
    """The label of each pair that was spoken about; pairs in `clashes` are put to the vote."""
    split = clashes(rows)
    return {
        pair: elected(rivals) if pair in split else value(rivals[0]["present"]) for pair, rivals in newest(rows).items()
    }


def ancestors(label: str, edges: list[tuple[str, str]]) -> set[str]:
    above: set[str] = set()
    waiting = [label]
    while waiting:
        name = waiting.pop()
        for child, parent in edges:
            if child == name and parent not in above:
                above.add(parent)
                waiting.append(parent)
    return above


def contradictions(labels: dict[Pair, int], edges: list[tuple[str, str]]) -> set[tuple[str, str, str]]:
    """(image, class, ancestor) where the class is present and the ancestor absent."""
    return {
        (image, label, above)
        for (image, label), known in labels.items()
        for above in ancestors(label, edges)
        if known == 1 and labels.get((image, above)) == 0
    }


def close(labels: dict[Pair, int], edges: list[tuple[str, str]], classes: list[str]) -> dict[Pair, int]:
    """The labels with all that follows from them; they must not contradict each other."""
    closed = dict(labels)
    for (image, label), known in labels.items():
        for other in classes:
            if known == 1 and other in ancestors(label, edges):
                closed[image, other] = 1
            if known == 0 and label in ancestors(other, edges):
                closed[image, other] = 0
    return closed
