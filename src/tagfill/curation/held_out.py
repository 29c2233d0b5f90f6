"""Scores of images by models that did not learn from them.

A model remembers what it was told: an unknown label that it was taught to call absent scores low, right or wrong. So
the training split is divided into folds, the recipe of the run is trained once for each with that fold left out, and
each image is scored by the model that has not seen it. Images of any other split are scored by the run itself.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from tagfill.annotations import Dataset
from tagfill.contract import Ranks
from tagfill.curation.calibrating import Calibration, calibrate, calibration_errors
from tagfill.draws import generator
from tagfill.engines import create_engine
from tagfill.errors import TagfillError
from tagfill.experiments.running import Job, run_all
from tagfill.metrics import Gathered
from tagfill.progress import Progress
from tagfill.training import Run
from tagfill.training.evaluation import gather
from tagfill.training.trained import Trained

HELD, TRAIN, VALIDATION = "held-out", "train", "val"


@dataclass(frozen=True)
class Scored:
    """Some images of a split, scored.

    Attributes:
        rows: of the image table.
        logits: n×L.
        calibration: of the model that gave them.
        shares: of images that show each class, as the model expects it of validation images, or else as annotated.
        errors: expected calibration error of that model before and after; None if there is nothing to measure it on.
    """

    rows: NDArray[np.int64]
    logits: NDArray[np.float32]
    calibration: Calibration
    shares: NDArray[np.float64]
    errors: tuple[float, float] | None


def score(
    run: Path,
    dataset: Dataset,
    split: str,
    *,
    folds: int,
    out: Path,
    features: Path | None,
    jobs: int | None,
    workers: int,
    progress: Progress,
) -> Iterator[Scored]:
    """Score a split, part by part.

    Args:
        run: a run folder, or for `folds` 0 a model folder.
        dataset: opened from a folder.
        split: to score.
        folds: models to train for the training split; 0 asks the run itself.
        out: folder of the models that are trained; they are used again.
        features: a feature cache to use instead of images; models of folds use that of the run by default.
        jobs: processes that train at once.
        workers: processes that decode images.
        progress: told about the runs.
    """
    if folds == 0:
        yield from _scored(run, dataset, split, dataset.split(split), features, workers)
        return
    if not (run / "run.json").exists():
        raise TagfillError(f"{run} is a model without its recipe, so no other can be trained like it; give --folds 0.")
    recipe = Run.open(run).recipe
    if features is not None:
        recipe = recipe.model_copy(update={"features": str(features.absolute())})
    parts = [dataset.split(split)[fold] for fold in divided(len(dataset.split(split)), folds, recipe.seed)]
    work = []
    for number, rows in enumerate(parts):
        data = without(dataset, rows).save(out / f"fold-{number}" / "data")
        place = str((out / f"fold-{number}" / "data").absolute())
        fold = recipe.model_copy(update={"dataset": place})
        job = Job(f"fold {number + 1}", fold, out / f"fold-{number}" / "run", HELD)
        work.append((job, data, rows))
    outcomes = run_all([job for job, _, _ in work], create_engine(workers=jobs), progress)
    for (job, data, rows), outcome in zip(work, outcomes, strict=True):
        if outcome.error is not None:
            raise TagfillError(outcome.error)
        yield from _scored(job.folder, data, HELD, rows, features or recipe.final_features, workers)


def divided(size: int, folds: int, seed: int) -> list[NDArray[np.int64]]:
    """Positions of each fold, drawn at random, ascending.

    >>> sorted(np.concatenate(divided(10, 3, seed=0)).tolist()) == list(range(10))
    True
    """
    if not 2 <= folds <= max(size, 1):
        raise TagfillError(
            f"{size} images cannot be divided into {folds} folds; give --folds 2 or more, or 0 for none."
        )
    order = generator(seed, "folds").permutation(size)
    return [np.sort(order[fold::folds]) for fold in range(folds)]


def without(dataset: Dataset, rows: NDArray[np.int64]) -> Dataset:
    """The dataset with some images of the training split set aside in a split of their own."""
    splits = dataset.split_of_images()
    splits[rows] = HELD
    return dataset.with_splits(splits).replace(folder=None)


def _scored(
    run: Path, dataset: Dataset, split: str, rows: NDArray[np.int64], features: str | Path | None, workers: int
) -> Iterator[Scored]:
    trained = Trained.open(run, dataset, features=features, workers=workers)
    calibration, errors = Calibration(1.0, np.zeros(len(dataset.classes)), fitted=False), None
    shares = (dataset.labels().positives + 1) / (len(dataset) + 2)
    if VALIDATION in dataset.splits and split != VALIDATION:
        seen: Gathered = gather(trained.predict(VALIDATION), Ranks(), len(dataset.classes))
        calibration = calibrate(seen.scores, seen.labels)
        errors = calibration_errors(seen.scores, seen.labels) if calibration.fitted else None
        shares = calibration(seen.scores).mean(0)
    for batch, prediction in trained.predict(split):
        positions = batch.index.numpy()
        yield Scored(rows[positions], prediction.logits.float().numpy(force=True), calibration, shares, errors)
