"""How many decisions about labels are right, entry by entry."""

from __future__ import annotations


def judged(
    entries: list[tuple[int, int, int]], observed: list[list[int]], truth: list[list[int]], read_as: int
) -> tuple[int, int, int, int]:
    """Decided, of those judged, of those right, and what there was to find.

    Entries are (image, class, what it was read as); 1 present, 0 absent, -1 nothing.
    """
    right_if = 0 if read_as == 0 else 1
    decided = known = right = 0
    for image, label, value in entries:
        if value != read_as:
            continue
        decided += 1
        if observed[image][label] == -1 and truth[image][label] != -1:
            known += 1
            if truth[image][label] == right_if:
                right += 1
    sought = 0
    for observed_row, true_row in zip(observed, truth, strict=True):
        for seen, true in zip(observed_row, true_row, strict=True):
            if seen == -1 and true == right_if:
                sought += 1
    return decided, known, right, sought
