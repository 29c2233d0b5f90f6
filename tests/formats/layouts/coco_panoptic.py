"""COCO panoptic 2017 as it is published."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from formats.layouts import coco_style
from tagfill.dataset import Dataset

CATEGORIES = [
    {"supercategory": "person", "isthing": 1, "id": 1, "name": "person"},
    {"supercategory": "animal", "isthing": 1, "id": 17, "name": "cat"},
    {"supercategory": "animal", "isthing": 1, "id": 18, "name": "dog"},
    {"supercategory": "textile", "isthing": 0, "id": 93, "name": "blanket"},
    {"supercategory": "textile", "isthing": 0, "id": 200, "name": "rug-merged"},
]


def image(identity: int) -> dict[str, Any]:
    return {
        "license": 2,
        "file_name": f"{identity:012d}.jpg",
        "coco_url": f"http://images.cocodataset.org/val2017/{identity:012d}.jpg",
        "height": 80,
        "width": 100,
        "date_captured": "2013-11-14 16:28:13",
        "id": identity,
    }


def segment(identity: int, category_id: int, bbox: list[int], iscrowd: int = 0) -> dict[str, Any]:
    return {"id": identity, "category_id": category_id, "iscrowd": iscrowd, "bbox": bbox, "area": 100}


def annotation(image_id: int, *segments: dict[str, Any]) -> dict[str, Any]:
    return {"segments_info": list(segments), "file_name": f"{image_id:012d}.png", "image_id": image_id}


def write(
    folder: Path,
    split: str,
    images: list[dict[str, Any]],
    annotations: list[dict[str, Any]],
    categories: list[dict[str, Any]] | None = None,
) -> Path:
    path = folder / "annotations" / f"panoptic_{split}2017.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    content = {"info": {}, "licenses": [], "images": images, "annotations": annotations}
    content["categories"] = CATEGORIES if categories is None else categories
    path.write_text(json.dumps(content), encoding="utf-8")
    return path


def write_dataset(folder: Path, dataset: Dataset) -> None:
    """Images in `train2017/` and `val2017/` with boxes; a parent becomes the supercategory of its children."""
    parents = dict(dataset.hierarchy)
    categories = [
        {**category, "supercategory": parents.get(category["name"], category["name"])}
        for category in coco_style.categories(dataset)
        if category["name"] not in parents.values()
    ]
    for split in dataset.splits:
        images = [{**item, "file_name": name.split("/")[1]} for name, item in coco_style.images(dataset, split).items()]
        segments: dict[int, list[dict[str, Any]]] = {item["id"]: [] for item in images}
        for row, item in coco_style.annotations(dataset, split):
            crowd = int("crowd" in (row["flags"] or ()))
            segments[item["image_id"]].append({**segment(item["id"], item["category_id"], item["bbox"], crowd)})
        write(folder, split, images, [annotation(key, *found) for key, found in segments.items()], categories)
