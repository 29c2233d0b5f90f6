"""COCO panoptic: things and stuff of every image, with a box around each segment.

    annotations/panoptic_train2017.json, annotations/panoptic_val2017.json
    train2017/000000000009.jpg, …

133 classes, of which 80 are things and 53 stuff. Their supercategories are further classes and the parents in the
hierarchy. Labels are exhaustive: a class without a segment is absent, and so is a supercategory none of whose classes
is present; that one is present follows from the hierarchy.

Kirillov et al., Panoptic Segmentation, CVPR 2019.
"""

from __future__ import annotations

import os
from pathlib import Path

from tagfill.dataset import Dataset, Hierarchy
from tagfill.errors import DatasetError, one_of
from tagfill.formats import coco_json, json_stream, read_only
from tagfill.formats.coco_json import Categories, Pictures, Shown
from tagfill.formats.json_stream import JsonFile
from tagfill.formats.reader import Collector
from tagfill.progress import SILENT, Progress

TITLE = "COCO panoptic 2017"

__getattr__ = read_only("coco-panoptic")
_SPLITS = ("train", "val")


def read(
    source: str | os.PathLike[str],
    *,
    locations: str = "box",
    supercategories: bool = True,
    images: str = "annotated",
    progress: Progress = SILENT,
) -> Dataset:
    """Read COCO panoptic.

    Args:
        source: the folder that holds `annotations/`.
        locations: `box`, or `none` for labels of whole images.
        supercategories: whether they are classes and parents in the hierarchy.
        images: `annotated`, or `all` for those without any segment too.
        progress: told about the bytes read.

    Raises:
        DatasetError: a file is missing, damaged, or contradicts itself.
    """
    one_of("locations", locations, ("box", "none"))
    one_of("images", images, coco_json.IMAGES)
    folder = Path(source)
    paths = {split: folder / "annotations" / f"panoptic_{split}2017.json" for split in _SPLITS}
    files = {split: JsonFile.open(path) for split, path in paths.items() if path.is_file()}
    if not files:
        raise DatasetError(f"{folder} has no annotations/panoptic_train2017.json and no panoptic_val2017.json.")
    categories = coco_json.agreed_categories(list(files.values()))
    edges = _edges(categories) if supercategories else ()
    inner = dict.fromkeys(parent for _, parent in edges if parent not in categories.names)
    classes = (*categories.names, *inner)
    above = {
        label: [classes[code] for code in codes]
        for label, codes in zip(classes, Hierarchy(classes, edges).ancestors, strict=True)
    }
    collector = Collector("coco-panoptic", folder, classes, source="coco-panoptic")
    for split, file in files.items():
        pictures = coco_json.read_pictures(file, coco_json.in_folder(f"{split}2017"), progress)
        shown = _collect(file, collector, pictures, categories, locations, progress)
        for position, labels in shown.per_image():
            if labels or images == "all":
                name = pictures.names[position]
                collector.add_image(name, split, pictures.widths[position], pictures.heights[position])
                collector.add_absent(name, {*labels, *(upper for label in labels for upper in above[label])})
    return collector.dataset(hierarchy=edges)


def _collect(
    file: JsonFile,
    collector: Collector,
    pictures: Pictures,
    categories: Categories,
    locations: str,
    progress: Progress,
) -> Shown:
    """Add a row for each segment, or for each image and class."""
    shown = Shown(pictures, categories)
    for item in file.items("annotations", f"Segments of {file.path.name}", progress):
        segments = item.get("segments_info")
        if not isinstance(segments, list) or not all(isinstance(segment, dict) for segment in segments):
            image = json_stream.shown(item.get("image_id"))
            raise DatasetError(f"{file.path}: the annotation of image {image} has no segments_info.")
        for segment in segments:
            coco_json.add_one(
                file, {**segment, "image_id": item.get("image_id")}, collector, pictures, categories, shown, locations
            )
    if locations == "none":
        shown.add_rows(collector)
    return shown


def _edges(categories: Categories) -> tuple[tuple[str, str], ...]:
    """Each class below its supercategory; a class that is its own (person) has no parent."""
    return tuple(
        (name, parent)
        for name, parent in zip(categories.names, categories.parents, strict=True)
        if parent is not None and parent != name
    )
