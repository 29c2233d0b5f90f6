"""Predictions for a few images, one after the other, in memory."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

from tagfill.errors import ImageError, TagfillError
from tagfill.inference.deciding import Threshold, chosen_thresholds, decide
from tagfill.inference.listing import Images, find_images
from tagfill.inference.looking import look_at
from tagfill.inference.predictor import ModelPath, open_predictor
from tagfill.progress import SILENT, Progress

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
    thresholds = chosen_thresholds(predictor.classes, predictor.thresholds, threshold)
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
