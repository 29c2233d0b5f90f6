"""Evaluation: load a trained model, run it over a split without learning, and score its predictions."""

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

from tagfill.contract import Batch, Prediction, Ranks
from tagfill.data import FeatureCache, FeatureSource, PixelSource, Source
from tagfill.data.sources import chunks
from tagfill.dataset import SCHEMA, Dataset
from tagfill.dataset.tables import OBSERVED
from tagfill.deprecation import renamed_keywords
from tagfill.errors import DatasetError, TagfillError, one_of
from tagfill.images import EVAL
from tagfill.inference.pipeline import score
from tagfill.inference.torch_predictor import forward
from tagfill.labels import NEGATIVE, POSITIVE, UNKNOWN
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
    counted_average_precision,
    group_means,
    mean_average_precision_by_label_count,
    nan_without_negatives,
    precision_at_recall,
    precision_recall_at_k,
    reliability,
    top1_accuracy,
)
from tagfill.models import Backbone, Classifier, choose_device
from tagfill.probabilities import Calibration, measure_calibration, probabilities
from tagfill.progress import NOTEBOOK, SILENT, Bar, Progress
from tagfill.training.evaluation_result import Evaluation, Mistake
from tagfill.training.kept_logits import MAX_SCORES, KeptLogits
from tagfill.training.localization import locations_with_extent, measure_localization
from tagfill.training.run_folder import Run

DEFAULT_THRESHOLD = 0.5
TOP_K = (1, 3, 5)  # of precision and recall of the best k classes
_SHOWN_MISTAKES = 8
_ROWS_AT_ONCE = 4096


@renamed_keywords(localise="localize")
def evaluate(
    run: Run | str | Path,
    dataset: Dataset,
    *,
    split: str = "test",
    features: str | os.PathLike[str] | None = None,
    workers: int = 0,
    device: str = "auto",
    localize: str | None = None,
    boost: float | None = None,
    boost_from: float | None = None,
    definition: Definition = "step",
    empty: Empty = "skip",
    ceiling: Run | str | Path | None = None,
    bootstrap: int = 0,
    groups: int | None = None,
    seed: int = 0,
    progress: Progress = NOTEBOOK,
) -> Evaluation:
    """Score a trained model on a split.

    Args:
        run: a run or its folder, or a model folder.
        dataset: with the classes that the model was trained on.
        split: to score.
        features: a cache of the dataset's features, or its folder, to use instead of its images.
        workers: threads that decode images.
        device: of the network: `cpu`, `cuda`, `mps`, or `auto`.
        localize: also score class maps (mAP-loc): scaled by `minmax`, by `sigmoid`, or `coupled` with attention.
        boost: α of BoostLU, replacing that of training; 1 does not boost.
        boost_from: β of BoostLU, likewise.
        definition: of average precision: `step`, `rank`, `voc12` or `voc07`, see `tagfill.metrics.average_precision`.
        empty: how a class without a known positive or negative counts in the mean: not at all (`skip`), or as 0
            without a positive and as 1 without a negative (`zero`).
        ceiling: a run or model to compare with, such as one trained on complete labels.
        bootstrap: resamples of the images for an interval of mAP, only with `step` and `skip`; 0 makes none.
        groups: also report the mean of this many groups of classes, by how often each is annotated in training.
        seed: of the resamples.
        progress: receives the number of images done.

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
        raise TagfillError(
            f"The interval is that of mAP by step and skip; leave out bootstrap={bootstrap} with other ones."
        )
    trained = LoadedModel.open(
        run,
        dataset,
        features=features,
        workers=workers,
        device=device,
        maps=localize is not None,
        boost=boost,
        boost_from=boost_from,
    )
    better = (
        None
        if ceiling is None
        else LoadedModel.open(ceiling, dataset, features=features, workers=workers, device=device)
    )
    return evaluate_model(
        trained,
        split,
        localize=localize,
        boosted=boost is not None or boost_from is not None,
        definition=definition,
        empty=empty,
        ceiling=better,
        bootstrap=bootstrap,
        groups=groups,
        seed=seed,
        progress=progress,
    )


def evaluate_model(
    trained: LoadedModel,
    split: str,
    *,
    localize: str | None = None,
    boosted: bool = False,
    definition: Definition = "step",
    empty: Empty = "skip",
    ceiling: LoadedModel | None = None,
    bootstrap: int = 0,
    groups: int | None = None,
    seed: int = 0,
    progress: Progress = SILENT,
) -> Evaluation:
    """Score a loaded model on a split.

    Args:
        trained: the model, opened with maps if they are scored.
        split: to score.
        localize: how to score class maps, see `evaluate`.
        boosted: whether the model has another boost than in training.
        definition: of average precision.
        empty: how a class without a known positive or negative counts in the mean.
        ceiling: a model to compare with.
        bootstrap: resamples of the images.
        groups: of classes.
        seed: of the resamples.
        progress: receives the number of images done.
    """
    dataset = trained.dataset
    width = len(dataset.classes)
    decisions = _decisions(trained, changed=boosted)
    passes = trained.predict(split, maps=localize is not None, attention=localize == "coupled")
    meter: LocalizationMeter | None = None
    if localize is not None:
        meter = LocalizationMeter(width)
        passes = measure_localization(passes, locations_with_extent(dataset, split), meter, maps=localize)
    gathered = gather_predictions(_counted(passes, f"evaluating {split}", dataset, split, progress), Ranks(), width)
    if trained.kept is not None and localize is None:
        trained.kept.write(dataset, split, gathered.index, gathered.scores)
    scored = _summarize(gathered, split, dataset.classes, *decisions, definition, empty)
    scored = replace(scored, root=dataset.root, mistakes=find_mistakes(gathered, dataset, split, decisions[0]))
    if meter is not None:
        scored = replace(scored, localized=meter.compute())
    if ceiling is not None:
        passes = _counted(ceiling.predict(split), "evaluating the ceiling", dataset, split, progress)
        best = gather_predictions(passes, Ranks(), width)
        scored = replace(scored, ceiling=class_average_precision(best.scores, best.labels, definition, empty))
    if bootstrap:
        interval = bootstrap_interval(gathered.scores, gathered.labels, resamples=bootstrap, seed=seed)
        scored = replace(scored, interval=interval)
    if groups is not None:
        annotations = dataset.labels("train").known
        values = counted_average_precision(gathered.scores, gathered.labels, empty=empty, definition=definition)
        scored = replace(scored, groups=group_means(values, annotations, groups=groups))
    return scored


def _counted(
    passes: Iterator[tuple[Batch, Prediction]], title: str, dataset: Dataset, split: str, progress: Progress
) -> Iterator[tuple[Batch, Prediction]]:
    """Report each batch to `progress`."""
    with progress.bar(title, len(dataset.split(split)), "img") as bar:
        for batch, prediction in passes:
            yield batch, prediction
            bar.advance(len(batch.index))


def _decisions(trained: LoadedModel, *, changed: bool) -> tuple[Calibration | None, NDArray[np.float64], str]:
    """Calibration, thresholds and their origin: those of the model if its scores are unchanged, or else of `val`."""
    calibration = trained.model.calibration
    if trained.model.thresholds is not None:
        return calibration, np.array(trained.model.thresholds), "saved with the model, chosen on validation"
    width = len(trained.dataset.classes)
    if "val" in trained.dataset.splits:
        gathered = gather_predictions(trained.predict("val"), Ranks(), width)
        if (gathered.labels == POSITIVE).any() and (gathered.labels == NEGATIVE).any():
            if changed:
                calibration = measure_calibration(gathered.scores, gathered.labels)
            return calibration, choose_thresholds(gathered, calibration), "chosen on val, now"
    return calibration, np.full(width, DEFAULT_THRESHOLD), "0.5 (no usable validation labels)"


def _summarize(
    gathered: GatheredPredictions,
    split: str,
    classes: tuple[str, ...],
    calibration: Calibration | None,
    thresholds: NDArray[np.float64],
    thresholds_from: str,
    definition: Definition,
    empty: Empty,
) -> Evaluation:
    """Everything that is measured by default."""
    scores, labels = gathered.scores, gathered.labels
    shares = probabilities(scores, calibration)
    ranked = scores if calibration is None else shares  # the order of the classes of an image
    calibrated = reliability(shares, labels)
    return Evaluation(
        split=split,
        classes=classes,
        average_precision=class_average_precision(scores, labels, definition, empty),
        images=len(gathered.index),
        known=(labels != UNKNOWN).sum(0),
        positives=(labels == POSITIVE).sum(0),
        thresholds=thresholds,
        thresholds_from=thresholds_from,
        counts=count(shares, labels, thresholds),
        at_k={k: precision_recall_at_k(ranked, labels, k) for k in TOP_K if k <= len(classes)},
        top_1=top1_accuracy(ranked, labels),
        calibration_error=calibrated.error,
        calibration_from=None if calibration is None else calibration.source,
        raw_calibration_error=reliability(probabilities(scores), labels).error,
        by_label_count=mean_average_precision_by_label_count(scores, labels, definition=definition),
        definition=definition,
        empty=empty,
        confusions=confusions(shares >= thresholds, labels),
        precision_at_recall=precision_at_recall(scores, labels),
        reliability=calibrated,
    )


def find_mistakes(
    gathered: GatheredPredictions,
    dataset: Dataset,
    split: str,
    calibration: Calibration | None = None,
    most: int = _SHOWN_MISTAKES,
) -> list[Mistake]:
    """The labels whose predicted probability is farthest from what is annotated, at most one per image.

    Args:
        gathered: predictions and labels of a split.
        dataset: that was predicted.
        split: of the dataset.
        calibration: of the model.
        most: number of mistakes to return.
    """
    found: list[tuple[float, int, int]] = []
    for begin in range(0, len(gathered.index), _ROWS_AT_ONCE):
        labels = gathered.labels[begin : begin + _ROWS_AT_ONCE]
        error = np.abs(probabilities(gathered.scores[begin : begin + _ROWS_AT_ONCE], calibration) - labels)
        error[labels == UNKNOWN] = 0
        height, worst = error.max(1), error.argmax(1)
        wrong = np.flatnonzero(height > DEFAULT_THRESHOLD)
        found += [(float(height[row]), begin + row, int(worst[row])) for row in wrong.tolist()]
        found = sorted(found, key=lambda mistake: -mistake[0])[:most]
    rows = np.array([row for _, row, _ in found], dtype=np.int64)
    names = dataset.names(dataset.split(split)[gathered.index[rows]])
    mistakes = []
    for name, (distance, row, label) in zip(names, found, strict=True):
        present = bool(gathered.labels[row, label] == POSITIVE)
        mistakes.append(Mistake(name, dataset.classes[label], 1 - distance if present else distance, present))
    return mistakes


def class_average_precision(
    scores: NDArray[np.floating], labels: NDArray[np.integer], definition: Definition, empty: Empty
) -> NDArray[np.float64]:
    """Average precision per class; NaN without a known positive and, with `skip`, without a known negative.

    >>> scores, labels = np.array([[0.9, 0.9], [0.1, 0.1]]), np.array([[1, 1], [0, -1]], np.int8)
    >>> class_average_precision(scores, labels, "step", "skip")
    array([ 1., nan])
    """
    values = average_precision(scores, labels, definition=definition)
    return values if empty == "zero" else nan_without_negatives(values, labels)


def choose_decisions(gathered: GatheredPredictions, val_labels: str) -> tuple[Calibration | None, tuple[float, ...]]:
    """Calibration and thresholds to save with a model.

    Args:
        gathered: predictions for the validation split.
        val_labels: of the recipe; unless `clean`, unknown labels are read as absent, so nothing can be calibrated.
    """
    measurable = val_labels == "clean"
    calibration = measure_calibration(gathered.scores, gathered.labels) if measurable else None
    return calibration, tuple(choose_thresholds(gathered, calibration).tolist())


def choose_thresholds(gathered: GatheredPredictions, calibration: Calibration | None = None) -> NDArray[np.float64]:
    """The probability with the best F1 for each class; 0.5 for a class without positives."""
    return best_thresholds(probabilities(gathered.scores, calibration), gathered.labels, default=DEFAULT_THRESHOLD)


@dataclass(frozen=True)
class LoadedModel:
    """A model with a dataset that it can predict, from images or from cached features."""

    model: Classifier
    dataset: Dataset
    source: Source
    kept: KeptLogits | None = None  # for the model of a run, unless its boost was changed

    @classmethod
    def open(
        cls,
        run: Run | str | Path,
        dataset: Dataset,
        *,
        features: str | os.PathLike[str] | None = None,
        workers: int = 0,
        device: str = "auto",
        maps: bool = False,
        boost: float | None = None,
        boost_from: float | None = None,
        backbone: Backbone | None = None,
    ) -> LoadedModel:
        """Load a model and check that it belongs to the data.

        Args:
            run: a run or its folder, or a model folder.
            dataset: with the classes that the model was trained on.
            features: a cache of the dataset's features, or its folder, to use instead of its images.
            workers: threads that decode images.
            device: of the network: `cpu`, `cuda`, `mps`, or `auto`.
            maps: whether class maps will be needed.
            boost: α of BoostLU, replacing that of training; 1 does not boost.
            boost_from: β of BoostLU, likewise.
            backbone: of a model that was opened with the same features; used again if this model has the same one.
        """
        folder = run.folder if isinstance(run, Run) else Path(run)
        model = Classifier.load(folder / "best" if (folder / "best").is_dir() else folder, backbone=backbone)
        if model.classes != dataset.classes:
            raise TagfillError(f"The model in {folder} was trained on other classes than dataset {dataset.name} has.")
        keeps = (folder / "best").is_dir() and boost is None and boost_from is None
        if boost is not None or boost_from is not None:
            model = _boosted(model, boost, boost_from)
        model = model.to(choose_device(device))
        assert isinstance(model.backbone, Backbone)
        if features is None:
            pixels = PixelSource(dataset, model.backbone.preprocessing.size, EVAL, seed=0, workers=workers)
            return cls(model, dataset, pixels, KeptLogits(folder, folder / "best", None) if keeps else None)
        cache = FeatureCache.open(features, dataset)
        checked = backbone is not None and model.backbone is backbone
        if not checked and cache.manifest.fingerprint != model.backbone.fingerprint(cache.at):
            raise TagfillError(f"The feature cache {features} was made by another backbone than the model in {folder}.")
        spatial = model.spatial or maps
        source = FeatureSource(dataset, cache, maps=spatial, tokens=model.token, seed=0)
        if cache.manifest.inner:
            model = model.above(cache.at)
        whole = cache.manifest.views.get("eval")
        origin = None if whole is None else f"{whole.identity} {'maps' if spatial else 'pooled'}"
        return cls(model, dataset, source, KeptLogits(folder, folder / "best", origin) if keeps and origin else None)

    def predict(
        self, split: str, index: NDArray[np.int64] | None = None, *, maps: bool = False, attention: bool = False
    ) -> Iterator[tuple[Batch, Prediction]]:
        """Predict these positions of a split, or all of it; predictions are on the CPU."""
        positions = np.arange(len(self.dataset.split(split))) if index is None else index
        device = next(self.model.parameters()).device
        if device.type == "cpu":
            return predict(self.model, self.source, split, positions, maps=maps, attention=attention)

        def place(batch: Batch) -> Batch:
            return replace(batch, inputs=batch.inputs.to(device))

        passes = predict(self.model, self.source, split, positions, maps=maps, attention=attention, place=place)
        return ((batch, prediction.cpu()) for batch, prediction in passes)

    def logits(
        self, split: str, index: NDArray[np.int64] | None = None, *, bar: Bar | None = None
    ) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
        """Positions of a split, ascending, and their logits; images that cannot be read are missing.

        Logits of a whole split are kept in the folder of the run, and read from there until its model or the images
        change; see `kept_logits.py`.

        Args:
            split: the split.
            index: ascending positions; all by default.
            bar: to advance by the number of images.
        """
        width = len(self.dataset.classes)
        positions, values = [np.empty(0, np.int64)], [np.empty((0, width), np.float32)]
        for at, logits in self.logit_batches(split, index):
            positions.append(at)
            values.append(logits)
            if bar is not None:
                bar.advance(len(at))
        return np.concatenate(positions), np.concatenate(values)

    def logit_batches(
        self, split: str, index: NDArray[np.int64] | None = None
    ) -> Iterator[tuple[NDArray[np.int64], NDArray[np.float32]]]:
        """The same in batches, for splits whose logits do not fit into memory."""
        size, width = len(self.dataset.split(split)), len(self.dataset.classes)
        known = None if self.kept is None else self.kept.read(self.dataset, split)
        if known is not None:
            chosen = np.arange(len(known[0])) if index is None else np.flatnonzero(np.isin(known[0], index))
            for part in chunks(chosen, _ROWS_AT_ONCE):
                yield known[0][part], known[1][part]
            return
        keeps = self.kept is not None and (index is None or len(index) == size) and size * width <= MAX_SCORES
        positions, values = [np.empty(0, np.int64)], [np.empty((0, width), np.float32)]
        for batch, prediction in self.predict(split, index):
            at, logits = batch.index.numpy(force=True), prediction.logits.float().numpy(force=True)
            if keeps:
                positions.append(at)
                values.append(logits)
            yield at, logits
        if keeps and self.kept is not None:
            self.kept.write(self.dataset, split, np.concatenate(positions), np.concatenate(values))


def _boosted(model: Classifier, boost: float | None, boost_from: float | None) -> Classifier:
    """The model with another boost in evaluation."""
    given = {name: value for name, value in {"boost": boost, "boost_from": boost_from}.items() if value is not None}
    kept = {name: value for name, value in model.head.options.items() if name in ("boost", "boost_from")}
    boosted = model.convert_head("cam", **{**kept, **given, "boost_train": False})
    boosted.calibration = boosted.thresholds = None  # they were chosen for other logits
    return boosted


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
    if training:  # setting the mode visits all modules of a backbone
        model.eval()
    try:
        yield from score(functools.partial(forward, model), map(place, source.evaluate(split, index)), **wanted)
    finally:
        if training:
            model.train()


def gather_predictions(passes: Iterator[tuple[Batch, Prediction]], ranks: Ranks, width: int) -> GatheredPredictions:
    """Gather logits and labels of all ranks' images, in the order of the split."""
    index, logits, labels = (
        [torch.empty(0, dtype=torch.int64)],
        [torch.empty(0, width)],
        [torch.empty(0, width, dtype=torch.int8)],
    )
    for batch, prediction in passes:
        index.append(batch.index)
        logits.append(prediction.logits.cpu())
        labels.append(batch.labels.cpu())
    gathered = Predictions()
    parts = (ranks.gather(torch.cat(column)) for column in (index, logits, labels))
    for part in zip(*parts, strict=True):
        gathered.update(*(column.numpy() for column in part))
    return gathered.compute()


def rank_positions(size: int, ranks: Ranks) -> NDArray[np.int64]:
    """Positions of a split of `size` images that this rank evaluates."""
    return np.arange(ranks.rank, size, ranks.world)


def can_validate(dataset: Dataset, val_labels: str) -> bool:
    """Whether the validation split has a class that is known to be present in one image and absent in another.

    Average precision needs both: tags alone, without known negatives, leave nothing to rank.

    Args:
        dataset: the data.
        val_labels: `clean`, or `observed` or `tags`, which read everything else as absent.
    """
    if "val" not in dataset.splits:
        return False
    if val_labels == "observed":
        return True
    labels = dataset.labels("val")
    if val_labels == "tags":
        return bool(labels.positives.any())
    present, absent = (np.unique(labels.classes[labels.values == state]) for state in (POSITIVE, NEGATIVE))
    return len(np.intersect1d(present, absent)) > 0


def read_validation_labels(gathered: GatheredPredictions, dataset: Dataset, val_labels: str) -> None:
    """Replace the labels of predictions for the validation split by those that choose the epoch.

    Args:
        gathered: predictions, with all known labels.
        dataset: the data.
        val_labels: of the recipe.
    """
    if val_labels == "observed":
        gathered.labels[:] = observed_labels(dataset, "val")[gathered.index]
    elif val_labels == "tags":
        gathered.labels[gathered.labels != POSITIVE] = NEGATIVE


def observed_labels(dataset: Dataset, split: str) -> NDArray[np.int8]:
    """The labels of a split that a protocol would have kept, with everything else read as absent: N×L.

    This is how to choose a model if only partial labels are available.
    """
    rows = pa.Table.from_batches([_flagged(batch) for batch in dataset.scan()], schema=SCHEMA)
    if rows.num_rows == 0:
        raise DatasetError(
            f"val_labels: observed needs a simulated dataset, but no row of {dataset.name} is flagged as observed."
        )
    labels = dataset.replace(annotations=rows, folder=None).labels(split).dense()
    return np.where(labels == POSITIVE, POSITIVE, NEGATIVE).astype(np.int8)


def _flagged(batch: pa.RecordBatch) -> pa.RecordBatch:
    """The rows that are flagged as observed."""
    flags = batch["flags"]
    found = pc.list_parent_indices(flags).filter(pc.equal(pc.list_flatten(flags), OBSERVED))
    return batch.take(found.unique()).cast(SCHEMA)
