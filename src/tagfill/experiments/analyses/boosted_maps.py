"""Class maps of several models over the same images, with a column for one of them boosted at inference alone.

Maps are shown as their model averages them, boosted where it boosts, and as probabilities of cells, so that colours
mean the same in every column: false negatives make a map darker and leave its shape (Kim et al., CVPR 2023, Fig. 4).
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray

from tagfill.experiments import examples, pictures
from tagfill.experiments.analyses.subjects import Subject
from tagfill.experiments.class_maps import class_maps
from tagfill.experiments.report import Figure, Table
from tagfill.models.boost import boost as boosted
from tagfill.training.trained import Trained


def picture_rows(subjects: Sequence[Subject], split: str, rows: int, boost: float) -> Figure | None:
    """Image, and the maps of each model; None where the images are not at hand.

    Args:
        subjects: the first has complete labels, the second is also shown boosted.
        split: of the images.
        rows: how many.
        boost: α for the second one.
    """
    data = subjects[0].dataset
    chosen = examples.pairs(data, split, rows)
    index = np.array([image for image, _ in chosen], dtype=np.int64)
    photos = examples.photos(data, split, index)
    if not chosen or photos is None:
        return None
    columns: dict[str, tuple[NDArray[np.float32], NDArray[np.float32]]] = {}
    for number, subject in enumerate(subjects):
        columns.setdefault(subject.label, _seen(subject.trained(maps=True), split, index))
        if number == 1:
            columns[f"{subject.label}, boosted"] = _seen(subject.trained(maps=True, boost=boost), split, index)
    lines, numbers = [], []
    names = data.names(data.split(split)[index])
    for position, (_, label) in enumerate(chosen):
        maps = [pictures.overlay(photos[position], m[position, label], scaling="sigmoid") for m, _ in columns.values()]
        scores = [float(score[position, label]) for _, score in columns.values()]
        lines.append(pictures.Row(data.classes[label], [photos[position], *maps], ["", *(f"{s:.3f}" for s in scores)]))
        numbers.append((names[position], data.classes[label], *(round(s, 6) for s in scores)))
    picture = pictures.grid(["image", *columns], lines, notes="above", side=192)
    return Figure(
        "maps",
        f"Class maps as probabilities of cells, and above each the model's score for the label. The column "
        f"'boosted' is the same model with α = {boost:g} at inference alone. The images are the first of {split} that "
        "show a new class.",
        f"{len(lines)} images beside the maps of {len(columns)} models.",
        pictures.png(picture),
        data=Table("maps", "Scores of the labels that are shown.", ("image", "label", *columns), numbers),
    )


def _seen(trained: Trained, split: str, index: NDArray[np.int64]) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """Maps as the model averages them, and probabilities, of some images."""
    maps, scores = class_maps(trained, split, index)
    head = trained.model.head.options
    slope = head.get("boost", 1.0) if head.get("boost_eval", True) else 1.0
    return boosted(torch.from_numpy(maps), slope, head.get("boost_from", 0.0)).numpy(), scores
