"""What a format leaves unsaid: whether a label that it does not mention is absent, or was never looked at.

Many formats list present labels only, or write 0 for both. Which of the two it is cannot be seen in a file, so a
reader asks for `absent_means`, and a writer refuses to drop a difference unless it is told which side to give up.
"""

from __future__ import annotations

from typing import Literal

import numpy as np

from tagfill.annotations import NEGATIVE, POSITIVE, UNKNOWN, LabelMatrix
from tagfill.errors import DatasetError, one_of

AbsentMeans = Literal["unknown", "absent"]


def reading(absent_means: str | None, where: object, *, images: int, classes: int, present: int) -> AbsentMeans:
    """The chosen reading, or an error with the counts of both.

    Args:
        absent_means: what the caller was told, if anything.
        where: the file or folder, for the message.
        images: how many it lists.
        classes: how many it has.
        present: (image, label) pairs that it calls present.
    """
    if absent_means is not None:
        return checked(absent_means)
    rest = images * classes - present
    raise DatasetError(
        f"{where} does not say whether a label that is not marked present is absent or unknown: {present:,} of "
        f"{images * classes:,} (image, label) pairs are present, and the other {rest:,} become unknown with "
        "absent_means='unknown' or verified absent with absent_means='absent'; choose one."
    )


def checked(absent_means: str) -> AbsentMeans:
    """The word itself if it is one of the two."""
    one_of("absent_means", absent_means, ["unknown", "absent"])
    return "absent" if absent_means == "absent" else "unknown"


def writing(labels: LabelMatrix, absent_means: str | None, format_name: str) -> None:
    """Refuse to write labels of all three states into a format that lists present labels only.

    Args:
        labels: what is to be written.
        absent_means: how the file will be read: `absent` writes unknown labels as absent ones, `unknown` forgets what
            was verified absent, None loses nothing.
        format_name: for the message.
    """
    if absent_means is not None:
        checked(absent_means)
        return
    absent = int(np.count_nonzero(labels.values == NEGATIVE))
    unknown = count_unknown(labels)
    if absent and unknown:
        raise DatasetError(
            f"{format_name} lists present labels only, but {absent:,} are verified absent and {unknown:,} unknown; "
            "absent_means='absent' writes the unknown ones as absent, absent_means='unknown' forgets the absent ones."
        )


def complete(labels: LabelMatrix, unknown: str, format_name: str, split: str | None = None) -> None:
    """Refuse to write unknown labels into a format that is read as complete, unless they are to become absent.

    Args:
        labels: what is to be written.
        unknown: `refuse`, or `absent` to write them so.
        format_name: for the message.
        split: whose labels they are, if not all, for the message.
    """
    one_of("unknown", unknown, ["refuse", "absent"])
    count = count_unknown(labels)
    if count and unknown == "refuse":
        raise DatasetError(
            f"{format_name} cannot say unknown, but {count:,} of {len(labels) * labels.width:,} labels{_of(split)} "
            "are; unknown='absent' writes them as absent."
        )


def decided(labels: LabelMatrix, undecided: str, format_name: str, split: str | None = None) -> None:
    """Refuse "cannot tell", for a format that knows unknown only as not looked at; `drop` forgets such answers."""
    one_of("undecided", undecided, ["refuse", "drop"])
    count = int(np.count_nonzero(labels.values == UNKNOWN))
    if count and undecided == "refuse":
        raise DatasetError(
            f"{format_name} cannot say 'cannot tell', but {count:,} labels{_of(split)} say it; "
            "undecided='drop' writes them as not looked at."
        )


def count_unknown(labels: LabelMatrix) -> int:
    """Pairs that are neither present nor absent, "cannot tell" among them."""
    known = np.count_nonzero((labels.values == POSITIVE) | (labels.values == NEGATIVE))
    return len(labels) * labels.width - int(known)


def _of(split: str | None) -> str:
    return "" if split is None else f" of split {split}"
