"""The size of a network's input, as people write it: the side of a square, or height and width."""

from __future__ import annotations

import operator
from collections.abc import Sequence

from tagfill.errors import TagfillError

_LEAST = 32


def input_size(value: int | str | Sequence[int]) -> int | tuple[int, int]:
    """The side of a square, or (height, width).

    >>> input_size("224x320"), input_size([224, 320]), input_size("224"), input_size((320, 320))
    ((224, 320), (224, 320), 224, 320)
    >>> input_size("wide")
    Traceback (most recent call last):
    tagfill.errors.TagfillError: An image size cannot be 'wide'; give a side of 32 or more, or height and width as in \
224x320.
    """
    try:
        if isinstance(value, str):
            sides = [int(side) for side in value.lower().split("x")]
        else:
            sides = [operator.index(side) for side in ([value] if isinstance(value, int) else value)]
    except (TypeError, ValueError):
        sides = []
    if len(sides) not in (1, 2) or min(sides) < _LEAST:
        raise TagfillError(
            f"An image size cannot be {value!r}; give a side of {_LEAST} or more, or height and width as in 224x320."
        )
    return sides[0] if len(set(sides)) == 1 else (sides[0], sides[1])
