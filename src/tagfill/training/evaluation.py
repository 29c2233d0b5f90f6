"""Evaluation passes: a model looks at images as they are, without learning from them.

Looking at the class maps of an evaluation pass: do they light up where the labels are?

Truth is painted into a square raster of each view, from the masks and boxes of the dataset; points have no area, so a
class that has nothing else in an image is left out there. IoA is a share, so the raster need not have the proportions
of the image.

Which labels validation is measured against.

A trained model, together with the data that it is asked about.

Scoring a model on a split, on any number of processes.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import get_args

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import torch
from numpy.typing import NDArray
from torch import nn

from tagfill.contract import Batch, Marks, Prediction, Ranks
from tagfill.data import FeatureCache, FeatureSource, Locations, PixelSource, Source
from tagfill.dataset import SCHEMA, Dataset, masks
from tagfill.dataset.tables import OBSERVED
from tagfill.errors import DatasetError, TagfillError, one_of
from tagfill.images import EVAL
from tagfill.images.geometry import Geometry
from tagfill.inference.pipeline import score
from tagfill.inference.torch_predictor import forward
from tagfill.labels import NEGATIVE, POSITIVE
from tagfill.metrics import (
    Definition,
    Empty,
    GatheredPredictions,
    LocalizationMeter,
    Predictions,
    average_precision,
    best_thresholds,
    bootstrap_interval,
    confusions,
    count,
    expected_calibration_error,
    group_means,
    intersection_over_prediction,
    mean_average_precision_by_label_count,
    nan_without_negatives,
    precision_recall_at_k,
    top1_accuracy,
)
from tagfill.models import Classifier
from tagfill.probabilities import probabilities
from tagfill.training.evaluation_result import Evaluation
from tagfill.training.run_folder import Run


def predict(
    model: nn.Module,
    source: Source,
    split: str,
    index: NDArray[np.int64],
    *,
    maps: bool = False,
    attention: bool = False,
    place: Callable[[Batch], Batch] = lambda batch: batch,
) -> Iterator[tuple[Batch, Prediction]]:
    """Score some positions of a split in evaluation mode; `place` moves a batch to the model's device."""
    wanted = {"maps": maps, "attention": True} if attention else {"maps": maps}
    training = model.training
    model.eval()
    try:
        yield from score(functools.partial(forward, model), map(place, source.evaluate(split, index)), **wanted)
    finally:
        model.train(training)


RASTER = 224
MAPS = ("minmax", "sigmoid", "coupled")


def places(dataset: Dataset, split: str) -> Locations:
    """Where the labels of a split are; an error if nothing of it has an extent."""
    found = Locations.read(dataset, split)
    if not _drawn(found):
        raise TagfillError(
            f"Localisation is measured against boxes or masks, but split '{split}' of {dataset.name} has none."
        )
    return found


def has_extents(dataset: Dataset, split: str) -> bool:
    """Whether localisation can be measured on a split: something of it has a box or a mask."""
    return _drawn(Locations.read(dataset, split))


def _drawn(found: Locations) -> bool:
    return bool((found.box[:, 2:] > 0).all(1).any()) or found.masks.null_count < len(found)


def watch(
    passes: Iterator[tuple[Batch, Prediction]],
    locations: Locations,
    found: LocalizationMeter,
    *,
    maps: str = "minmax",
    raster: int = RASTER,
) -> Iterator[tuple[Batch, Prediction]]:
    """Pass on what an evaluation gives, and add the localisation of each batch to `found`.

    Args:
        passes: with class maps, and attention if `maps` is coupled.
        locations: of the split.
        found: where the result goes.
        maps: class maps S scaled by `minmax`, their `sigmoid`, or S times attention, `coupled`, scaled by minmax.
        raster: side of the square that maps and truth are compared in.
    """
    one_of("maps", maps, MAPS)
    for batch, prediction in passes:
        marks, labels = locations.of(batch.index.numpy(force=True)), batch.labels.numpy(force=True)
        image, label, truth = truth_of(marks, batch.geometry, labels, raster)
        values = _maps(prediction, maps)[image, label]
        overlap = intersection_over_prediction(values, truth, scaling="sigmoid" if maps == "sigmoid" else "minmax")
        found.update(prediction.logits.numpy(force=True), labels, image, label, overlap)
        yield batch, prediction


def truth_of(
    marks: Marks, geometry: Geometry, labels: NDArray[np.integer], raster: int
) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.bool_]]:
    """Where present classes are in their views: image, class and an n×raster×raster truth for each pair.

    A pixel belongs to a class if its middle lies in a box or in a pixel of a mask.
    """
    drawn = np.array([mask is not None for mask in marks.masks], dtype=bool) | (marks.box[:, 2:] > 0).all(1)
    use = np.flatnonzero(drawn & (labels[marks.image, marks.label] == POSITIVE))
    pairs, pair = np.unique(marks.image[use] * labels.shape[1] + marks.label[use], return_inverse=True)
    truth = np.zeros((len(pairs), raster, raster), dtype=bool)
    middles = np.repeat((np.arange(raster)[:, None] + 0.5) / raster, 2, axis=1)
    for mark, into in zip(use.tolist(), pair.tolist(), strict=True):
        across, down = geometry.take(marks.image[mark : mark + 1]).to_image(middles[None])[0].T
        truth[into] |= _painted(marks, mark, across, down)
    return pairs // labels.shape[1], pairs % labels.shape[1], truth


def _painted(marks: Marks, at: int, across: NDArray[np.float64], down: NDArray[np.float64]) -> NDArray[np.bool_]:
    """Which of the places, rows `down` × columns `across`, lie in a mark."""
    mask = marks.masks[at]
    if mask is None:
        x, y, w, h = marks.box[at]
        columns, rows = np.abs(across - x) <= w / 2, np.abs(down - y) <= h / 2
        inside: NDArray[np.bool_] = rows[:, None] & columns
        return inside
    rle, height, width = mask
    column, row = np.floor(across * width).astype(np.int64), np.floor(down * height).astype(np.int64)
    pixels = masks.decode(rle, height, width)
    drawn = pixels[np.clip(row, 0, height - 1)[:, None], np.clip(column, 0, width - 1)]
    within: NDArray[np.bool_] = ((row >= 0) & (row < height))[:, None] & ((column >= 0) & (column < width))
    return drawn & within


def _maps(prediction: Prediction, maps: str) -> NDArray[np.float32]:
    assert prediction.maps is not None
    values = prediction.maps
    if maps == "coupled":
        if prediction.attention is None:
            raise TagfillError("Coupled maps need attention, which the tscam head alone has; choose minmax or sigmoid.")
        values = values * prediction.attention[:, None]
    result: NDArray[np.float32] = values.float().numpy(force=True)
    return result


def can_validate(dataset: Dataset, val_labels: str) -> bool:
    """Whether a validation split has a class that is known to be present somewhere and absent elsewhere.

    Tags alone, with nothing known as absent, leave nothing to rank the tagged images above.

    Args:
        dataset: the data.
        val_labels: `clean`, or `observed`, which reads the rest as absent.
    """
    if "val" not in dataset.splits:
        return False
    if val_labels == "observed":
        return True
    labels = dataset.labels("val")
    present, absent = (np.unique(labels.classes[labels.values == state]) for state in (POSITIVE, NEGATIVE))
    return len(np.intersect1d(present, absent)) > 0


def observed_labels(dataset: Dataset, split: str) -> NDArray[np.int8]:
    """The labels of a split as a protocol would have left them, everything else read as absent: N×L.

    This is how a model is chosen by somebody who has partial labels only.
    """
    rows = pa.Table.from_batches([_flagged(batch) for batch in dataset.scan()], schema=SCHEMA)
    if rows.num_rows == 0:
        raise DatasetError(
            f"val_labels: observed needs a simulated dataset, but no row of {dataset.name} is flagged as observed."
        )
    labels = dataset.replace(annotations=rows, folder=None).labels(split).dense()
    return np.where(labels == POSITIVE, POSITIVE, NEGATIVE).astype(np.int8)


def _flagged(batch: pa.RecordBatch) -> pa.RecordBatch:
    flags = batch["flags"]
    found = pc.list_parent_indices(flags).filter(pc.equal(pc.list_flatten(flags), OBSERVED))
    return batch.take(found.unique()).cast(SCHEMA)


@dataclass(frozen=True)
class LoadedModel:
    """A model and a source of the images, or of their features, that it can look at."""

    model: Classifier
    dataset: Dataset
    source: Source

    @classmethod
    def open(
        cls,
        run: Run | str | Path,
        dataset: Dataset,
        *,
        features: str | os.PathLike[str] | None = None,
        workers: int = 0,
        maps: bool = False,
        boost: float | None = None,
        boost_from: float | None = None,
    ) -> LoadedModel:
        """Load a model and check that it belongs to the data.

        Args:
            run: a run or its folder, or a model folder.
            dataset: with the classes that the model was trained on.
            features: a cache of the dataset's features, or its folder, to use instead of its images.
            workers: processes that decode images.
            maps: class maps will be asked for.
            boost: α of BoostLU in place of what the model was trained with; 1 is none.
            boost_from: β likewise.
        """
        folder = run.folder if isinstance(run, Run) else Path(run)
        model = Classifier.load(folder / "best" if (folder / "best").is_dir() else folder)
        if model.classes != dataset.classes:
            raise TagfillError(f"The model in {folder} was trained on other classes than dataset {dataset.name} has.")
        if boost is not None or boost_from is not None:
            model = _boosted(model, boost, boost_from)
        assert model.backbone is not None
        if features is None:
            pixels = PixelSource(dataset, model.backbone.preprocessing.size, EVAL, seed=0, workers=workers)
            return cls(model, dataset, pixels)
        cache = FeatureCache.open(features, dataset)
        if cache.manifest.fingerprint != model.backbone.fingerprint():
            raise TagfillError(f"The feature cache {features} was made by another backbone than the model in {folder}.")
        source = FeatureSource(dataset, cache, maps=model.spatial or maps, tokens=model.token, seed=0)
        return cls(model, dataset, source)

    def predict(
        self, split: str, index: NDArray[np.int64] | None = None, *, maps: bool = False, attention: bool = False
    ) -> Iterator[tuple[Batch, Prediction]]:
        """Look at these positions of a split, or at all of it."""
        positions = np.arange(len(self.dataset.split(split))) if index is None else index
        return predict(self.model, self.source, split, positions, maps=maps, attention=attention)


def _boosted(model: Classifier, boost: float | None, boost_from: float | None) -> Classifier:
    """A model that boosts in evaluation as asked for, whatever it was trained with."""
    given = {name: value for name, value in {"boost": boost, "boost_from": boost_from}.items() if value is not None}
    kept = {name: value for name, value in model.head.options.items() if name in ("boost", "boost_from")}
    return model.convert_head("cam", **{**kept, **given, "boost_train": False})


BEST = (1, 3, 5)
"""The k of precision and recall of the best k classes."""

DEFAULT_THRESHOLD = 0.5


def gather(passes: Iterator[tuple[Batch, Prediction]], ranks: Ranks, width: int) -> GatheredPredictions:
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


def choose_thresholds(gathered: GatheredPredictions) -> NDArray[np.float64]:
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
    return values if empty == "zero" else nan_without_negatives(values, labels)


def summarise(
    gathered: GatheredPredictions,
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
        {k: precision_recall_at_k(scores, labels, k) for k in BEST if k <= len(classes)},
        top1_accuracy(scores, labels),
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
    trained = LoadedModel.open(
        run,
        dataset,
        features=features,
        workers=workers,
        maps=localise is not None,
        boost=boost,
        boost_from=boost_from,
    )
    better = None if ceiling is None else LoadedModel.open(ceiling, dataset, features=features, workers=workers)
    thresholds = _thresholds(trained, changed=boost is not None or boost_from is not None)
    passes = trained.predict(split, maps=localise is not None, attention=localise == "coupled")
    found: LocalizationMeter | None = None
    if localise is not None:
        found = LocalizationMeter(width)
        passes = watch(passes, places(dataset, split), found, maps=localise)
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


def _thresholds(trained: LoadedModel, *, changed: bool) -> tuple[NDArray[np.float64], str]:
    """Those that were saved with the model, if its scores are still the same; else chosen anew on validation."""
    if trained.model.thresholds is not None and not changed:
        return np.array(trained.model.thresholds), "saved with the model, chosen on validation"
    width = len(trained.dataset.classes)
    if "val" in trained.dataset.splits:
        gathered = gather(trained.predict("val"), Ranks(), width)
        if (gathered.labels == 1).any() and (gathered.labels == 0).any():
            return choose_thresholds(gathered), "chosen on val, now"
    return np.full(width, DEFAULT_THRESHOLD), "0.5, for lack of validation"
