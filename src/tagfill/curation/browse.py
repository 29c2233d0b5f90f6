"""Browsing a dataset: which photos match a filter, and what is known about them.

A filter asks for the state of a class in a photo:

    present    it is known to be there
    absent     it is known not to be there
    unknown    neither: not annotated, or annotated as "cannot tell"

Without a class, `present` and `absent` ask for at least one class in that state, and `unknown` for photos whose labels
are incomplete. `unlabeled` asks for photos without any annotation. Time and memory grow with photos plus annotations,
never with photos × classes.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from tagfill.dataset import Dataset
from tagfill.errors import TagfillError
from tagfill.labels import NEGATIVE, POSITIVE, UNKNOWN

State = Literal["any", "present", "absent", "unknown", "unlabeled"]
_KEPT_SELECTIONS = 32  # answers to the last filters; a page of a list asks for the same one again and again


@dataclass(frozen=True)
class PhotoFilter:
    """Which photos to show.

    Attributes:
        label: class whose state is asked for; None for any class.
        state: of that class.
        split: only this split; None for all.
        text: words that the name of the photo must contain, in any order and case.
    """

    label: str | None = None
    state: State = "any"
    split: str | None = None
    text: str = ""


@dataclass(frozen=True)
class PhotoLabels:
    """What is known about one photo; every other class is not annotated.

    Attributes:
        present: classes that it shows.
        absent: classes that it does not show.
        undecided: classes that are annotated as "cannot tell".
    """

    present: list[str]
    absent: list[str]
    undecided: list[str]


class PhotoIndex:
    """The photos of a dataset and their labels, for looking them up; safe to use from several threads.

    Args:
        dataset: the dataset; its labels are read once.

    Raises:
        TagfillError: if the dataset has no photos, or its rows contradict each other.

    >>> data = Dataset.from_records(
    ...     "shop",
    ...     "photos",
    ...     ["cup", "spoon"],
    ...     [{"image": name, "split": "train"} for name in ("a.jpg", "b.jpg", "c.jpg")],
    ...     [{"image": "a.jpg", "label": "cup", "present": True}, {"image": "b.jpg", "label": "cup", "present": False}],
    ... )
    >>> PhotoIndex(data).select(PhotoFilter("cup", "unknown")).tolist()
    [2]
    """

    def __init__(self, dataset: Dataset) -> None:
        if not len(dataset):
            raise TagfillError(f"Dataset {dataset.name} has no photos to look at; add some with 'tagfill add'.")
        self.dataset, self.labels = dataset, dataset.labels()
        self.class_of_label = {name: code for code, name in enumerate(dataset.classes)}
        self.select = lru_cache(_KEPT_SELECTIONS)(self._select)

    def __len__(self) -> int:
        return len(self.dataset)

    def counts(self) -> list[dict[str, str | int]]:
        """Each class with the number of photos in which it is present, absent and unknown."""
        present, absent = self.labels.positives.tolist(), self.labels.negatives.tolist()
        return [
            {"label": name, "present": yes, "absent": no, "unknown": len(self) - yes - no}
            for name, yes, no in zip(self.dataset.classes, present, absent, strict=True)
        ]

    def _select(self, wanted: PhotoFilter) -> NDArray[np.int64]:
        """Rows of the image table that match, ascending.

        Raises:
            TagfillError: if there is no such class or split.
        """
        rows = self._in_state(wanted.label, wanted.state)
        if wanted.split is not None:
            rows = np.intersect1d(rows, self.dataset.split(wanted.split), assume_unique=True)
        for word in wanted.text.split():
            names = self.dataset.images["image"].take(pa.array(rows))
            rows = rows[pc.match_substring(names, word, ignore_case=True).to_numpy()]
        return rows

    def _in_state(self, label: str | None, state: State) -> NDArray[np.int64]:
        labels, code = self.labels, self._code(label)
        if state == "any":
            return np.arange(len(self))
        if state == "unlabeled":
            return labels.unannotated()
        if state == "unknown":
            known = self._images_of((labels.values != UNKNOWN) & self._about(code))
            wanted = 1 if code is not None else labels.width
            return np.flatnonzero(np.bincount(known, minlength=len(self)) < wanted)
        value = POSITIVE if state == "present" else NEGATIVE
        return np.unique(self._images_of((labels.values == value) & self._about(code)))

    def _about(self, code: int | None) -> NDArray[np.bool_] | np.bool_:
        """Which annotations are about a class; all of them without one."""
        return np.bool_(True) if code is None else self.labels.classes == code

    def _images_of(self, entries: NDArray[np.bool_]) -> NDArray[np.int64]:
        """The image of each of these annotations, ascending."""
        return np.searchsorted(self.labels.starts, np.flatnonzero(entries), side="right") - 1

    def _code(self, label: str | None) -> int | None:
        if label is None:
            return None
        if label not in self.class_of_label:
            raise TagfillError(f"Dataset {self.dataset.name} has no class '{label}'.")
        return self.class_of_label[label]

    def states(self, label: str | None, rows: NDArray[np.integer]) -> NDArray[np.int8]:
        """The state of a class in each of these photos: 1 present, 0 absent, -1 unknown.

        Without a class: 1 if any class is present, else 0 if any is absent.
        """
        code = self._code(label)
        entry, at = self.labels.entries(np.asarray(rows, dtype=np.int64))
        found = np.full(len(rows), UNKNOWN, dtype=np.int8)
        about = slice(None) if code is None else self.labels.classes[entry] == code
        np.maximum.at(found, at[about], self.labels.values[entry[about]])
        return found

    def labels_of(self, row: int) -> PhotoLabels:
        """What is known about one photo."""
        part = slice(self.labels.starts[row], self.labels.starts[row + 1])
        codes, values = self.labels.classes[part], self.labels.values[part]
        named = {value: [self.dataset.classes[code] for code in codes[values == value]] for value in (1, 0, -1)}
        return PhotoLabels(named[POSITIVE], named[NEGATIVE], named[UNKNOWN])
