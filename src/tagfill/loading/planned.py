"""Which views a feature cache is to hold, from a short text.

    eval       the whole image, of every split
    flip       its mirror image
    crops:n    n random crops, flipped half of the time
    pairs:n    n random crops, each as it is (weak) and distorted (strong), for consistency training

All but `eval` are of training images only. The strong view of a pair is its weak view after Cutout and RandAugment
(`tagfill.images.strong`): what was cropped away is missing from both, so that a label predicted on one can be asked of
the other.
"""

from __future__ import annotations

from dataclasses import dataclass

from tagfill.errors import TagfillError
from tagfill.images import CROP, EVAL, FLIP, STRONG, View

_FIRST_CROP, _FIRST_PAIR = 2, 1000


@dataclass(frozen=True)
class PlannedView:
    """A view to cache.

    The number belongs to the name, so that a view is the same whatever other views are made beside it.

    Attributes:
        name: of the view and of its folder.
        role: `eval`, `weak` or `strong`.
        view: what to draw.
        number: goes into the address of its draws.
    """

    name: str
    role: str
    view: View
    number: int


def parse_views(text: str) -> list[PlannedView]:
    """The views of a list such as `eval,flip,crops:2`.

    >>> [planned.name for planned in parse_views("eval,flip,crops:2,pairs:1")]
    ['eval', 'flip', 'crop0', 'crop1', 'weak0', 'strong0']
    """
    planned: list[PlannedView] = []
    for word in text.split(","):
        kind, _, count = word.strip().partition(":")
        if kind == "eval" and not count:
            planned.append(PlannedView("eval", "eval", EVAL, 0))
        elif kind == "flip" and not count:
            planned.append(PlannedView("flip", "weak", FLIP, 1))
        elif kind == "crops" and _is_count(count):
            planned += [PlannedView(f"crop{n}", "weak", CROP, _FIRST_CROP + n) for n in range(int(count))]
        elif kind == "pairs" and _is_count(count):
            for n in range(int(count)):
                planned.append(PlannedView(weak_of(n), "weak", CROP, _FIRST_PAIR + n))
                planned.append(PlannedView(strong_of(n), "strong", STRONG, _FIRST_PAIR + n))
        else:
            raise TagfillError(f"'{word}' is not a view; write views as in eval,flip,crops:2 or eval,pairs:2.")
    names = [view.name for view in planned]
    if len(set(names)) < len(names) or "eval" not in names:
        raise TagfillError(f"The views '{text}' must hold eval, and each view once.")
    return planned


def weak_of(pair: int) -> str:
    """Name of the weak view of a pair."""
    return f"weak{pair}"


def strong_of(pair: int) -> str:
    """Name of the strong view of a pair."""
    return f"strong{pair}"


def _is_count(text: str) -> bool:
    return text.isdecimal() and 0 < int(text) <= _FIRST_PAIR - _FIRST_CROP
