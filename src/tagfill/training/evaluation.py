"""Scoring a model on a split, on any number of processes."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import get_args

import numpy as np
import torch
from numpy.typing import NDArray

from tagfill.annotations import Dataset
from tagfill.contract import Batch, Prediction, Ranks
from tagfill.errors import TagfillError, one_of
from tagfill.metrics import (
    Definition,
    Empty,
    Gathered,
    Localisation,
    Predictions,
    at_k,
    average_precision,
    best_thresholds,
    bootstrap_interval,
    confusions,
    count,
    expected_calibration_error,
    group_means,
    mean_average_precision_by_label_count,
    top_1,
    where_ranked,
)
from tagfill.probabilities import probabilities
from tagfill.training import localising
from tagfill.training.folder import Run
from tagfill.training.scored import Evaluation
from tagfill.training.trained import Trained

BEST = (1, 3, 5)
"""The k of precision and recall of the best k classes."""

DEFAULT_THRESHOLD = 0.5


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


def choose_thresholds(gathered: Gathered) -> NDArray[np.float64]:
    """Of each class the probability with the best F1 on what was gathered; 0.5 for a class that it does not show."""
    return best_thresholds(probabilities(gathered.scores), gathered.labels, default=DEFAULT_THRESHOLD)


def ranked(
    scores: NDArray[np.floating], labels: NDArray[np.integer], definition: Definition, empty: Empty
) -> NDArray[np.float64]:
    """Average precision of each class; NaN for one without a known positive and, by `skip`, without a known negative.

    >>> ranked(np.array([[0.9, 0.9], [0.1, 0.1]]), np.array([[1, 1], [0, -1]], np.int8), "step", "skip")
    array([ 1., nan])
    """
    values = average_precision(scores, labels, definition=definition)
    return values if empty == "zero" else where_ranked(values, labels)


def summarise(
    gathered: Gathered,
    split: str,
    classes: tuple[str, ...],
    thresholds: tuple[NDArray[np.float64], str],
    definition: Definition,
    empty: Empty,
) -> Evaluation:
    """All that is measured without being asked for."""
    scores, labels = gathered.scores, gathered.labels
    shares, (limits, origin) = probabilities(scores), thresholds
    return Evaluation(
        split,
        classes,
        ranked(scores, labels, definition, empty),
        len(gathered.index),
        (labels >= 0).sum(0),
        (labels == 1).sum(0),
        limits,
        origin,
        count(shares, labels, limits),
        {k: at_k(scores, labels, k) for k in BEST if k <= len(classes)},
        top_1(scores, labels),
        expected_calibration_error(shares, labels),
        mean_average_precision_by_label_count(scores, labels, definition=definition),
        definition,
        empty,
        confusions(shares >= limits, labels),
    )


def evaluate(
    run: Run | str | Path,
    dataset: Dataset,
    *,
    split: str = "test",
    features: str | os.PathLike[str] | None = None,
    workers: int = 0,
    localise: str | None = None,
    boost: float | None = None,
    boost_from: float | None = None,
    definition: Definition = "step",
    empty: Empty = "skip",
    ceiling: Run | str | Path | None = None,
    bootstrap: int = 0,
    groups: int | None = None,
    seed: int = 0,
) -> Evaluation:
    """Score a trained model on a split.

    Args:
        run: a run or its folder, or a model folder.
        dataset: with the classes that the model was trained on.
        split: to score.
        features: a cache of the dataset's features, or its folder, to use instead of its images.
        workers: processes that decode images.
        localise: also score class maps (mAP-loc): scaled by `minmax`, by `sigmoid`, or `coupled` with attention.
        boost: α of BoostLU in place of what the model was trained with; 1 is none.
        boost_from: β likewise.
        definition: of average precision: `step`, `rank`, `voc12` or `voc07`, see `tagfill.metrics.average_precision`.
        empty: what a class counts in the mean of which no positive, or no negative, is known: nothing (`skip`), or 0
            without a positive and 1 without a negative (`zero`).
        ceiling: a run or model to hold this one against, such as one trained on complete labels.
        bootstrap: resamples of the images for an interval of mAP, for `step` and `skip` alone; 0 makes none.
        groups: also the mean of so many groups of classes, by how often each is annotated in training.
        seed: of the resamples.

    Example:
        >>> tagfill.evaluate("runs/photos", data, split="test").mean  # doctest: +SKIP
        0.78
    """
    width = len(dataset.classes)
    if groups is not None and not 1 <= groups <= width:
        raise TagfillError(f"{width} classes do not make {groups} groups; give between 1 and {width}.")
    one_of("definition", definition, get_args(Definition))
    one_of("empty", empty, get_args(Empty))
    if bootstrap and (definition, empty) != ("step", "skip"):
        raise TagfillError("The interval is that of mAP by step and skip; leave out bootstrap with other definitions.")
    trained = Trained.open(
        run,
        dataset,
        features=features,
        workers=workers,
        maps=localise is not None,
        boost=boost,
        boost_from=boost_from,
    )
    better = None if ceiling is None else Trained.open(ceiling, dataset, features=features, workers=workers)
    thresholds = _thresholds(trained, changed=boost is not None or boost_from is not None)
    passes = trained.predict(split, maps=localise is not None, attention=localise == "coupled")
    found: Localisation | None = None
    if localise is not None:
        found = Localisation(width)
        passes = localising.watch(passes, localising.places(dataset, split), found, maps=localise)
    gathered = gather(passes, Ranks(), width)
    scored = summarise(gathered, split, dataset.classes, thresholds, definition, empty)
    if found is not None:
        scored = replace(scored, localised=found.compute())
    if better is not None:
        best = gather(better.predict(split), Ranks(), width)
        scored = replace(scored, ceiling=ranked(best.scores, best.labels, definition, empty))
    if bootstrap:
        interval = bootstrap_interval(gathered.scores, gathered.labels, resamples=bootstrap, seed=seed)
        scored = replace(scored, interval=interval)
    if groups is not None:
        annotations = dataset.labels("train").known
        scored = replace(scored, groups=group_means(scored.average_precision, annotations, groups=groups))
    return scored


def _thresholds(trained: Trained, *, changed: bool) -> tuple[NDArray[np.float64], str]:
    """Those that were saved with the model, if its scores are still the same; else chosen anew on validation."""
    if trained.model.thresholds is not None and not changed:
        return np.array(trained.model.thresholds), "saved with the model, chosen on validation"
    width = len(trained.dataset.classes)
    if "val" in trained.dataset.splits:
        gathered = gather(trained.predict("val"), Ranks(), width)
        if (gathered.labels == 1).any() and (gathered.labels == 0).any():
            return choose_thresholds(gathered), "chosen on val, now"
    return np.full(width, DEFAULT_THRESHOLD), "0.5, for lack of validation"
