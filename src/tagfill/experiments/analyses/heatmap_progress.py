"""How running heatmaps develop: stored heatmaps over the epochs, and several runs side by side at the end.

The heatmap of an annotated class starts everywhere and shrinks to its place, that of a present but unannotated class
grows there, and that of an absent class should stay dark (Verelst et al., WACV 2023, Fig. 3). With
`options.scl.weight=0`, heatmaps are stored but not used for training, which is the comparison of Fig. 4. Needs runs of
`scl` with `record: [heatmaps]`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from tagfill.errors import TagfillError
from tagfill.experiments import pictures
from tagfill.experiments.analyses.inputs import AnalysisInput, AnalyzedRun, file_name
from tagfill.experiments.report import Figure, Section, Table
from tagfill.labels import NEGATIVE, POSITIVE, UNKNOWN
from tagfill.training import records


@dataclass(frozen=True)
class Example:
    """A training image and a class whose heatmaps are shown.

    Attributes:
        image: position in the training split.
        label: the class.
        kind: `annotated`, `present, not annotated` or `absent`.
        name: of the image.
        class_name: of the class.
        photo: the image, or black if it is not available.
    """

    image: int
    label: int
    kind: str
    name: str
    class_name: str
    photo: Image.Image

    def grid_row(self, heatmaps: Sequence[NDArray[np.float32]]) -> pictures.GridRow:
        """The photo beside heatmaps drawn on it."""
        drawn = [pictures.overlay_class_map(self.photo, values, scaling="unit") for values in heatmaps]
        return pictures.GridRow(f"{self.class_name}\n{self.kind}", [self.photo, *drawn])


@dataclass(frozen=True)
class HeatmapHistory:
    """The heatmaps that a run recorded.

    Attributes:
        epochs: their numbers over all stages.
        index: n, positions of the training images.
        classes: n×k, classes that heatmaps are stored for.
        values: epochs × n×k×W×W in 0…1.
    """

    epochs: list[int]
    index: NDArray[np.int64]
    classes: NDArray[np.int32]
    values: NDArray[np.float32]

    def of(self, image: int, label: int) -> NDArray[np.float32] | None:
        """Heatmaps of an image and class over the epochs; None if they are not stored."""
        rows = np.flatnonzero(self.index == image)
        if not len(rows):
            return None
        places = np.flatnonzero(self.classes[rows[0]] == label)
        return self.values[:, rows[0], places[0]] if len(places) else None


def analyze_heatmap_progress(inputs: AnalysisInput, *, images: int = 2, columns: int = 6) -> Section:
    """Stored heatmaps over the epochs: an annotated, an unannotated and an absent class; runs side by side.

    Args:
        inputs: runs that have recorded their heatmaps.
        images: number of example images.
        columns: number of epochs shown, evenly spaced.
    """
    histories = {label: read_history(inputs.seeds_of(label)[0]) for label in inputs.labels}
    first = inputs.runs[0]
    chosen = list(choose_examples(first, histories[first.label], images))
    if not chosen:
        raise TagfillError(
            f"None of the images that {first.run.folder} recorded has an annotated, a missing and an absent class."
        )
    examples = _load_examples(first, chosen)
    drawn = [_picture_epochs(label, history, examples, columns) for label, history in histories.items()]
    if len(histories) > 1:
        drawn.append(_picture_side_by_side(histories, examples))
    facts = {}
    for label, history in histories.items():
        highest: dict[str, list[float]] = {}
        for example in examples:
            maps = history.of(example.image, example.label)
            if maps is not None:
                highest.setdefault(example.kind, []).append(float(maps[-1].max()))
        facts[label] = {kind: round(float(np.mean(values)), 4) for kind, values in highest.items()}
    text = (
        "The images are the first recorded ones that have an annotated class, a class that is present but not "
        "annotated, and an absent class; if there are several, the one with the brightest heatmap at the end."
    )
    return Section("heatmap-progress", "Progress of heatmaps", (text,), tuple(drawn), facts=facts)


def read_history(run: AnalyzedRun) -> HeatmapHistory:
    """Read all heatmaps that a run recorded; of several stages, those with the grid of the last one."""
    epochs, parts = [], []
    for record in records.read_records(run.run):
        if record.has("heatmaps"):
            epochs.append(run.run.recipe.epochs_before(record.stage) + record.epoch)
            parts.append([record.column(f"heatmaps.{name}") for name in ("index", "classes", "values")])
    if not parts:
        raise TagfillError(
            f"The run {run.run.folder} has not recorded heatmaps; train a method with scl, such as en+scl, with --set "
            "record=heatmaps (and options.scl.weight=0 for heatmaps that are not used for training)."
        )
    index, classes, last = parts[-1]
    same_grid = [at for at, (_, _, value) in enumerate(parts) if value.shape == last.shape]
    values = np.stack([parts[at][2] for at in same_grid]).astype(np.float32) / np.float32(255)
    return HeatmapHistory([epochs[at] for at in same_grid], index, classes, values)


def choose_examples(run: AnalyzedRun, history: HeatmapHistory, images: int) -> Iterator[tuple[int, int, str]]:
    """Choose images that have a class of each of the three kinds; yield image, class and kind."""
    known, truth = run.dataset.labels("train").rows(history.index), run.truth().rows(history.index)
    kinds = {
        "annotated": known == POSITIVE,
        "present, not annotated": (known == UNKNOWN) & (truth == POSITIVE),
        "absent": (known != POSITIVE) & (truth == NEGATIVE),
    }
    brightest = history.values[-1].max(axis=(2, 3))
    taken = 0
    for row, image in enumerate(history.index.tolist()):
        stored = history.classes[row]
        masks = {kind: mask[row, stored] for kind, mask in kinds.items()}
        if all(mask.any() for mask in masks.values()) and taken < images:
            taken += 1
            for kind, mask in masks.items():
                yield image, int(stored[np.argmax(np.where(mask, brightest[row], -1.0))]), kind


def _load_examples(run: AnalyzedRun, chosen: list[tuple[int, int, str]]) -> list[Example]:
    data = run.dataset
    index = np.array(sorted({image for image, _, _ in chosen}))
    photos = pictures.load_examples(data, "train", index) or [
        Image.new("RGB", (pictures.SIDE, pictures.SIDE)) for _ in index
    ]
    shown = dict(zip(index.tolist(), photos, strict=True))
    names = dict(zip(index.tolist(), data.names(data.split("train")[index]), strict=True))
    return [
        Example(image, label, kind, names[image], data.classes[label], shown[image]) for image, label, kind in chosen
    ]


def _picture_epochs(label: str, history: HeatmapHistory, examples: list[Example], columns: int) -> Figure:
    shown = np.unique(np.linspace(0, len(history.epochs) - 1, columns).round().astype(int)).tolist()
    rows, numbers = [], []
    for example in examples:
        maps = history.of(example.image, example.label)
        if maps is not None:
            rows.append(example.grid_row([maps[at] for at in shown]))
            numbers += [
                (example.name, example.class_name, example.kind, epoch, *_mean_and_highest(values))
                for epoch, values in zip(history.epochs, maps, strict=True)
            ]
    name = f"heatmaps-{file_name(label)}"
    captions = ["image", *(f"epoch {history.epochs[at]}" for at in shown)]
    headings = ("image", "class", "kind", "epoch", "mean", "highest")
    return Figure(
        name,
        f"Running heatmaps of {label}, from dark (0) to bright (1).",
        f"{len(rows)} rows of heatmaps over {len(shown)} epochs.",
        pictures.picture_png(pictures.picture_grid(captions, rows, side=150)),
        data=Table(name, f"Mean and highest value of the heatmaps of {label}.", headings, numbers),
    )


def _picture_side_by_side(histories: Mapping[str, HeatmapHistory], examples: list[Example]) -> Figure:
    rows, numbers = [], []
    for example in examples:
        maps = [history.of(example.image, example.label) for history in histories.values()]
        last = [each[-1] for each in maps if each is not None]
        if len(last) == len(histories):
            rows.append(example.grid_row(last))
            numbers += [
                (label, example.name, example.class_name, example.kind, *_mean_and_highest(values))
                for label, values in zip(histories, last, strict=True)
            ]
    if not rows:
        raise TagfillError("The runs recorded different images; train them with the same seed on the same dataset.")
    headings = ("run", "image", "class", "kind", "mean", "highest")
    return Figure(
        "heatmaps-side-by-side",
        "Heatmaps of the last epoch for the same images in all runs.",
        f"{len(rows)} rows of heatmaps of {len(histories)} runs.",
        pictures.picture_png(pictures.picture_grid(["image", *histories], rows, side=190)),
        data=Table("heatmaps-side-by-side", "Mean and highest value of the last heatmaps.", headings, numbers),
    )


def _mean_and_highest(values: NDArray[np.float32]) -> tuple[float, float]:
    return round(float(values.mean()), 4), round(float(values.max()), 4)
