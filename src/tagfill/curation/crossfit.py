"""From scores to probabilities that mean what they say.

    p(present) = σ(a·z + b + δ_c)

`a` and `b` are shared by all classes and fitted by maximum likelihood on known labels (Platt, Probabilistic Outputs for
Support Vector Machines, 1999); δ_c is an offset of a class, held near zero by a normal prior of unit variance, so that
a class with a handful of labels is not believed beyond them.


Scores of images by models that did not learn from them.

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

from tagfill.contract import Ranks
from tagfill.dataset import Dataset
from tagfill.engines import create_engine
from tagfill.errors import TagfillError
from tagfill.experiments.runs import Job, run_all
from tagfill.metrics import GatheredPredictions, expected_calibration_error
from tagfill.probabilities import sigmoid
from tagfill.progress import Progress
from tagfill.rng import generator
from tagfill.training import Run
from tagfill.training.evaluation import LoadedModel, gather

_STEPS = 50
_ENOUGH = 1e-10


@dataclass(frozen=True)
class Calibration:
    """How scores become probabilities.

    Attributes:
        slope: a.
        offset: b + δ_c of each class.
        fitted: False if there were no labels to fit to; the probabilities are then the plain sigmoid.
    """

    slope: float
    offset: NDArray[np.float64]
    fitted: bool = True

    def __call__(self, logits: NDArray[np.floating]) -> NDArray[np.float64]:
        """Probabilities of N×L logits."""
        return sigmoid(self.slope * np.asarray(logits, dtype=np.float64) + self.offset)


def calibrate(logits: NDArray[np.floating], labels: NDArray[np.integer]) -> Calibration:
    """Fit to known labels.

    Args:
        logits: N×L.
        labels: N×L, 1 present, 0 absent, -1 unknown, which is left out.

    Example:
        >>> sure = np.array([[9.0], [-9.0], [9.0], [-9.0]])
        >>> abs(round(calibrate(sure, np.array([[1], [0], [0], [1]])).slope, 2))  # and right half of the time
        0.0
    """
    known = labels >= 0
    width = logits.shape[1]
    z = np.asarray(logits, dtype=np.float64)[known]
    y = (labels[known] == 1).astype(np.float64)
    if not len(y) or y.min() == y.max():
        return Calibration(1.0, np.zeros(width), fitted=False)
    slope, offset = _fit(z, y)
    class_of = np.nonzero(known)[1]
    base = slope * z + offset
    deltas = np.zeros(width)
    for _ in range(_STEPS):
        p = sigmoid(base + deltas[class_of])
        gradient = np.bincount(class_of, weights=p - y, minlength=width) + deltas
        curvature = np.bincount(class_of, weights=p * (1 - p), minlength=width) + 1
        step = gradient / curvature
        deltas -= step
        if np.abs(step).max() < _ENOUGH:
            break
    return Calibration(slope, offset + deltas)


def calibration_errors(logits: NDArray[np.floating], labels: NDArray[np.integer]) -> tuple[float, float]:
    """Expected calibration error before and after; each half of the images is judged by a fit to the other half."""
    before = expected_calibration_error(sigmoid(logits), labels)
    after = np.empty(logits.shape)
    for half in (0, 1):
        after[half::2] = calibrate(logits[1 - half :: 2], labels[1 - half :: 2])(logits[half::2])
    return before, expected_calibration_error(after, labels)


def _fit(z: NDArray[np.float64], y: NDArray[np.float64]) -> tuple[float, float]:
    """Slope and offset by Newton's method, with a faint pull towards no change, which separable labels need."""
    design = np.stack([z, np.ones_like(z)])
    weights, rest = np.array([1.0, 0.0]), np.array([1.0, 0.0])
    faint = np.diag([1e-3, 1e-3])
    for _ in range(_STEPS):
        p = sigmoid(weights @ design)
        gradient = design @ (p - y) + faint @ (weights - rest)
        curvature = (design * (p * (1 - p))) @ design.T + faint
        step = np.linalg.solve(curvature, gradient)
        largest = np.abs(step).max()
        weights = weights - step * min(1.0, 2.0 / max(largest, 1e-12))  # a long step may overshoot
        if largest < _ENOUGH:
            break
    return float(weights[0]), float(weights[1])


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


def cross_fit(
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
    trained = LoadedModel.open(run, dataset, features=features, workers=workers)
    calibration, errors = Calibration(1.0, np.zeros(len(dataset.classes)), fitted=False), None
    shares = (dataset.labels().positives + 1) / (len(dataset) + 2)
    if VALIDATION in dataset.splits and split != VALIDATION:
        seen: GatheredPredictions = gather(trained.predict(VALIDATION), Ranks(), len(dataset.classes))
        calibration = calibrate(seen.scores, seen.labels)
        errors = calibration_errors(seen.scores, seen.labels) if calibration.fitted else None
        shares = calibration(seen.scores).mean(0)
    for batch, prediction in trained.predict(split):
        positions = batch.index.numpy()
        yield Scored(rows[positions], prediction.logits.float().numpy(force=True), calibration, shares, errors)
