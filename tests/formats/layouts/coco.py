"""COCO instances in the published layout: ids with gaps, `images` before `annotations`, `categories` last."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

CATEGORIES = [
    {"supercategory": "person", "id": 1, "name": "person"},
    {"supercategory": "vehicle", "id": 2, "name": "bicycle"},
    {"supercategory": "outdoor", "id": 13, "name": "stop sign"},
    {"supercategory": "animal", "id": 90, "name": "zebra"},
]

TRIANGLE = [10.0, 10.0, 50.0, 10.0, 10.0, 40.0]
SQUARE = [60.5, 60.5, 80.5, 60.5, 80.5, 75.5, 60.5, 75.5]


def image(identity: int, subset: str = "train2014", width: int = 100, height: int = 80) -> dict[str, Any]:
    name = f"COCO_{subset}_{identity:012d}.jpg" if subset.endswith("2014") else f"{identity:012d}.jpg"
    return {
        "license": 5,
        "file_name": name,
        "coco_url": f"http://images.cocodataset.org/{subset}/{name}",
        "height": height,
        "width": width,
        "date_captured": "2013-11-14 16:28:13",
        "id": identity,
    }


def polygons(identity: int, image_id: int, category_id: int, *parts: list[float], **more: Any) -> dict[str, Any]:
    xs = [x for part in parts for x in part[::2]]
    ys = [y for part in parts for y in part[1::2]]
    return {
        "segmentation": list(parts),
        "area": 600.0,
        "iscrowd": 0,
        "image_id": image_id,
        "bbox": [min(xs), min(ys), max(xs) - min(xs), max(ys) - min(ys)],
        "category_id": category_id,
        "id": identity,
        **more,
    }


def crowd(identity: int, image_id: int, category_id: int, height: int = 80, width: int = 100) -> dict[str, Any]:
    """Two columns at x = 4, as uncompressed runs."""
    return {
        "segmentation": {"counts": [4 * height, 2 * height, (width - 6) * height], "size": [height, width]},
        "area": 2 * height,
        "iscrowd": 1,
        "image_id": image_id,
        "bbox": [4, 0, 2, height],
        "category_id": category_id,
        "id": identity,
    }


def write(
    folder: Path,
    images: list[dict[str, Any]],
    annotations: list[dict[str, Any]],
    *,
    name: str = "instances_train2014",
    categories: list[dict[str, Any]] | None = None,
    order: tuple[str, ...] = ("info", "images", "licenses", "annotations", "categories"),
) -> Path:
    content = {
        "info": {"description": 'COCO "Dataset" \\ {[', "version": "1.0"},
        "images": images,
        "licenses": [{"id": 1, "name": "Attribution [a]"}],
        "annotations": annotations,
        "categories": CATEGORIES if categories is None else categories,
    }
    path = folder / "annotations" / f"{name}.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps({key: content[key] for key in order}), encoding="utf-8")
    return path
