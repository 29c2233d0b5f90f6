"""Objects365 version 2 as it is published."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from formats.layouts import coco_style
from tagfill.dataset import Dataset

CATEGORIES = [{"name": "Person", "id": 1}, {"name": "Sneakers", "id": 2}, {"name": "Chair", "id": 3}]


def image(identity: int, patch: int = 0, version: str = "v1") -> dict[str, Any]:
    return {
        "height": 768,
        "id": identity,
        "license": 5,
        "width": 1024,
        "file_name": f"images/{version}/patch{patch}/objects365_{version}_{identity:08d}.jpg",
        "url": "",
    }


def box(identity: int, image_id: int, category_id: int, bbox: list[float], **more: Any) -> dict[str, Any]:
    return {
        "id": identity,
        "iscrowd": 0,
        "isfake": 0,
        "area": bbox[2] * bbox[3],
        "isreflected": 0,
        "bbox": bbox,
        "image_id": image_id,
        "category_id": category_id,
        **more,
    }


def write(
    folder: Path,
    split: str,
    images: list[dict[str, Any]],
    annotations: list[dict[str, Any]],
    categories: list[dict[str, Any]] = CATEGORIES,
) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"zhiyuan_objv2_{split}.json"
    content = {"images": images, "annotations": annotations, "categories": categories, "licenses": [{"name": ""}]}
    path.write_text(json.dumps(content), encoding="utf-8")
    return path


def write_dataset(folder: Path, dataset: Dataset) -> None:
    """Images named `{split}/patch3/objects365_v2_00000007.jpg` with boxes."""
    keys = {"iscrowd": "crowd", "isfake": "fake", "isreflected": "reflected"}
    for split in dataset.splits:
        images = [
            {**image, "file_name": name.replace(split, "images/v2", 1)}
            for name, image in coco_style.images(dataset, split).items()
        ]
        annotations = [
            {**annotation, **{key: int(flag in (row["flags"] or ())) for key, flag in keys.items()}}
            for row, annotation in coco_style.annotations(dataset, split)
        ]
        write(folder, split, images, annotations, coco_style.categories(dataset))
