"""Which views a feature cache is to hold, from a short text."""

from __future__ import annotations

from dataclasses import dataclass

from tagfill.errors import TagfillError
from tagfill.images import CROP, EVAL, FLIP, View


@dataclass(frozen=True)
class PlannedView:
    """A view to cache: its name, what to draw, and the number that goes into the address of its draws.

    The number belongs to the name, so that a view is the same whatever other views are made beside it.
    """

    name: str
    view: View
    number: int


def parse_views(text: str) -> list[PlannedView]:
    """The views of a list such as `eval,flip,crops:2`.

    >>> [planned.name for planned in parse_views("eval,flip,crops:2")]
    ['eval', 'flip', 'crop0', 'crop1']
    """
    planned: list[PlannedView] = []
    for word in text.split(","):
        kind, _, count = word.strip().partition(":")
        if kind == "eval" and not count:
            planned.append(PlannedView("eval", EVAL, 0))
        elif kind == "flip" and not count:
            planned.append(PlannedView("flip", FLIP, 1))
        elif kind == "crops" and count.isdecimal() and int(count) > 0:
            planned += [PlannedView(f"crop{number}", CROP, 2 + number) for number in range(int(count))]
        else:
            raise TagfillError(f"'{word}' is not a view; write views as in eval,flip,crops:2.")
    names = [view.name for view in planned]
    if len(set(names)) < len(names) or "eval" not in names:
        raise TagfillError(f"The views '{text}' must hold eval, and each view once.")
    return planned
