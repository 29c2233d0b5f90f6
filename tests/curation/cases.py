"""A few photos with one label each, and suggestions about them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from PIL import Image

from tagfill.curation import Suggestions
from tagfill.curation.suggestions import SCHEMA
from tagfill.dataset import Dataset
from tagfill.dataset.tables import IMAGES_SCHEMA, from_records

CLASSES = ("cup", "dog", "tree")


def photos(folder: Path, count: int = 6, *, tables: str = "parquet") -> Dataset:
    """A dataset on disk whose images are small colored squares; every image is known to show a dog."""
    (folder / "images").mkdir(parents=True, exist_ok=True)
    names = [f"{number:05d}.jpg" for number in range(count)]
    for number, name in enumerate(names):
        color = tuple(np.random.default_rng(number).integers(40, 220, 3).tolist())
        Image.new("RGB", (48, 40), color).save(folder / "images" / name)
    data = Dataset(
        name="photos",
        root=folder / "images",
        classes=CLASSES,
        images=from_records([{"image": name, "split": "train"} for name in names], IMAGES_SCHEMA),
        annotations=from_records([{"image": name, "label": "dog", "present": True} for name in names]),
    )
    return data.save(folder / "data", tables=tables)


def suggestions(data: Dataset, labels: tuple[str, ...] = ("cup", "tree"), **changes: Any) -> Suggestions:
    """Suggestions of every image with every label, most probable first."""
    names = data.names()
    rows = [
        {"image": name, "label": label, "kind": "missing", "annotated": None, **changes}
        for label in labels
        for name in names
    ]
    for number, row in enumerate(rows):
        row["probability"] = row["value"] = 1 - (number % len(names) + 1) / (len(names) + 1)
    return Suggestions(pa.Table.from_pylist(rows, schema=SCHEMA), {"run": "runs/a"})
