"""What running heatmaps come to believe: stored heatmaps over the epochs, and several runs side by side at the end.

An annotated class starts everywhere and shrinks to its place, one that is present but not annotated grows there, and
an absent one should stay dark (Verelst et al., WACV 2023, Fig. 3). Trained with `options.scl.weight=0`, heatmaps are
kept but do not teach, which is Fig. 4's comparison. Needs runs of `scl` with `record: [heatmaps]`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from tagfill.errors import TagfillError
from tagfill.experiments import pictures
from tagfill.experiments.analyses.subjects import Question, Subject, file_name
from tagfill.experiments.report import Figure, Section, Table
from tagfill.labels import NEGATIVE, POSITIVE, UNKNOWN
from tagfill.training import records

Chosen = tuple[int, int, str]  # position of the image, class, what the class is to it


@dataclass(frozen=True)
class Progress:
    """The heatmaps that a run wrote down.

    Attributes:
        epochs: numbers, over all stages.
        index: n, positions of the training images.
        classes: n×k, those that are kept.
        values: epochs × n×k×W×W in 0…1.
    """

    epochs: list[int]
    index: NDArray[np.int64]
    classes: NDArray[np.int32]
    values: NDArray[np.float32]

    def of(self, image: int, label: int) -> NDArray[np.float32] | None:
        """Heatmaps of an image and class over the epochs; None where they are not kept."""
        rows = np.flatnonzero(self.index == image)
        if not len(rows):
            return None
        places = np.flatnonzero(self.classes[rows[0]] == label)
        return self.values[:, rows[0], places[0]] if len(places) else None


def heatmap_progress(question: Question, *, images: int = 2, columns: int = 6) -> Section:
    """Stored heatmaps over the epochs: an annotated, an unannotated and an absent class; runs side by side.

    Args:
        question: runs that have recorded their heatmaps.
        images: examples.
        columns: epochs that are shown, evenly spread.
    """
    found = {subject.label: read_progress(subject) for subject in reversed(question.subjects)}
    found = {label: found[label] for label in question.labels}
    first = question.subjects[0]
    chosen = list(choose(first, found[first.label], images))
    if not chosen:
        raise TagfillError(
            f"None of the images that {first.run.folder} wrote down has an annotated, a missing and an absent class."
        )
    index = np.array(sorted({image for image, _, _ in chosen}))
    photos = pictures.example_photos(first.dataset, "train", index)
    shown = dict(zip(index.tolist(), photos, strict=True)) if photos else {}
    figures = [_over_epochs(label, first, progress, chosen, shown, columns) for label, progress in found.items()]
    if len(found) > 1:
        figures.append(_side_by_side(first, found, chosen, shown))
    text = (
        "The images are the first of those written down that have an annotated class, one that is present without "
        "being annotated, and an absent one; of several, that with the brightest heatmap at the end."
    )
    facts = {label: _ends(progress, chosen) for label, progress in found.items()}
    return Section("heatmap-progress", "Progress of heatmaps", (text,), tuple(figures), facts=facts)


def read_progress(subject: Subject) -> Progress:
    """All heatmaps that a run wrote down."""
    epochs, parts = [], []
    for epoch in records.read_records(subject.run):
        if epoch.has("heatmaps"):
            epochs.append(subject.run.recipe.epochs_before(epoch.stage) + epoch.epoch)
            names = ("index", "classes", "values")
            parts.append([epoch.column(f"heatmaps.{name}") for name in names])
    if not parts:
        raise TagfillError(
            f"The run {subject.run.folder} has written down no heatmaps; train a method with scl, such as en+scl, "
            "with --set record=heatmaps (and options.scl.weight=0 for heatmaps that do not teach)."
        )
    index, classes, last = parts[-1]
    alike = [at for at, (_, _, value) in enumerate(parts) if value.shape == last.shape]  # stages may have other grids
    values = np.stack([parts[at][2] for at in alike]).astype(np.float32) / np.float32(255)
    return Progress([epochs[at] for at in alike], index, classes, values)


def choose(subject: Subject, progress: Progress, images: int) -> Iterator[Chosen]:
    """Images with a class of each of the three kinds: position, class, and what it is."""
    known, truth = subject.dataset.labels("train").rows(progress.index), subject.truth().rows(progress.index)
    kinds = {
        "annotated": known == POSITIVE,
        "present, not annotated": (known == UNKNOWN) & (truth == POSITIVE),
        "absent": (known != POSITIVE) & (truth == NEGATIVE),
    }
    bright = progress.values[-1].max(axis=(2, 3))
    taken = 0
    for row, image in enumerate(progress.index.tolist()):
        kept = progress.classes[row]
        masks = {name: mask[row, kept] for name, mask in kinds.items()}
        if all(mask.any() for mask in masks.values()) and taken < images:
            taken += 1
            for name, mask in masks.items():
                yield image, int(kept[np.argmax(np.where(mask, bright[row], -1.0))]), name


def _over_epochs(
    label: str, subject: Subject, progress: Progress, chosen: list[Chosen], shown: dict[int, Image.Image], columns: int
) -> Figure:
    at = np.unique(np.linspace(0, len(progress.epochs) - 1, columns).round().astype(int)).tolist()
    rows, numbers = [], []
    for example in chosen:
        maps = progress.of(*example[:2])
        if maps is not None:
            rows.append(_row(subject, example, shown, [maps[epoch] for epoch in at]))
            numbers += [
                (*_words(subject, example), epoch, *_measures(values))
                for epoch, values in zip(progress.epochs, maps, strict=True)
            ]
    name = f"heatmaps-{file_name(label)}"
    heads = ("image", "class", "kind", "epoch", "mean", "highest")
    return Figure(
        name,
        f"Running heatmaps of {label}, from dark (0) to bright (1).",
        f"{len(rows)} rows of heatmaps over {len(at)} epochs.",
        pictures.picture_png(
            pictures.picture_grid(["image", *(f"epoch {progress.epochs[epoch]}" for epoch in at)], rows, side=150)
        ),
        data=Table(name, f"Mean and highest value of the heatmaps of {label}.", heads, numbers),
    )


def _side_by_side(
    subject: Subject, found: dict[str, Progress], chosen: list[Chosen], shown: dict[int, Image.Image]
) -> Figure:
    rows, numbers = [], []
    for example in chosen:
        maps = [progress.of(*example[:2]) for progress in found.values()]
        last = [each[-1] for each in maps if each is not None]
        if len(last) == len(found):
            rows.append(_row(subject, example, shown, last))
            numbers += [
                (label, *_words(subject, example), *_measures(values))
                for label, values in zip(found, last, strict=True)
            ]
    if not rows:
        raise TagfillError("The runs wrote down other images; train them with the same seed on the same dataset.")
    heads = ("run", "image", "class", "kind", "mean", "highest")
    return Figure(
        "heatmaps-side-by-side",
        "Heatmaps of the last epoch, the same images in all runs.",
        f"{len(rows)} rows of heatmaps of {len(found)} runs.",
        pictures.picture_png(pictures.picture_grid(["image", *found], rows, side=190)),
        data=Table("heatmaps-side-by-side", "Mean and highest value of the last heatmaps.", heads, numbers),
    )


def _row(
    subject: Subject, example: Chosen, shown: dict[int, Image.Image], maps: list[NDArray[np.float32]]
) -> pictures.Row:
    """An image and its heatmaps; where the image is not at hand, heatmaps on black."""
    photo = shown.get(example[0], Image.new("RGB", (pictures.SIDE, pictures.SIDE)))
    overlays = [pictures.overlay_class_map(photo, values, scaling="unit") for values in maps]
    return pictures.Row(f"{subject.dataset.classes[example[1]]}\n{example[2]}", [photo, *overlays])


def _words(subject: Subject, example: Chosen) -> tuple[str, str, str]:
    image, label, kind = example
    (name,) = subject.dataset.names(subject.dataset.split("train")[[image]])
    return name, subject.dataset.classes[label], kind


def _measures(values: NDArray[np.float32]) -> tuple[float, float]:
    return round(float(values.mean()), 4), round(float(values.max()), 4)


def _ends(progress: Progress, chosen: list[Chosen]) -> dict[str, float]:
    """The highest value of the last heatmaps of each kind, mean over the examples."""
    found: dict[str, list[float]] = {}
    for image, label, kind in chosen:
        maps = progress.of(image, label)
        if maps is not None:
            found.setdefault(kind, []).append(float(maps[-1].max()))
    return {kind: round(float(np.mean(values)), 4) for kind, values in found.items()}
