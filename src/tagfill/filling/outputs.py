"""The result in the formats of other tools."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from tagfill import formats
from tagfill.dataset import Dataset
from tagfill.dataset.tables import IMAGES_SCHEMA, from_records
from tagfill.formats.image_files import read_size
from tagfill.labels import POSITIVE

_UNKNOWN_IS_ABSENT, _ABSENT_IS_UNKNOWN = {"unknown": "absent"}, {"absent_means": "unknown"}
_TARGETS: dict[str, tuple[str, dict[str, Any]]] = {  # name below the folder, and what the format must be told
    "coco": ("coco", _UNKNOWN_IS_ABSENT),
    "csv": ("labels.csv", {}),
    "cvat": ("cvat.xml", {}),
    "folder": ("folder", _ABSENT_IS_UNKNOWN),
    "label-studio": ("label-studio.json", {}),
    "tags": ("tags.csv", _ABSENT_IS_UNKNOWN),
    "voc": ("voc", _UNKNOWN_IS_ABSENT),
    "wide-csv": ("wide.csv", {}),
    "yolo": ("yolo", _ABSENT_IS_UNKNOWN),
}
_NEED_BOXES, _TABLES = ("coco", "voc", "yolo"), ("csv", "tags", "wide-csv")


def check_formats(names: Sequence[str]) -> None:
    """Raise for a format that does not exist or cannot be written."""
    for name in names:
        formats.get(name).write  # noqa: B018  raises for a format that can only be read


def write_formats(result: Dataset, folder: Path, names: Sequence[str], *, spreadsheet: bool = False) -> list[Path]:
    """Write the result in some formats.

    A format that knows nothing but boxes gets a box of the whole photo for each tag.

    Args:
        result: with the added tags.
        folder: of the result.
        names: of the formats.
        spreadsheet: in tables, write an apostrophe before names that a spreadsheet would run as formulas.

    Returns:
        What was written.
    """
    written = []
    for name in names:
        where, options = _TARGETS[name]
        path = folder / where
        if name in _TABLES:
            options = {**options, "spreadsheet": spreadsheet}
        if path.is_dir():
            shutil.rmtree(path)
        formats.get(name).write(_with_boxes(result) if name in _NEED_BOXES else result, path, **options)
        written.append(path)
    return written


def _with_boxes(result: Dataset) -> Dataset:
    """The dataset with sizes of its photos, and a box of the whole photo for each present tag without a location."""
    images = result.images.select(["image", "split", "width", "height"]).to_pylist()
    for image in images:
        if image["width"] is None:
            image["width"], image["height"] = read_size(result.root, image["image"])
    rows = [row for row in result.rows().to_pylist() if row["kind"] != "image"]
    located = {(row["image"], row["label"]) for row in rows if row["present"]}
    for block, labels in result.labels().blocks():
        for position, label in zip(*np.nonzero(labels == POSITIVE), strict=True):
            pair = images[block.start + position]["image"], result.classes[label]
            if pair not in located:
                whole = {"kind": "box", "x": 0.5, "y": 0.5, "w": 1.0, "h": 1.0}
                rows.append({"image": pair[0], "label": pair[1], "present": True, **whole})
    return result.replace(images=from_records(images, IMAGES_SCHEMA), annotations=from_records(rows), folder=None)
