"""Options that are one of a few words."""

from __future__ import annotations

from collections.abc import Sequence

from tagfill.errors import DatasetError


def one_of(option: str, value: str, known: Sequence[str]) -> None:
    """Refuse a value that is none of the known ones.

    >>> one_of("images", "all", ["annotated", "all"])
    """
    if value not in known:
        raise DatasetError(f"{option} is '{value}', but only {' and '.join(map(repr, known))} are possible.")
