"""The prediction pipeline: decode images in batches, score them, decide which labels are present.

    images ──► load_batches ──► score ──► decide
               (threads)        (torch or ONNX)

Training's evaluation, `predict`, `suggest`, the review page and class maps all score batches with `score`, and decode
images with `tagfill.images.batches`: the pixels and the composition of batches are the same for every network. Nothing
here imports torch.

    p = σ(a·logit + b_c),   present where p ≥ the threshold of the class

with the calibration saved with the model, or a = 1 and b_c = 0 if it has none or raw scores are wanted. Images of a
dataset keep their known labels, and the others get the probability that they were missed (`tagged.py`).
Thresholds are those saved with the model, 0.5 if it has none, or those that the caller passes instead.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

from tagfill.errors import ImageError, TagfillError, unknown_name
from tagfill.images import PixelBatch, Root, load_batches, load_eval_view
from tagfill.inference.images import ImageList, Images, find_images
from tagfill.inference.predictors import ModelPath, Outputs, Predictor, open_predictor, require_finite
from tagfill.inference.tagged import GivenTags
from tagfill.probabilities import Calibration, lowest_logits, probabilities
from tagfill.progress import NOTEBOOK, SILENT, Progress

BATCH_SIZE = 32
DEFAULT_THRESHOLD = 0.5
Threshold = float | Mapping[str, float] | None


@dataclass(frozen=True)
class ImagePrediction:
    """Predicted labels of one image.

    Attributes:
        image: its name.
        scores: probability of each label, in the order of the classes; with `top_k`, the most probable first.
        present: the labels whose probability reaches their threshold.
        given: the labels that were known to be present before, if the image is one of a dataset.
    """

    image: str
    scores: dict[str, float]
    present: tuple[str, ...]
    given: tuple[str, ...] = ()


def predict(
    run: ModelPath,
    images: Images | Iterable[Images],
    *,
    split: str | None = None,
    threshold: Threshold = None,
    top_k: int | None = None,
    raw_scores: bool = False,
    ignore_tags: bool = False,
    batch_size: int = BATCH_SIZE,
    workers: int = 0,
    threads: int | None = None,
    device: str = "auto",
    on_bad: Callable[[ImageError], None] | None = None,
    progress: Progress = NOTEBOOK,
) -> Iterator[ImagePrediction]:
    """Predict labels for images, one image at a time; nothing is written or kept.

    Images of a dataset keep the labels that are known. Their other labels get the probability that they were missed,
    which is lower than that of an image without tags. A split with complete labels is predicted like new images.

    Args:
        run: a run or its folder, a model folder, or an ONNX file.
        images: files, folders, patterns, shards, URLs or datasets; see `find_images`.
        split: of datasets; by default all of their images.
        threshold: for all classes, or by class name, instead of the model's own (0.5 if it has none).
        top_k: keep only this number of labels per image, the most probable ones.
        raw_scores: give the sigmoid of the model's logits instead of calibrated probabilities.
        ignore_tags: predict images of datasets from their pixels alone; raw scores always do.
        batch_size: images per forward pass.
        workers: threads that decode images.
        threads: threads of the network; by default one per core.
        device: `cpu`, `cuda`, `mps` or `auto`.
        on_bad: called for each image that cannot be decoded; by default the error is raised.
        progress: receives the number of images done.

    Example:
        `for found in predict("runs/photos", "new-photos"): print(found.image, found.present)`
    """
    check_top_k(top_k)
    predictor = open_predictor(run, device=device, threads=threads)
    calibration = None if raw_scores else predictor.calibration
    thresholds = resolve_thresholds(predictor.classes, saved_thresholds(predictor, raw_scores), threshold)
    found = find_images(images, split=split, progress=progress)
    tags = None if raw_scores or ignore_tags else GivenTags.read(found, predictor.classes)
    if tags is not None:
        tags = measure_given_tags(tags, predictor, found, batch_size=batch_size, workers=workers, progress=progress)
        progress.say(str(tags.summary()))
    with progress.bar("predicting", len(found), "img") as bar:
        for batch, outputs in score_images(predictor, found, batch_size=batch_size, workers=workers):
            for number, error in batch.bad:
                named = ImageError(found.name(number), error.problem)
                if on_bad is None:
                    raise named
                on_bad(named)
            decisions = decide(outputs.logits, thresholds, top_k, calibration, tags=tags, numbers=batch.index)
            for row, number in enumerate(batch.index.tolist()):
                labels = [predictor.classes[label] for label in decisions.labels[row]]
                yield ImagePrediction(
                    found.name(number),
                    dict(zip(labels, decisions.scores[row].tolist(), strict=True)),
                    tuple(label for label, there in zip(labels, decisions.present[row], strict=True) if there),
                    () if tags is None else tuple(predictor.classes[label] for label in tags.of(number)),
                )
            bar.advance(len(batch.index) + len(batch.bad))


def measure_given_tags(
    tags: GivenTags,
    predictor: Predictor,
    images: ImageList,
    *,
    batch_size: int = BATCH_SIZE,
    workers: int = 0,
    progress: Progress = SILENT,
) -> GivenTags:
    """Measure on a sample of tagged images which share of their true tags was given; bad images are left out."""
    sample = tags.sample()
    if predictor.calibration is None:
        return tags.measured(sample[:0], np.empty((0, len(predictor.classes))), None)
    batches = (sample[at : at + batch_size] for at in range(0, len(sample), batch_size))
    pixels = load_batches(batches, images.locate, predictor.size, workers=workers)
    numbers, logits = [sample[:0]], [np.empty((0, len(predictor.classes)), np.float32)]
    with progress.bar("comparing with tags", len(sample), "img") as bar:
        for batch, outputs in score(predictor, pixels):
            numbers.append(batch.index)
            logits.append(outputs.logits)
            bar.advance(len(batch.index) + len(batch.bad))
    return tags.measured(np.concatenate(numbers), np.concatenate(logits), predictor.calibration)


class _HasInputs(Protocol):
    @property
    def inputs(self) -> Any: ...


BatchT = TypeVar("BatchT", bound=_HasInputs)
ResultT = TypeVar("ResultT")


def score(
    predictor: Callable[..., ResultT], batches: Iterable[BatchT], **wanted: bool
) -> Iterator[tuple[BatchT, ResultT]]:
    """Run a predictor over batches.

    Args:
        predictor: maps the inputs of a batch to scores: a `Predictor`, or in training the model's forward pass.
        batches: of pixels from `load_batches`, or batches of a dataset (`tagfill.contract.Batch`).
        wanted: additional outputs, such as `maps=True`.

    Yields:
        Each batch and its scores.
    """
    for batch in batches:
        yield batch, predictor(batch.inputs, **wanted)


def score_images(
    predictor: Predictor, images: ImageList, *, batch_size: int = BATCH_SIZE, workers: int = 0, maps: bool = False
) -> Iterator[tuple[PixelBatch, Outputs]]:
    """Decode and score a list of images, in order.

    Args:
        predictor: the model.
        images: the list.
        batch_size: images per forward pass; the last batch may have fewer.
        workers: threads that decode images.
        maps: also return class maps.
    """
    batches = (range(at, min(at + batch_size, len(images))) for at in range(0, len(images), batch_size))
    return score(predictor, load_batches(batches, images.locate, predictor.size, workers=workers), maps=maps)


def score_image(predictor: Predictor, root: Root | Path, name: str, *, maps: bool = False) -> Outputs:
    """Decode and score a single image: logits 1×L, maps 1×L×h×w.

    Raises:
        ImageError: if the image cannot be read or decoded.
    """
    pixels, _ = load_eval_view(root, name, predictor.size)
    return predictor(np.stack([pixels]), maps=maps)  # a copy: Pillow's pixels are read-only


@dataclass(frozen=True)
class LabelDecisions:
    """Scores and decisions for n images, k labels each.

    Attributes:
        labels: n×k, positions of classes.
        scores: n×k float32, their probabilities.
        present: n×k, whether they reach their thresholds.
    """

    labels: NDArray[np.int32]
    scores: NDArray[np.float32]
    present: NDArray[np.bool_]


def decide(
    logits: NDArray[np.floating],
    thresholds: Sequence[float],
    top_k: int | None = None,
    calibration: Calibration | None = None,
    *,
    tags: GivenTags | None = None,
    numbers: NDArray[np.integer] | None = None,
) -> LabelDecisions:
    """Turn logits into probabilities and decide which labels are present.

    Args:
        logits: n×L.
        thresholds: L.
        top_k: keep the most probable labels of each image, the most probable first; by default all labels, in the
            order of the classes.
        calibration: of the model; None for the plain sigmoid.
        tags: that images have already.
        numbers: n, of the images among those with tags.

    >>> decisions = decide(np.array([[2.0, -1.0, 0.0]]), [0.5, 0.5, 0.5], top_k=2)
    >>> decisions.labels.tolist(), decisions.scores.round(2).tolist(), decisions.present.tolist()
    ([[0, 2]], [[0.8799999952316284, 0.5]], [[True, True]])
    """
    require_finite(logits)
    if tags is None or numbers is None:
        scores = probabilities(logits, calibration)
    else:
        scores = tags.probabilities(logits, numbers, calibration)
    present = scores >= np.asarray(thresholds)
    labels = np.broadcast_to(np.arange(scores.shape[1]), scores.shape)
    if top_k is not None:
        labels = np.argsort(-scores, axis=1, kind="stable")[:, :top_k]
        scores, present = np.take_along_axis(scores, labels, axis=1), np.take_along_axis(present, labels, axis=1)
    return LabelDecisions(labels.astype(np.int32), scores, present)


def resolve_thresholds(
    classes: Sequence[str], saved: Sequence[float] | None, given: Threshold = None
) -> tuple[float, ...]:
    """The threshold of each class.

    Args:
        classes: names.
        saved: thresholds saved with the model, if any; otherwise 0.5.
        given: one threshold for all classes, or thresholds by class name, instead of the saved ones.

    >>> resolve_thresholds(["cat", "dog"], None, {"dog": 0.3})
    (0.5, 0.3)
    """
    thresholds = dict(zip(classes, saved or [DEFAULT_THRESHOLD] * len(classes), strict=True))
    if given is not None:
        new = given if isinstance(given, Mapping) else dict.fromkeys(classes, given)
        for name, value in new.items():
            if name not in thresholds:
                raise unknown_name("class", name, classes)
            if not 0 <= value <= 1:
                raise TagfillError(f"The threshold {value:g} is not a probability; give one between 0 and 1.")
        thresholds |= new
    return tuple(float(thresholds[name]) for name in classes)


def saved_thresholds(predictor: Predictor, raw_scores: bool = False) -> tuple[float, ...] | None:
    """The thresholds saved with a model, in terms of calibrated probabilities or of raw scores."""
    if not raw_scores or predictor.calibration is None or predictor.thresholds is None:
        return predictor.thresholds
    return tuple(probabilities(lowest_logits(predictor.thresholds, predictor.calibration)).tolist())


def check_top_k(top_k: int | None) -> None:
    """Raise if no label would be kept."""
    if top_k is not None and top_k < 1:
        raise TagfillError(f"top_k={top_k} would keep no label; give 1 or more.")
