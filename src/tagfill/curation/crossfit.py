"""Cross-fitting: score each image with a model that was not trained on it, and calibrate the scores.

A model remembers its training labels: it scores an unknown label low if it was trained to call it absent, right or
wrong. So the training split is divided into folds, the recipe of the run is trained once per fold without that fold,
and each image is scored by the model that has not seen it. Images of any other split are scored by the run itself.

Scores become probabilities by

    p(present) = σ(a·z + b + δ_c)

`a` and `b` are shared by all classes and fitted by maximum likelihood on the labels of a complete validation split
(Platt, Probabilistic Outputs for Support Vector Machines, 1999). δ_c is an offset per class with a normal prior of unit
variance, which keeps the offset of a class with few labels near zero. Without such a split they are estimated from the
tags alone, and in both cases the probability of an unknown pair takes into account that the tags that were given are no
longer among the unknown pairs: see `tagfill.inference.estimates`.

If the dataset has evidence of other taggers, logits are those of model and evidence together
(`tagfill.curation.combination`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from tagfill.contract import Ranks
from tagfill.curation.combination import Combination, open_standardized
from tagfill.curation.estimates import LabelEstimates, estimate_labels, least_tags, measure_labels, uncorrected
from tagfill.dataset import Dataset
from tagfill.engines import create_engine
from tagfill.errors import TagfillError
from tagfill.evidence import ScoreMatrix, copy_evidence
from tagfill.experiments.runs import RunJob, jobs_on, run_jobs
from tagfill.labels import POSITIVE, LabelMatrix
from tagfill.metrics import GatheredPredictions, expected_calibration_error
from tagfill.probabilities import Calibration, calibrate, is_complete, sigmoid
from tagfill.progress import Progress
from tagfill.rng import generator
from tagfill.training import Run
from tagfill.training.evaluation import LoadedModel, gather_predictions

HELD_OUT, TRAIN, VALIDATION = "held-out", "train", "val"
_MOST_PAIRS = 20_000_000  # scores that are kept in memory
_COVERED = 0.95  # share of the pairs of a validation split that must have evidence to calibrate on it


@dataclass(frozen=True)
class ScoredImages:
    """Images of a split and their scores.

    Attributes:
        rows: rows of the image table.
        logits: n×L, of the model, or of model and evidence together.
        estimates: calibration of the model that made the scores, and how many labels are missing.
        errors: expected calibration error of the model before and after; None if it cannot be measured.
        combination: of the model and of evidence, which made the logits; None if there is no evidence.
        alone: the same images scored by the model alone, if there is evidence.
    """

    rows: NDArray[np.int64]
    logits: NDArray[np.float32]
    estimates: LabelEstimates
    errors: tuple[float, float] | None
    combination: Combination | None = None
    alone: ScoredImages | None = None

    @property
    def weights(self) -> Mapping[str, float]:
        """Of the model and of each piece of evidence; empty if there is none."""
        return {} if self.combination is None else self.combination.shares

    @property
    def by_model(self) -> ScoredImages:
        """Scores of the model alone, which is all that new photos have."""
        return self if self.alone is None else self.alone

    @property
    def calibration(self) -> Calibration:
        """Calibration of the model that made the scores."""
        return self.estimates.calibration

    @property
    def shares(self) -> NDArray[np.float64]:
        """Expected share of images that show each class."""
        return self.estimates.priors

    def take(self, which: NDArray[np.integer]) -> ScoredImages:
        """The images at these positions."""
        alone = None if self.alone is None else self.alone.take(which)
        return replace(self, rows=self.rows[which], logits=self.logits[which], alone=alone)


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
    device: str = "auto",
    labels: LabelMatrix | None = None,
    evidence: Sequence[str] | None = None,
    progress: Progress,
) -> Iterator[ScoredImages]:
    """Score a split, batch by batch.

    Args:
        run: a run folder; with `folds=0` also a model folder.
        dataset: opened from a folder.
        split: split to score.
        folds: number of models to train for the training split; 0 scores with the run itself.
        out: folder for the fold models; finished ones are reused.
        features: a feature cache to use instead of images; by default, fold models use that of the run.
        jobs: number of processes that train.
        workers: number of threads that decode images.
        device: of the networks.
        labels: of all images, to estimate from how labels went missing, if the dataset has more than were given at
            first, such as decisions of a review; by default those of the dataset.
        evidence: names of evidence to combine with the model; by default all that the dataset has.
        progress: shows the runs.
    """
    given = dataset.labels() if labels is None else labels
    opinions = open_standardized(dataset, evidence)
    if folds == 0:
        models = [_ScoringModel(run, dataset, split, dataset.split(split), features, workers, device)]
        if split == TRAIN and opinions:
            progress.say(f"Evidence is not used ({', '.join(opinions)}): the run was trained on these labels.")
            opinions = {}
        yield from _score(models, dataset, given, opinions, progress, cross_fitted=split != TRAIN)
        return
    if not (run / "run.json").exists():
        raise TagfillError(f"{run} has no recipe to train fold models with; give a run folder, or --folds 0.")
    recipe = Run.open(run).recipe
    if features is not None:
        recipe = recipe.model_copy(update={"features": str(features.absolute())})
    rows_of_folds = [dataset.split(split)[fold] for fold in split_folds(len(dataset.split(split)), folds, recipe.seed)]
    work = []
    for number, rows in enumerate(rows_of_folds):
        folder = out / f"fold-{number}"
        data = hold_out(dataset, rows).save(folder / "data")
        copy_evidence(dataset, folder / "data")
        fold_recipe = recipe.model_copy(update={"dataset": str((folder / "data").absolute())})
        work.append((RunJob(f"fold {number + 1}", fold_recipe, folder / "run", HELD_OUT, device=device), data, rows))
    outcomes = run_jobs([job for job, _, _ in work], create_engine(workers=jobs_on(device, jobs)), progress)
    models = []
    for (job, data, rows), outcome in zip(work, outcomes, strict=True):
        if outcome.error is not None:
            raise TagfillError(outcome.error)
        cache = features or recipe.final_features
        models.append(_ScoringModel(job.folder, data, HELD_OUT, rows, cache, workers, device))
    yield from _score(models, dataset, given, opinions, progress, cross_fitted=True)


def split_folds(size: int, folds: int, seed: int) -> list[NDArray[np.int64]]:
    """Random folds: ascending positions of each.

    >>> sorted(np.concatenate(split_folds(10, 3, seed=0)).tolist()) == list(range(10))
    True
    """
    if not 2 <= folds <= max(size, 1):
        raise TagfillError(
            f"{size} images cannot be divided into {folds} folds; give --folds 2 or more, or 0 for none."
        )
    order = generator(seed, "folds").permutation(size)
    return [np.sort(order[fold::folds]) for fold in range(folds)]


def hold_out(dataset: Dataset, rows: NDArray[np.int64]) -> Dataset:
    """The dataset with some images of the training split moved to the split `held-out`."""
    splits = dataset.split_of_images()
    splits[rows] = HELD_OUT
    return dataset.with_splits(splits).replace(folder=None)


@dataclass(frozen=True)
class _ScoringModel:
    """A model and the images that it scores.

    Attributes:
        run: its folder.
        dataset: with the split.
        split: of the images.
        rows: of these images in the image table.
        features: a feature cache to use instead of images.
        workers: number of threads that decode images.
        device: of the network.
    """

    run: Path
    dataset: Dataset
    split: str
    rows: NDArray[np.int64]
    features: str | Path | None
    workers: int
    device: str

    def load(self) -> LoadedModel:
        """The model."""
        return LoadedModel.open(
            self.run, self.dataset, features=self.features, workers=self.workers, device=self.device
        )

    def scores(
        self, model: LoadedModel, positions: NDArray[np.int64] | None = None
    ) -> Iterator[tuple[NDArray[np.int64], NDArray[np.float32]]]:
        """Rows and logits of these positions of the split, or of all, in batches."""
        for batch, prediction in model.predict(self.split, positions):
            yield self.rows[batch.index.numpy()], prediction.logits.float().numpy(force=True)


def _score(
    models: list[_ScoringModel],
    dataset: Dataset,
    labels: LabelMatrix,
    evidence: Mapping[str, ScoreMatrix],
    progress: Progress,
    *,
    cross_fitted: bool,
) -> Iterator[ScoredImages]:
    """Score the images of each model.

    What is missing is estimated from all images together: from all of their scores, or from a sample if these do not
    fit into memory, and then the images are scored once more.
    """
    width = len(dataset.classes)
    size = sum(len(each.rows) for each in models)
    keep = min(1.0, _MOST_PAIRS / max(size * width, 1))
    validations: list[_Validation] = []
    scored: list[list[_Batch]] = []
    for each in models:
        model = each.load()
        validations.append(_validate(model, each))
        positions = None
        if keep < 1:
            count = min(len(each.rows), int(np.ceil(keep * len(each.rows))))
            positions = np.sort(generator(0, "estimates").permutation(len(each.rows))[:count])
        scored.append(list(each.scores(model, positions)))
    measured = [validation.measure(None) for validation in validations]
    estimates = _estimate(measured, scored, labels, width, cross_fitted)
    combination = _learn_combination(dict(evidence), scored, validations, labels) if evidence else None
    if evidence and combination is None:
        known = sum(int((labels.rows(rows) == POSITIVE).sum()) for parts in scored for rows, _ in parts)
        progress.say(
            f"Evidence is not used ({', '.join(evidence)}): too few tags are known to learn how much it counts "
            f"({known:,}; it takes about {least_tags(width):,})."
        )
    combined, of_both = measured, estimates
    if combination is not None:
        together = [[(rows, combination(rows, logits)) for rows, logits in parts] for parts in scored]
        combined = [validation.measure(combination) for validation in validations]
        of_both = _estimate(combined, together, labels, width, cross_fitted)
    for number, each in enumerate(models):
        for rows, logits in scored[number] if keep == 1 else each.scores(each.load()):
            alone = ScoredImages(rows, logits, estimates[number], measured[number][1])
            if combination is None:
                yield alone
                continue
            logits = combination(rows, logits)
            yield ScoredImages(rows, logits, of_both[number], combined[number][1], combination, alone)


_Batch = tuple[NDArray[np.int64], NDArray[np.float32]]
_Measured = tuple[Calibration | None, tuple[float, float] | None]


@dataclass(frozen=True)
class _Validation:
    """What a model says about a complete validation split.

    Attributes:
        saved: calibration that is saved with the model.
        rows: images of the split; None if there is no complete one.
        logits: n×L.
        labels: n×L.
    """

    saved: Calibration | None
    rows: NDArray[np.int64] | None = None
    logits: NDArray[np.floating] | None = None
    labels: NDArray[np.integer] | None = None

    def measure(self, combination: Combination | None) -> _Measured:
        """Calibration on the split and its errors; the saved one if there is no such split.

        A saved calibration is that of the model alone, and says nothing about logits that are combined with evidence.
        """
        if self.rows is None or self.logits is None or self.labels is None:
            return (self.saved if combination is None else None), None
        logits = self.logits
        if combination is not None:
            if combination.covers(self.rows) < _COVERED:
                return None, None
            logits = combination(self.rows, logits)
        return calibrate(logits, self.labels), calibration_errors(logits, self.labels)


def _validate(model: LoadedModel, scoring: _ScoringModel) -> _Validation:
    """Score the validation split, if its labels are complete and another one is to be scored."""
    saved = model.model.calibration
    if VALIDATION in scoring.dataset.splits and scoring.split != VALIDATION:
        found: GatheredPredictions = gather_predictions(
            model.predict(VALIDATION), Ranks(), len(scoring.dataset.classes)
        )
        if is_complete(found.labels):
            rows = scoring.dataset.split(VALIDATION)
            return _Validation(saved, rows[found.index], found.scores, found.labels)
    return _Validation(saved)


def _learn_combination(
    evidence: dict[str, ScoreMatrix],
    scored: list[list[_Batch]],
    validations: list[_Validation],
    labels: LabelMatrix,
) -> Combination | None:
    """Weights from the known labels of the scored images, else from a complete validation split."""
    rows = np.concatenate([rows for parts in scored for rows, _ in parts] or [np.empty(0, np.int64)])
    if len(rows):
        logits = np.concatenate([logits for parts in scored for _, logits in parts])
        found = Combination.learn(evidence, rows, logits, labels.rows)
        if found is not None:
            return found
    first = validations[0] if validations else _Validation(None)
    if first.rows is None or first.logits is None:
        return None
    return Combination.learn(evidence, first.rows, first.logits, labels.rows)


def _estimate(
    measured: list[_Measured], scored: list[list[_Batch]], labels: LabelMatrix, width: int, cross_fitted: bool
) -> list[LabelEstimates]:
    """The estimates of each model: measured, else estimated from the tags, else uncorrected."""
    parts = [
        (
            np.concatenate([np.empty((0, width), np.float32), *(logits for _, logits in batches)]),
            np.concatenate([np.empty((0, width), np.int8), *(labels.rows(rows) for rows, _ in batches)]),
        )
        for batches in scored
    ]
    if all(calibration is not None for calibration, _ in measured):
        return [measure_labels(c, *part) for (c, _), part in zip(measured, parts, strict=True) if c is not None]
    logits, known = (np.concatenate([part[column] for part in parts]) for column in (0, 1))
    estimates = estimate_labels(logits, known) if cross_fitted else None
    return [estimates or uncorrected(Calibration.identity(width), known)] * len(parts)


def calibration_errors(logits: NDArray[np.floating], labels: NDArray[np.integer]) -> tuple[float, float]:
    """Expected calibration error before and after calibration; each half of the images is calibrated on the other."""
    before = expected_calibration_error(sigmoid(logits), labels)
    after = np.empty(logits.shape)
    for half in (0, 1):
        after[half::2] = calibrate(logits[1 - half :: 2], labels[1 - half :: 2])(logits[half::2])
    return before, expected_calibration_error(after, labels)
