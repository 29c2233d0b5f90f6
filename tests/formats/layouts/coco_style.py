"""The lists of a COCO-style JSON file, made from a dataset: what LVIS, Objects365 and COCO panoptic share."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import PurePosixPath
from typing import Any

from tagfill.dataset import Dataset


def images(dataset: Dataset, split: str) -> dict[str, dict[str, Any]]:
    """The images of a split by name; an id is the number at the end of the file name."""
    found = {}
    for record in dataset.images.take(dataset.split(split)).to_pylist():
        number = "".join(filter(str.isdigit, PurePosixPath(record["image"]).stem.split("_")[-1]))
        found[record["image"]] = {"id": int(number), "width": record["width"], "height": record["height"]}
    return found


def annotations(dataset: Dataset, split: str) -> Iterator[tuple[dict[str, Any], dict[str, Any]]]:
    """Each located row of a split with its annotation; class k has the category id k + 1."""
    names = images(dataset, split)
    for number, row in enumerate(dataset.rows().to_pylist(), start=1):
        if row["kind"] == "image" or row["image"] not in names:
            continue
        image = names[row["image"]]
        width, height = row["w"] * image["width"], row["h"] * image["height"]
        left, top = row["x"] * image["width"] - width / 2, row["y"] * image["height"] - height / 2
        yield (
            row,
            {
                "id": number,
                "image_id": image["id"],
                "category_id": dataset.classes.index(row["label"]) + 1,
                "bbox": [left, top, width, height],
                "area": width * height,
            },
        )


def categories(dataset: Dataset) -> list[dict[str, Any]]:
    """The classes, numbered from 1."""
    return [{"id": number, "name": name} for number, name in enumerate(dataset.classes, start=1)]
