"""The maps of a budget study: image, truth, and what models of each kind of annotation look at."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from tagfill.annotations import Dataset
from tagfill.experiments import pictures
from tagfill.experiments.examples import located
from tagfill.experiments.running import Job
from tagfill.images import decode, open_root
from tagfill.loading import Locations
from tagfill.training.trained import Trained

_SIDE = 320  # pixels of an example's longest side before it is laid out


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
    chosen = list(located(places))
    if not chosen:
        return None
    index = np.array([image for image, _ in chosen])
    found = {kind: _maps(job, data, split, index) for kind, job in jobs.items()}
    root, names = open_root(data.root), data.names(data.split(split))
    rows = []
    for position, (image, label) in enumerate(chosen):
        shown = decode(root, names[image], shrink_to=(_SIDE, _SIDE)).convert("RGB")
        shown.thumbnail((_SIDE, _SIDE), Image.Resampling.LANCZOS)
        marks = places.of(np.array([image]))
        truth = pictures.outlined(shown, marks.box[marks.label == label])
        maps = [pictures.overlay(shown, values[position, label]) for values, _ in found.values()]
        notes = ["", "", *(f"{share[position, label]:.0%}" for _, share in found.values())]
        rows.append(pictures.Row(data.classes[label], [shown, truth, *maps], notes))
    return pictures.png(pictures.grid(["image", "truth", *(f"trained on {kind}" for kind in found)], rows))


def _maps(
    job: Job, data: Dataset, split: str, index: NDArray[np.int64]
) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """Class maps and probabilities of some images of a split."""
    trained = Trained.open(job.folder, data, features=job.recipe.final_features, maps=True)
    maps, scores = [], []
    for _, prediction in trained.predict(split, index, maps=True):
        assert prediction.maps is not None
        maps.append(prediction.maps.float().numpy(force=True))
        scores.append(prediction.logits.sigmoid().numpy(force=True))
    return np.concatenate(maps), np.concatenate(scores)
