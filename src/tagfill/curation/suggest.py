"""Which pairs are worth a look: the best of a stream, without keeping the rest.

    value = H(p) · −log₂(share of images that show the class)

H is the entropy of the probability in bits: nothing is learned from checking what is certain. The second factor is what
finding a class says, so rare classes come first.


Suggesting: the unknown labels that are most likely there, and the annotations that are most likely wrong.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from tagfill.curation.crossfit import TRAIN, Scored, cross_fit
from tagfill.curation.suggestions import MISSING, SCHEMA, WRONG, Measured, Suggestions, measure
from tagfill.dataset import Dataset
from tagfill.errors import TagfillError, one_of
from tagfill.progress import SILENT, Progress

ORDERS = ("probability", "value")


@dataclass
class Pairs:
    """(image, label) pairs.

    Attributes:
        row: of the image table.
        label: class.
        probability: that the image shows the class.
        value: of checking it.
        annotated: 1, 0 or -1: what is known now.
    """

    row: NDArray[np.int64]
    label: NDArray[np.int64]
    probability: NDArray[np.float64]
    value: NDArray[np.float64]
    annotated: NDArray[np.int8]

    @classmethod
    def at(
        cls,
        where: NDArray[np.bool_],
        rows: NDArray[np.int64],
        probability: NDArray[np.float64],
        value: NDArray[np.float64],
        annotated: NDArray[np.integer],
    ) -> Pairs:
        """The pairs that a mask names.

        Args:
            where: n×L, which pairs.
            rows: n rows of the image table.
            probability: n×L.
            value: n×L.
            annotated: n×L, as `annotated` above.
        """
        image, label = np.nonzero(where)
        known = annotated[image, label].astype(np.int8)
        return cls(rows[image], label, probability[image, label], value[image, label], known)

    def __len__(self) -> int:
        return len(self.row)

    def take(self, which: NDArray[np.integer]) -> Pairs:
        """Some of them, in this order."""
        return Pairs(*(getattr(self, field.name)[which] for field in fields(self)))

    def joined(self, other: Pairs) -> Pairs:
        """These and those."""
        return Pairs(*(np.concatenate([getattr(self, f.name), getattr(other, f.name)]) for f in fields(self)))


def no_pairs() -> Pairs:
    """None at all."""
    return Pairs(np.empty(0, np.int64), np.empty(0, np.int64), np.empty(0), np.empty(0), np.empty(0, np.int8))


class Best:
    """The first so many pairs of a stream.

    Args:
        limit: how many are kept.
        per_class: how many of one class at most; None for no limit.
        rank: a number for each pair; larger comes first, and equal ones in the order of image and class.
    """

    def __init__(self, limit: int, per_class: int | None, rank: Callable[[Pairs], NDArray[np.float64]]) -> None:
        self._limit, self._per_class, self._rank = limit, per_class, rank
        self._held = no_pairs()

    def add(self, pairs: Pairs) -> None:
        """Consider more pairs."""
        self._held = self._held.joined(pairs)
        if len(self._held) > 4 * self._limit + 10_000:
            self._held = self.pairs()

    def pairs(self) -> Pairs:
        """The best so far, in their order."""
        order = np.lexsort((self._held.label, self._held.row, -self._rank(self._held)))
        if self._per_class is not None:
            order = order[within(self._held.label[order], self._per_class)]
        return self._held.take(order[: self._limit])


def within(groups: NDArray[np.int64], most: int) -> NDArray[np.bool_]:
    """Which entries are among the first so many of their group.

    >>> within(np.array([3, 1, 3, 3, 1]), 2).tolist()
    [True, True, True, False, True]
    """
    order = np.argsort(groups, kind="stable")
    ordered = groups[order]
    begins = np.searchsorted(ordered, ordered)
    first = np.empty(len(groups), dtype=bool)
    first[order] = np.arange(len(groups)) - begins < most
    return first


def entropy(probability: NDArray[np.float64]) -> NDArray[np.float64]:
    """In bits.

    >>> entropy(np.array([0.0, 0.5, 1.0])).tolist()
    [0.0, 1.0, 0.0]
    """
    p = np.clip(probability, 1e-12, 1 - 1e-12)
    bits = -(p * np.log2(p) + (1 - p) * np.log2(1 - p))
    return np.where((probability <= 0) | (probability >= 1), 0.0, bits)


def rarity(shares: NDArray[np.float64]) -> NDArray[np.float64]:
    """What finding each class says, in bits, from the shares of images that show them.

    >>> rarity(np.array([1.0, 0.25])).tolist()
    [-0.0, 2.0]
    """
    return -np.log2(np.clip(shares, 1e-9, 1))


def wrongness(pairs: Pairs) -> NDArray[np.float64]:
    """The probability that what is known of a pair is not so."""
    return np.where(pairs.annotated == 1, 1 - pairs.probability, pairs.probability)


@dataclass(frozen=True)
class Suggested:
    """Suggestions and how they were made.

    Attributes:
        suggestions: likely missing ones first, then likely wrong ones.
        folds: models that were trained to ask each image's score of one that had not seen it; 0 if the run was asked.
        calibration: mean expected calibration error before and after; None without known labels to measure it on.
        measured: how right they are, where the truth is known.
    """

    suggestions: Suggestions
    folds: int
    calibration: tuple[float, float] | None
    measured: Measured | None

    def to_json(self) -> dict[str, Any]:
        """As plain values."""
        kinds = self.suggestions.table["kind"].to_pylist()
        return {
            "suggestions": len(kinds),
            **{kind: kinds.count(kind) for kind in (MISSING, WRONG)},
            "folds": self.folds,
            "calibration_error": None
            if self.calibration is None
            else {"before": self.calibration[0], "after": self.calibration[1]},
            "measured": None if self.measured is None else self.measured.to_json(),
        }


def suggest(
    run: str | os.PathLike[str],
    dataset: Dataset | str | Path,
    *,
    split: str = TRAIN,
    folds: int | None = None,
    missing: int = 10_000,
    wrong: int = 1_000,
    per_class: int | None = None,
    minimum: float = 0.1,
    order: str = "probability",
    features: str | os.PathLike[str] | None = None,
    out: str | Path | None = None,
    jobs: int | None = None,
    workers: int = 0,
    seconds: float = 2.0,
    progress: Progress = SILENT,
) -> Suggested:
    """Rank what is worth a look.

    Args:
        run: a run or its folder, or a model folder.
        dataset: the data, or its folder; what its rows say decides what is unknown.
        split: whose images are looked at.
        folds: models to train so that none is asked about what it learned from; by default 5 for the training split
            and 0, the run itself, for any other.
        missing: unknown labels to suggest at most.
        wrong: annotations to doubt at most.
        per_class: suggestions of one class at most, of each kind.
        minimum: unknown labels that are less probable are left out, and annotations that are less probably wrong.
        order: `probability` or `value`, which see `tagfill.curation.suggest`.
        features: a feature cache, or its folder, to use instead of images; models of folds use the run's by default.
        out: folder of the models that are trained, to be used again; by default they are thrown away.
        jobs: processes that train at once; one a core by default.
        workers: processes that decode images.
        seconds: that a reviewer takes for a suggestion, for labels recovered an hour.
        progress: told about the runs.

    Example:
        >>> from tagfill.curation.suggest import suggest
        >>> found = suggest("runs/photos-en", "photos")  # doctest: +SKIP
        >>> found.suggestions.save(Path("suggestions.parquet"))  # doctest: +SKIP
    """
    one_of("order", order, ORDERS)
    data = dataset if isinstance(dataset, Dataset) else Dataset.open(dataset)
    if folds is None:
        folds = 5 if split == TRAIN else 0
    if folds and split != TRAIN:
        raise TagfillError(
            f"Folds are of the training split; the run itself has not seen '{split}': leave --folds out."
        )
    best = {
        MISSING: Best(missing, per_class, lambda pairs: pairs.value if order == "value" else pairs.probability),
        WRONG: Best(wrong, per_class, wrongness),
    }
    errors: list[tuple[float, float]] = []
    with tempfile.TemporaryDirectory() as temporary:
        parts = cross_fit(
            Path(run),
            data,
            split,
            folds=folds,
            out=Path(out or temporary),
            features=None if features is None else Path(features),
            jobs=jobs,
            workers=workers,
            progress=progress,
        )
        for part in parts:
            if part.errors is not None and part.errors not in errors:
                errors.append(part.errors)
            for kind, pairs in _pairs(data, part, minimum).items():
                best[kind].add(pairs)
    chosen = {kind: one.pairs() for kind, one in best.items()}
    table = pa.concat_tables(_table(data, kind, pairs) for kind, pairs in chosen.items())
    origin = {"run": str(Path(run).absolute()), "dataset": data.name, "split": split, "identities": data.identities}
    suggestions = Suggestions(table, origin)
    calibration = (
        None if not errors else (float(np.mean([e[0] for e in errors])), float(np.mean([e[1] for e in errors])))
    )
    return Suggested(suggestions, folds, calibration, measure(suggestions, data, split, seconds))


def _pairs(data: Dataset, part: Scored, minimum: float) -> dict[str, Pairs]:
    """The candidates among some images: unknown labels, and known ones."""
    labels = data.labels()
    known, looked = labels.rows(part.rows), labels.looked_at(part.rows)
    probability = part.calibration(part.logits)
    value = entropy(probability) * rarity(part.shares)
    found = {}
    for kind, where in ((MISSING, ~looked & (probability >= minimum)), (WRONG, known >= 0)):
        pairs = Pairs.at(where, part.rows, probability, value, known)
        found[kind] = pairs.take(np.flatnonzero(wrongness(pairs) >= max(minimum, 0.5))) if kind == WRONG else pairs
    return found


def _table(data: Dataset, kind: str, pairs: Pairs) -> pa.Table:
    names = pa.array(data.classes, pa.string())
    columns = [
        data.images["image"].take(pa.array(pairs.row)),
        names.take(pa.array(pairs.label)),
        pa.array([kind] * len(pairs), pa.string()),
        pa.array(pairs.annotated == 1, pa.bool_(), mask=pairs.annotated < 0),
        pa.array(pairs.probability.astype(np.float32)),
        pa.array(pairs.value.astype(np.float32)),
    ]
    return pa.table(columns, schema=SCHEMA)
