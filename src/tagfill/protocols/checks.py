"""Options of protocols that make no sense are refused in one sentence."""

from __future__ import annotations

from tagfill.errors import TagfillError


def proportion_between(option: str, value: float) -> None:
    """Refuse what is not a proportion.

    >>> proportion_between("fraction", 5)
    Traceback (most recent call last):
    tagfill.errors.TagfillError: fraction is 5; give a number from 0 to 1.
    """
    if not 0 <= value <= 1:
        raise TagfillError(f"{option} is {value}; give a number from 0 to 1.")
