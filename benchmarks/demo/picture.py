"""What a model finds on test scenes, and where: the picture of the front page."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from PIL import Image

from tagfill.dataset import Dataset
from tagfill.experiments.pictures import GridRow, picture_grid
from tagfill.images.display import overlay_class_map
from tagfill.inference import open_predictor

SCENES, LABELS = 3, 3


def picture(run: Path, data: Dataset) -> Image.Image:
    """The first test scenes that show three classes, and the model's three surest labels of each.

    Args:
        run: a run with class maps.
        data: scenes with complete labels.
    """
    predictor = open_predictor(run, threads=1)
    truth = data.labels("test").dense() == 1
    chosen = np.flatnonzero(truth.sum(1) == LABELS)[:SCENES]
    names = data.names(data.split("test")[chosen])
    images = [Image.open(Path(str(data.root)) / name).convert("RGB") for name in names]
    pixels = np.stack([np.asarray(image.resize(predictor.size[::-1], Image.Resampling.BICUBIC)) for image in images])
    seen = predictor(pixels, maps=True)
    assert seen.maps is not None
    rows = []
    for position, image in enumerate(images):
        surest = np.argsort(-seen.logits[position])[:LABELS]
        present = truth[chosen[position]]
        notes = ["", *(note(predictor.classes[label], bool(present[label])) for label in surest)]
        maps = [overlay_class_map(image, seen.maps[position, label]) for label in surest]
        title = "\n".join(predictor.classes[label] for label in np.flatnonzero(present))
        rows.append(GridRow(title, [image, *maps], notes))
    return picture_grid(["a test scene", "surest label", "second", "third"], rows, side=200)


def note(name: str, right: bool) -> str:
    return name if right else f"{name} (not there)"
