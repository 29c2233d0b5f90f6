"""Batches of pixels, decoded by threads while the network works.

Decoding and resizing let go of Python's lock, so that threads do what processes would, without a copy of anything.
What is shown is the view of evaluation, made by the same function as in training: its pixels are the same bit for bit,
whatever network looks at them.


From logits to what is said about an image: probabilities, those that are kept, and which labels are present.

    p = σ(g),   present where p ≥ the threshold of the class

Thresholds are those that were chosen for the model, 0.5 where nobody chose any, or what the caller gives instead.

A model looks at a list of images, batch by batch.

Predictions for a few images, one after the other, in memory.

Pictures of class maps over their images: `FOLDER/<image>/<class>.jpg`.

The view of evaluation is the whole image, so a map belongs to all of it, and is laid over the image as it was taken and
not over what the network saw of it.
"""

from __future__ import annotations

import itertools
import re
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

import numpy as np
from numpy.typing import NDArray

from tagfill.errors import ImageError, TagfillError, unknown_name
from tagfill.images import EVAL, load_view, overlay_class_map, thumbnail
from tagfill.inference.images import ImageList, Images, find_images
from tagfill.inference.predictors import ModelPath, Predictor, open_predictor
from tagfill.io import atomic_write
from tagfill.probabilities import probabilities
from tagfill.progress import SILENT, Progress

_AHEAD = 2  # batches that are decoded while the network works on one


@dataclass(frozen=True)
class Pixels:
    """Some images.

    Attributes:
        numbers: of those that could be decoded.
        pixels: B×H×W×3 uint8, of those.
        bad: number and problem of the others.
    """

    numbers: list[int]
    pixels: NDArray[np.uint8]
    bad: list[tuple[int, str]]


def decoded(
    images: ImageList, numbers: range, size: tuple[int, int], *, batch_size: int, workers: int
) -> Iterator[Pixels]:
    """Some images in batches, in order.

    Args:
        images: the list.
        numbers: which of them.
        size: height and width of the network's input.
        batch_size: images of a batch; the last one may have fewer.
        workers: threads that decode; 0 decodes when the next batch is asked for.
    """
    batches = (numbers[at : at + batch_size] for at in range(0, len(numbers), batch_size))
    if workers == 0:
        for batch in batches:
            yield _joined(batch, [_look(images, number, size) for number in batch], size)
        return
    with ThreadPoolExecutor(workers, thread_name_prefix="decoding") as pool:
        waiting: deque[tuple[range, list[Future[_Look]]]] = deque()

        def begin(batch: range) -> None:
            waiting.append((batch, [pool.submit(_look, images, number, size) for number in batch]))

        try:
            for batch in itertools.islice(batches, 1 + _AHEAD):
                begin(batch)
            while waiting:
                batch, looks = waiting.popleft()
                yield _joined(batch, [each.result() for each in looks], size)
                for following in itertools.islice(batches, 1):
                    begin(following)
        finally:
            pool.shutdown(wait=True, cancel_futures=True)


_Look = NDArray[np.uint8] | ImageError


def _look(images: ImageList, number: int, size: tuple[int, int]) -> _Look:
    root, name = images.place(number)
    try:
        return load_view(root, name, EVAL, size, seed=0)[0]
    except ImageError as error:
        return error


def _joined(batch: range, looks: list[_Look], size: tuple[int, int]) -> Pixels:
    good = [(number, pixels) for number, pixels in zip(batch, looks, strict=True) if not isinstance(pixels, ImageError)]
    bad = [(number, error.problem) for number, error in zip(batch, looks, strict=True) if isinstance(error, ImageError)]
    pixels = np.stack([each for _, each in good]) if good else np.empty((0, *size, 3), np.uint8)
    return Pixels([number for number, _ in good], pixels, bad)


DEFAULT_THRESHOLD = 0.5
Threshold = float | Mapping[str, float] | None


@dataclass(frozen=True)
class Decided:
    """What is said about n images, k labels each.

    Attributes:
        labels: n×k, positions of classes.
        scores: n×k float32, their probabilities.
        present: n×k, whether they reach their thresholds.
    """

    labels: NDArray[np.int32]
    scores: NDArray[np.float32]
    present: NDArray[np.bool_]


def resolve_thresholds(
    classes: Sequence[str], of_model: Sequence[float] | None, given: Threshold = None
) -> tuple[float, ...]:
    """The threshold of each class.

    Args:
        classes: names.
        of_model: those that were chosen for the model, if they were; otherwise 0.5.
        given: one for all classes, or of some classes by name, in place of the model's.

    >>> resolve_thresholds(["cat", "dog"], None, {"dog": 0.3})
    (0.5, 0.3)
    """
    chosen = dict(zip(classes, of_model or [DEFAULT_THRESHOLD] * len(classes), strict=True))
    if given is not None:
        new = given if isinstance(given, Mapping) else dict.fromkeys(classes, given)
        for name, value in new.items():
            if name not in chosen:
                raise unknown_name("class", name, classes)
            if not 0 <= value <= 1:
                raise TagfillError(f"The threshold {value:g} is not a probability; give one between 0 and 1.")
        chosen |= new
    return tuple(float(chosen[name]) for name in classes)


def decide(logits: NDArray[np.floating], thresholds: Sequence[float], top_k: int | None = None) -> Decided:
    """Decide about images.

    Args:
        logits: n×L.
        thresholds: L.
        top_k: keep the most probable labels of each image, the most probable first; without it all, in the order of
            the classes.

    >>> decided = decide(np.array([[2.0, -1.0, 0.0]]), [0.5, 0.5, 0.5], top_k=2)
    >>> decided.labels.tolist(), decided.scores.round(2).tolist(), decided.present.tolist()
    ([[0, 2]], [[0.8799999952316284, 0.5]], [[True, True]])
    """
    scores = probabilities(logits)
    present = scores >= np.asarray(thresholds)
    labels = np.broadcast_to(np.arange(scores.shape[1]), scores.shape)
    if top_k is not None:
        labels = np.argsort(-scores, axis=1, kind="stable")[:, :top_k]
        scores, present = np.take_along_axis(scores, labels, axis=1), np.take_along_axis(present, labels, axis=1)
    return Decided(labels.astype(np.int32), scores, present)


@dataclass(frozen=True)
class Looked:
    """What a model said about the images of a batch.

    Attributes:
        numbers: of the images that could be decoded, n of them.
        logits: n×L.
        maps: n×L×H×W, where they were asked for.
        bad: number and problem of the images that could not be decoded.
    """

    numbers: list[int]
    logits: NDArray[np.float32]
    maps: NDArray[np.float32] | None
    bad: list[tuple[int, str]]


def look_at(
    predictor: Predictor, images: ImageList, numbers: range, *, batch_size: int, workers: int, maps: bool = False
) -> Iterator[Looked]:
    """Look at some images of a list, in order.

    Args:
        predictor: the model.
        images: the list.
        numbers: which of them.
        batch_size: images that the model looks at together.
        workers: threads that decode.
        maps: keep class maps.
    """
    for batch in decoded(images, numbers, predictor.size, batch_size=batch_size, workers=workers):
        if batch.numbers:
            outputs = predictor(batch.pixels, maps=maps)
            yield Looked(batch.numbers, outputs.logits, outputs.maps, batch.bad)
        else:
            yield Looked([], np.empty((0, len(predictor.classes)), np.float32), None, batch.bad)


BATCH_SIZE = 32


@dataclass(frozen=True)
class ImagePrediction:
    """What a model says about an image.

    Attributes:
        image: its name.
        scores: probabilities of labels; all of them in the order of the classes, or the most probable ones first.
        present: the labels among those that reach their thresholds.
    """

    image: str
    scores: dict[str, float]
    present: tuple[str, ...]


def predict(
    run: ModelPath,
    images: Images | Iterable[Images],
    *,
    split: str | None = None,
    threshold: Threshold = None,
    top_k: int | None = None,
    batch_size: int = BATCH_SIZE,
    workers: int = 0,
    threads: int | None = None,
    device: str = "cpu",
    on_bad: Callable[[ImageError], None] | None = None,
    progress: Progress = SILENT,
) -> Iterator[ImagePrediction]:
    """What a model says about images, one after the other; nothing is kept.

    Args:
        run: a run or its folder, a model folder, or an ONNX file.
        images: files, folders, patterns, shards, URLs, datasets, see `find_images`.
        split: of datasets; without it all of their images.
        threshold: of all classes, or of some by name, in place of the model's own, which are 0.5 where nobody chose
            any.
        top_k: only the most probable labels of each image.
        batch_size: images that the model looks at together.
        workers: threads that decode.
        threads: of the network; by default one a core.
        device: `cpu`, `cuda`, `mps` or `auto`.
        on_bad: told about each image that cannot be decoded; by default it is raised.
        progress: told about each batch.

    Example:
        `for found in predict("runs/photos", "new-photos"): print(found.image, found.present)`
    """
    check_top_k(top_k)
    predictor = open_predictor(run, device=device, threads=threads)
    thresholds = resolve_thresholds(predictor.classes, predictor.thresholds, threshold)
    found = find_images(images, split=split, progress=progress)
    with progress.bar("predicting", len(found), "img") as bar:
        for batch in look_at(predictor, found, range(len(found)), batch_size=batch_size, workers=workers):
            for number, problem in batch.bad:
                error = ImageError(found.name(number), problem)
                if on_bad is None:
                    raise error
                on_bad(error)
            decided = decide(batch.logits, thresholds, top_k)
            for row, number in enumerate(batch.numbers):
                labels = [predictor.classes[label] for label in decided.labels[row]]
                yield ImagePrediction(
                    found.name(number),
                    dict(zip(labels, decided.scores[row].tolist(), strict=True)),
                    tuple(label for label, there in zip(labels, decided.present[row], strict=True) if there),
                )
            bar.advance(len(batch.numbers) + len(batch.bad))


def check_top_k(top_k: int | None) -> None:
    """Refuse to keep no label."""
    if top_k is not None and top_k < 1:
        raise TagfillError(f"top_k={top_k} would keep no label; give 1 or more.")


_SIDE = 640  # of a picture, the longer one


@dataclass(frozen=True)
class Heatmaps:
    """Where pictures of class maps go, and which.

    Attributes:
        folder: of all pictures.
        classes: positions of classes; None draws those that are present.
    """

    folder: Path
    classes: tuple[int, ...] | None = None

    def draw(
        self,
        images: ImageList,
        number: int,
        names: tuple[str, ...],
        maps: NDArray[np.floating],
        present: NDArray[np.bool_],
    ) -> None:
        """Draw the maps of one image.

        Args:
            images: the list.
            number: of the image in it.
            names: of all classes.
            maps: L×H×W.
            present: L, which classes reach their thresholds.
        """
        wanted = np.flatnonzero(present).tolist() if self.classes is None else self.classes
        if not wanted:
            return
        image = thumbnail(*images.place(number), _SIDE)
        for label in wanted:
            with atomic_write(self.folder / picture_path(images.name(number), names[label]), sync=False) as file:
                overlay_class_map(image, maps[label]).save(file, format="JPEG", quality=90)


def picture_path(image: str, label: str) -> PurePosixPath:
    """Where the picture of an image and a class lies below the folder of pictures, never outside of it.

    >>> picture_path("../photos/1.jpg", "cat/dog").as_posix()
    'photos/1.jpg/cat_dog.jpg'
    """
    parts = [_safe(part) for part in re.split(r"[/\\]+", image) if part not in ("", ".", "..")]
    return PurePosixPath(*parts, f"{_safe(label)}.jpg")


def _safe(text: str) -> str:
    return re.sub(r'[\x00-\x1f/\\:*?"<>|]', "_", text).strip(". ") or "_"
