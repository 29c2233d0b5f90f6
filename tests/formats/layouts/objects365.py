"""Objects365 version 2 as it is published."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

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


def write(folder: Path, split: str, images: list[dict[str, Any]], annotations: list[dict[str, Any]]) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"zhiyuan_objv2_{split}.json"
    content = {"images": images, "annotations": annotations, "categories": CATEGORIES, "licenses": [{"name": ""}]}
    path.write_text(json.dumps(content), encoding="utf-8")
    return path
