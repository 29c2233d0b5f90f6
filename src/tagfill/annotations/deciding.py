"""The labels of a dataset: statements of rows, decided, and closed over the hierarchy."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from tagfill.annotations import resolve
from tagfill.annotations.hierarchy import Hierarchy
from tagfill.annotations.labels import LabelMatrix
from tagfill.annotations.lookup import Lookup
from tagfill.annotations.statements import Evidence, collect, evidence
from tagfill.annotations.states import NEGATIVE, POSITIVE
from tagfill.errors import DatasetError, unknown_name

if TYPE_CHECKING:
    from tagfill.annotations.dataset import Dataset

CONFLICTS = ("error", "majority")


@dataclass(frozen=True)
class Selection:
    """The images whose labels are decided: rows of the image table, and the position of each row among them."""

    rows: NDArray[np.int64]
    position: NDArray[np.int64]

    @classmethod
    def of(cls, dataset: Dataset, split: str | None) -> Selection:
        """The images of a split, or all."""
        rows = np.arange(len(dataset)) if split is None else dataset.split(split)
        position = np.full(len(dataset) + 1, -1, dtype=np.int64)  # the last one stands for images not in the table
        position[rows] = np.arange(len(rows))
        return cls(rows, position)


def labels(dataset: Dataset, split: str | None, conflict: str) -> LabelMatrix:
    """Decide what is known about the images of a split; see `resolve` and `hierarchy` for the rules."""
    if conflict not in CONFLICTS:
        raise unknown_name("way to settle a conflict", conflict, CONFLICTS)
    _refuse_repeated_images(dataset)
    hierarchy = Hierarchy(dataset.classes, dataset.hierarchy)
    selection = Selection.of(dataset, split)
    decided = resolve.decide(*collect(dataset, selection.position))
    if len(decided.clashes) and conflict == "majority":
        settle(decided, evidence(dataset, selection.position, decided.clashes))
    elif len(decided.clashes):
        found = evidence(dataset, selection.position, decided.clashes[:1])
        raise DatasetError(f"{dataset.where()}: {clash(dataset, selection, found, int(decided.clashes[0]))}.")
    keys, values, contradictions = hierarchy.close(decided.keys, decided.values)
    if len(contradictions):
        child, ancestor = (int(key) for key in contradictions[0])
        found = evidence(dataset, selection.position, np.unique(contradictions[:1]))
        raise DatasetError(f"{dataset.where()}: {contradiction(dataset, selection, found, child, ancestor)}.")
    return LabelMatrix.from_keys(keys, values, (len(selection.rows), len(dataset.classes)))


def settle(decided: resolve.Decided, found: Evidence) -> None:
    """Put the outcome of the vote in the place of each clash."""
    voted = resolve.vote(found.keys, found.says, found.sources)
    decided.values[np.searchsorted(decided.keys, voted.keys)] = voted.values


def clash(dataset: Dataset, selection: Selection, found: Evidence, key: int) -> str:
    """In words: two rows of the same age contradict each other."""
    (image, label), (first, second) = pair(dataset, selection, key), found.clash(key)
    return (
        f"rows {first} and {second} contradict each other about label '{label}' of image '{image}' and neither is "
        "newer; give them times, drop one, or let the majority decide"
    )


def contradiction(dataset: Dataset, selection: Selection, found: Evidence, child: int, ancestor: int) -> str:
    """In words: a class is present and an ancestor of it absent."""
    (image, label), (_, above) = pair(dataset, selection, child), pair(dataset, selection, ancestor)
    yes, no = found.first(child, POSITIVE), found.first(ancestor, NEGATIVE)
    return (
        f"row {yes} says that image '{image}' shows '{label}', and row {no} that it does not show '{above}', "
        f"of which '{label}' is a kind; correct one of them, or the hierarchy"
    )


def pair(dataset: Dataset, selection: Selection, key: int) -> tuple[str, str]:
    """Image and label of a key."""
    at, label = divmod(key, len(dataset.classes))
    return str(dataset.images["image"][int(selection.rows[at])].as_py()), dataset.classes[label]


def _refuse_repeated_images(dataset: Dataset) -> None:
    names = dataset.images["image"]
    if (rows := Lookup(names).repeated()) is not None:
        raise DatasetError(
            f"{dataset.where('images')}: image '{names[rows[0]]}' is listed twice, in rows {rows[0]} and {rows[1]}; "
            "drop one."
        )
