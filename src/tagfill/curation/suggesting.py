"""Suggesting: the unknown labels that are most likely there, and the annotations that are most likely wrong."""

from __future__ import annotations

import os
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from tagfill.annotations import Dataset
from tagfill.curation.held_out import TRAIN, Scored, score
from tagfill.curation.measuring import Measured, measure
from tagfill.curation.ranking import ORDERS, Best, Pairs, entropy, rarity, wrongness
from tagfill.curation.suggestions import MISSING, SCHEMA, WRONG, Suggestions
from tagfill.errors import TagfillError, one_of
from tagfill.progress import SILENT, Progress


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
        order: `probability` or `value`, which see `tagfill.curation.ranking`.
        features: a feature cache, or its folder, to use instead of images; models of folds use the run's by default.
        out: folder of the models that are trained, to be used again; by default they are thrown away.
        jobs: processes that train at once; one a core by default.
        workers: processes that decode images.
        seconds: that a reviewer takes for a suggestion, for labels recovered an hour.
        progress: told about the runs.

    Example:
        >>> from tagfill.curation.suggesting import suggest
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
        parts = score(
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
