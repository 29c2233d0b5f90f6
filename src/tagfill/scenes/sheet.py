"""A few images of a dataset side by side."""

from __future__ import annotations

import math

from PIL import Image, ImageOps

from tagfill.annotations import Dataset
from tagfill.annotations.image_root import local


def contact_sheet(
    dataset: Dataset, count: int = 9, *, split: str | None = None, cell: int = 224, gap: int = 8
) -> Image.Image:
    """The first `count` images on a white square grid, each fitted into `cell` pixels.

    Args:
        dataset: where the images are from.
        count: how many; fewer are shown if there are fewer.
        split: take them from this split alone.
        cell: pixels of the side of a cell.
        gap: pixels between cells and around them.
    """
    root = local(dataset.root, "A contact sheet")
    names = dataset.names(None if split is None else dataset.split(split))[:count]
    columns = max(1, math.ceil(math.sqrt(len(names))))
    lines = max(1, math.ceil(len(names) / columns))
    sheet = Image.new("RGB", (gap + columns * (cell + gap), gap + lines * (cell + gap)), "white")
    for position, name in enumerate(names):
        with Image.open(root / name) as image:
            fitted = ImageOps.pad(image.convert("RGB"), (cell, cell), color="white")
        sheet.paste(fitted, (gap + position % columns * (cell + gap), gap + position // columns * (cell + gap)))
    return sheet
