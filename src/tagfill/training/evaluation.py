"""Scoring a model on a split, on any number of processes."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from tagfill.annotations import Dataset
from tagfill.contract import Batch, Prediction, Ranks
from tagfill.metrics import Gathered, Localisation, Localised, Predictions, average_precision
from tagfill.training import localising
from tagfill.training.folder import Run
from tagfill.training.trained import Trained


@dataclass(frozen=True)
class Evaluation:
    """How well a model ranks the images of a split.

    Attributes:
        split: that was scored.
        classes: names.
        average_precision: of each class in 0…1, NaN where no image is known to show it.
        images: number of images scored.
        known: number of known labels of each class.
        localised: how well class maps find the classes, where that was asked for.
    """

    split: str
    classes: tuple[str, ...]
    average_precision: NDArray[np.float64]
    images: int
    known: NDArray[np.int64]
    localised: Localised | None = None

    @property
    def mean(self) -> float:
        """Mean average precision over the classes that have one, in 0…1."""
        return float(np.nanmean(self.average_precision))

    def to_json(self) -> dict[str, Any]:
        """As plain values, with mAP in percent."""
        rows = zip(self.classes, self.average_precision.tolist(), self.known.tolist(), strict=True)
        found: dict[str, Any] = {
            "split": self.split,
            "images": self.images,
            "mAP": 100 * self.mean,
            "classes": [{"class": c, "AP": None if np.isnan(ap) else 100 * ap, "known": n} for c, ap, n in rows],
        }
        if self.localised is not None:
            found["mAP_loc"] = 100 * self.localised.mean
            found["mAP_loc_at"] = {str(at): 100 * value for at, value in self.localised.means().items()}
            for row, value in zip(found["classes"], self.localised.average_precision.mean(1).tolist(), strict=True):
                row["AP_loc"] = None if np.isnan(value) else 100 * value
        return found


def gather(passes: Iterator[tuple[Batch, Prediction]], ranks: Ranks, width: int) -> Gathered:
    """Logits and labels of all ranks' images, in the order of the split."""
    index, logits, labels = (
        [torch.empty(0, dtype=torch.int64)],
        [torch.empty(0, width)],
        [torch.empty(0, width, dtype=torch.int8)],
    )
    for batch, prediction in passes:
        index.append(batch.index)
        logits.append(prediction.logits.cpu())
        labels.append(batch.labels.cpu())
    everybody = Predictions()
    parts = (ranks.gather(torch.cat(column)) for column in (index, logits, labels))
    for part in zip(*parts, strict=True):
        everybody.update(*(column.numpy() for column in part))
    return everybody.compute()


def share(size: int, ranks: Ranks) -> NDArray[np.int64]:
    """The positions of a split of `size` images that this rank evaluates."""
    return np.arange(ranks.rank, size, ranks.world)


def summarise(gathered: Gathered, split: str, classes: tuple[str, ...]) -> Evaluation:
    """Average precision of what was gathered."""
    return Evaluation(
        split,
        classes,
        average_precision(gathered.scores, gathered.labels),
        len(gathered.index),
        (gathered.labels >= 0).sum(0),
    )


def evaluate(
    run: Run | str | Path,
    dataset: Dataset,
    *,
    split: str = "test",
    features: str | Path | None = None,
    workers: int = 0,
    localise: str | None = None,
    boost: float | None = None,
    boost_from: float | None = None,
) -> Evaluation:
    """Score a trained model on a split.

    Args:
        run: a run or its folder, or a model folder.
        dataset: with the classes that the model was trained on.
        split: to score.
        features: a cache of the dataset's features to use instead of its images.
        workers: processes that decode images.
        localise: also score class maps (mAP-loc): scaled by `minmax`, by `sigmoid`, or `coupled` with attention.
        boost: α of BoostLU in place of what the model was trained with; 1 is none.
        boost_from: β likewise.

    Example:
        >>> tagfill.evaluate("runs/photos", data, split="test").mean  # doctest: +SKIP
        0.78
    """
    trained = Trained.open(
        run,
        dataset,
        features=features,
        workers=workers,
        maps=localise is not None,
        boost=boost,
        boost_from=boost_from,
    )
    width = len(dataset.classes)
    if localise is None:
        return summarise(gather(trained.predict(split), Ranks(), width), split, dataset.classes)
    places, found = localising.places(dataset, split), Localisation(width)
    passes = trained.predict(split, maps=True, attention=localise == "coupled")
    watched = localising.watch(passes, places, found, maps=localise)
    scored = summarise(gather(watched, Ranks(), width), split, dataset.classes)
    return replace(scored, localised=found.compute())
