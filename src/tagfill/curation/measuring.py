"""How right suggestions are, where somebody knows: precision of the first k, and labels recovered an hour."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow.compute as pc
from numpy.typing import NDArray

from tagfill.annotations import Dataset, LabelMatrix
from tagfill.curation.suggestions import MISSING, WRONG, Suggestions
from tagfill.training.scored import plain

FIRST = (10, 100, 1_000, 10_000)
_IMAGES_AT_ONCE = 4096


@dataclass(frozen=True)
class Measured:
    """What the truth says of suggestions.

    Attributes:
        precision: of the first k likely missing labels, the share that is there; k → share, as far as there are k.
        wrong_precision: the same for annotations that are likely wrong.
        recovered: share of all missing labels that are among the suggestions; NaN if none is missing.
        per_hour: labels found in the first hour of review in the order of the file.
        per_hour_random: labels that an hour of looking at unknown pairs in random order is expected to find; NaN if
            none is unknown.
    """

    precision: dict[int, float]
    wrong_precision: dict[int, float]
    recovered: float
    per_hour: float
    per_hour_random: float

    def to_json(self) -> dict[str, Any]:
        """As plain values."""
        return {
            "precision_at": {str(k): value for k, value in self.precision.items()},
            "wrong_precision_at": {str(k): value for k, value in self.wrong_precision.items()},
            "recovered": plain(self.recovered),
            "labels_per_hour": self.per_hour,
            "labels_per_hour_in_random_order": plain(self.per_hour_random),
        }


def measure(suggestions: Suggestions, dataset: Dataset, split: str, seconds: float) -> Measured | None:
    """Compare suggestions with the complete labels that a dataset was simulated from; None if there are none.

    Args:
        suggestions: in the order in which they would be looked at.
        dataset: that they are about.
        split: whose images they are about.
        seconds: that a reviewer takes for each.
    """
    if dataset.truth is None:
        return None
    truth = Dataset.open(dataset.truth)
    if truth.names() != dataset.names() or truth.classes != dataset.classes:
        return None
    complete, known = truth.labels(), dataset.labels()
    rows = dataset.split(split)
    unknown = missing = 0
    for start in range(0, len(rows), _IMAGES_AT_ONCE):
        block = rows[start : start + _IMAGES_AT_ONCE]
        open_ones = ~known.looked_at(block) & (complete.rows(block) >= 0)
        unknown += int(open_ones.sum())
        missing += int((open_ones & (complete.rows(block) == 1)).sum())
    there = _truth_of(suggestions, dataset, complete)
    kinds = np.array(suggestions.table["kind"].to_pylist(), dtype=object)
    annotated = np.array(suggestions.table["annotated"].to_pylist(), dtype=object)
    found = there[(kinds == MISSING) & (there >= 0)] == 1
    doubted = (kinds == WRONG) & (there >= 0)
    wrong = (there[doubted] == 1) != annotated[doubted].astype(bool)
    hour = int(3600 / seconds)
    return Measured(
        _first(found),
        _first(wrong),
        float(found.sum() / missing) if missing else float("nan"),
        float(found[:hour].sum()),
        hour * missing / unknown if unknown else float("nan"),
    )


def _truth_of(suggestions: Suggestions, dataset: Dataset, complete: LabelMatrix) -> NDArray[np.int8]:
    """What is true of each suggestion: 1, 0, or -1 if nobody knows."""
    row = pc.index_in(suggestions.table["image"], value_set=dataset.images["image"]).to_numpy()
    position = {name: number for number, name in enumerate(dataset.classes)}
    label = np.array([position[name] for name in suggestions.table["label"].to_pylist()], dtype=np.int64)
    there = np.full(len(row), -1, dtype=np.int8)
    for start in range(0, len(row), _IMAGES_AT_ONCE):
        part = slice(start, start + _IMAGES_AT_ONCE)
        there[part] = complete.rows(row[part].astype(np.int64))[np.arange(len(row[part])), label[part]]
    return there


def _first(right: NDArray[np.bool_]) -> dict[int, float]:
    sizes = sorted({k for k in FIRST if k <= len(right)} | ({len(right)} if len(right) else set()))
    return {k: float(right[:k].mean()) for k in sizes}
