"""A COCO-style JSON file of any size, with random polygons, written in little memory."""

from __future__ import annotations

import json
from pathlib import Path
from random import Random
from typing import Any

CLASSES = 80
ANNOTATIONS_PER_IMAGE = 7
BYTES_PER_ANNOTATION = 640  # on average, as in COCO 2017


def generate(path: Path, size: int) -> None:
    """Write a file of about `size` bytes; images come first, then annotations, categories last, as in COCO."""
    random = Random(0)
    images = max(size // BYTES_PER_ANNOTATION // ANNOTATIONS_PER_IMAGE, 1)
    with path.open("wb") as file:
        file.write(b'{"info": {"description": "benchmark"}, "images": [')
        for number in range(images):
            file.write(b", " * (number > 0) + json.dumps(image(number)).encode())
        file.write(b'], "licenses": [], "annotations": [')
        number = 0
        while file.tell() < size:
            file.write(b", " * (number > 0) + json.dumps(annotation(number, number % images, random)).encode())
            number += 1
        categories = [{"id": number, "name": f"class {number}"} for number in range(CLASSES)]
        file.write(b'], "categories": ' + json.dumps(categories).encode() + b"}")


def image(number: int) -> dict[str, Any]:
    name = f"{number:012d}.jpg"
    url = f"http://images.cocodataset.org/train2017/{name}"
    return {"license": 3, "file_name": name, "coco_url": url, "height": 480, "width": 640, "id": number}


def annotation(number: int, image_id: int, random: Random) -> dict[str, Any]:
    corners = random.randrange(4, 60)
    return {
        "segmentation": [[round(random.uniform(0, 480), 2) for _ in range(2 * corners)]],
        "area": 702.1,
        "iscrowd": 0,
        "image_id": image_id,
        "bbox": [473.07, 395.93, 38.65, 28.67],
        "category_id": number % CLASSES,
        "id": number,
    }


def generate_nested(path: Path, depth: int) -> None:
    """Write a small file with lists inside lists."""
    path.write_text('{"info": ' + "[" * depth + "]" * depth + ', "images": []}', encoding="utf-8")
