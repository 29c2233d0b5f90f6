"""LVIS as it is published, v1 and v0.5."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from formats.layouts import coco_style
from tagfill.dataset import Dataset

CATEGORIES = [
    {"id": 1, "name": "aerosol_can", "synset": "aerosol.n.02", "frequency": "c", "image_count": 64},
    {"id": 2, "name": "air_conditioner", "synset": "air_conditioner.n.01", "frequency": "f", "image_count": 364},
    {"id": 5, "name": "alligator", "synset": "alligator.n.02", "frequency": "c", "image_count": 26},
    {"id": 9, "name": "zucchini", "synset": "zucchini.n.02", "frequency": "r", "image_count": 6},
]


def image(
    identity: int, subset: str = "train2017", absent: tuple[int, ...] = (), partly: tuple[int, ...] = ()
) -> dict[str, Any]:
    return {
        "date_captured": "2013-11-15 04:30:29",
        "neg_category_ids": list(absent),
        "id": identity,
        "license": 1,
        "height": 80,
        "width": 100,
        "flickr_url": "http://farm3.staticflickr.com/2560/x_z.jpg",
        "coco_url": f"http://images.cocodataset.org/{subset}/{identity:012d}.jpg",
        "not_exhaustive_category_ids": list(partly),
    }


def old_image(identity: int, **more: Any) -> dict[str, Any]:
    """v0.5: a name from COCO 2014."""
    item = image(identity, **more)
    del item["coco_url"]
    return {**item, "file_name": f"COCO_val2014_{identity:012d}.jpg"}


def polygon(identity: int, image_id: int, category_id: int) -> dict[str, Any]:
    return {
        "area": 300.0,
        "id": identity,
        "segmentation": [[60.5, 60.5, 80.5, 60.5, 80.5, 75.5, 60.5, 75.5]],
        "image_id": image_id,
        "bbox": [60.5, 60.5, 20.0, 15.0],
        "category_id": category_id,
    }


def write(
    folder: Path, name: str, images: list[dict[str, Any]], annotations: list[dict[str, Any]], **more: Any
) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{name}.json"
    content = {"info": {}, "annotations": annotations, "images": images, "licenses": [], "categories": CATEGORIES}
    path.write_text(json.dumps({**content, **more}), encoding="utf-8")
    return path


def write_dataset(folder: Path, dataset: Dataset) -> None:
    """Images of COCO 2017; present labels without a location are not exhaustively marked."""
    codes = {label: code for code, label in enumerate(dataset.classes, start=1)}
    for split in dataset.splits:
        images = {
            name: image(item["id"], name.split("/")[0]) | item
            for name, item in coco_style.images(dataset, split).items()
        }
        annotations = []
        for row, annotation in coco_style.annotations(dataset, split):
            counts = row["rle"].decode() if row["kind"] == "mask" else None
            mask = {"size": [row["rle_height"], row["rle_width"]], "counts": counts}
            annotations.append({**annotation, "segmentation": mask if counts else []})
        for row in dataset.rows().to_pylist():
            if row["image"] in images and row["kind"] == "image" and row["present"] is not None:
                key = "not_exhaustive_category_ids" if row["present"] else "neg_category_ids"
                images[row["image"]][key].append(codes[row["label"]])
        content = list(images.values())
        write(folder, f"lvis_v1_{split}", content, annotations, categories=coco_style.categories(dataset))
