"""The maps of a budget study: image, truth, and what models of each kind of annotation look at."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from tagfill.annotations import Dataset
from tagfill.experiments import examples, pictures
from tagfill.experiments.class_maps import class_maps
from tagfill.experiments.running import Job
from tagfill.images import fitted, open_root
from tagfill.loading import Locations
from tagfill.training.trained import Trained


def draw(data: Dataset, jobs: Mapping[str, Job], *, split: str = "val") -> bytes | None:
    """The first images of a split on which there is something to see, as PNG.

    Examples are not chosen by how good the maps are: it is the first image of each class, in the order of the split.

    Args:
        data: with the truth.
        jobs: a finished run of each kind of annotation.
        split: of the images; the test split if there is no such split.
    """
    split = split if split in data.splits else next(iter(jobs.values())).split
    places = Locations.read(data, split)
    chosen = examples.pairs(data, split)
    if not chosen:
        return None
    index = np.array([image for image, _ in chosen])
    found = {kind: class_maps(_opened(job, data), split, index) for kind, job in jobs.items()}
    root, names = open_root(data.root), data.names(data.split(split))
    rows = []
    for position, (image, label) in enumerate(chosen):
        shown = fitted(root, names[image], examples.SIDE)
        marks = places.of(np.array([image]))
        truth = pictures.outlined(shown, marks.box[marks.label == label])
        maps = [pictures.overlay(shown, values[position, label]) for values, _ in found.values()]
        notes = ["", "", *(f"{share[position, label]:.0%}" for _, share in found.values())]
        rows.append(pictures.Row(data.classes[label], [shown, truth, *maps], notes))
    return pictures.png(pictures.grid(["image", "truth", *(f"trained on {kind}" for kind in found)], rows))


def _opened(job: Job, data: Dataset) -> Trained:
    return Trained.open(job.folder, data, features=job.recipe.final_features, maps=True)
