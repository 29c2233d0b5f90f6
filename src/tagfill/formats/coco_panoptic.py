"""COCO panoptic: things and stuff of every image, with a box around each segment.

    annotations/panoptic_train2017.json, annotations/panoptic_val2017.json
    train2017/000000000009.jpg, …

There are 133 classes, 80 things and 53 stuff. Their supercategories are further classes and the parents in the
hierarchy. Labels are exhaustive: a class without a segment is absent, and so is a supercategory without a present
class. That a supercategory is present follows from the hierarchy.

Kirillov et al., Panoptic Segmentation, CVPR 2019.
"""

from __future__ import annotations

import os
from pathlib import Path

from tagfill.dataset import Dataset, Hierarchy
from tagfill.errors import DatasetError, one_of
from tagfill.formats import coco_json, read_only
from tagfill.formats.coco_json import Categories, CocoFileReader
from tagfill.formats.dataset_builder import DatasetBuilder
from tagfill.formats.json_stream import JsonFile, short_json
from tagfill.progress import SILENT, Progress

TITLE = "COCO panoptic 2017"

__getattr__ = read_only("coco-panoptic")


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
        images: `annotated`, or `all` to include images without any segment.
        progress: told about the bytes read.

    Raises:
        DatasetError: a file is missing, damaged, or contradicts itself.
    """
    one_of("locations", locations, ("box", "none"))
    one_of("images", images, coco_json.IMAGES)
    folder = Path(source)
    paths = {split: folder / "annotations" / f"panoptic_{split}2017.json" for split in ("train", "val")}
    files = {split: JsonFile.open(path) for split, path in paths.items() if path.is_file()}
    if not files:
        raise DatasetError(f"{folder} has no annotations/panoptic_train2017.json and no panoptic_val2017.json.")
    categories = coco_json.read_shared_categories(list(files.values()))
    edges = _edges(categories) if supercategories else ()
    parents = dict.fromkeys(parent for _, parent in edges if parent not in categories.names)
    classes = (*categories.names, *parents)
    ancestors = {
        label: [classes[code] for code in codes]
        for label, codes in zip(classes, Hierarchy(classes, edges).ancestors, strict=True)
    }
    builder = DatasetBuilder("coco-panoptic", folder, classes, source="coco-panoptic")
    for split, file in files.items():
        path_of = coco_json.path_in_folder(f"{split}2017")
        reader = CocoFileReader(file, builder, categories, path_of, locations=locations, progress=progress)
        _add_segments(file, reader, progress)
        found = reader.images
        for position, labels in reader.present_labels():
            if labels or images == "all":
                name = found.names[position]
                builder.add_image(name, split, found.widths[position], found.heights[position])
                builder.mark_rest_absent(name, {*labels, *(upper for label in labels for upper in ancestors[label])})
    return builder.build(hierarchy=edges)


def _edges(categories: Categories) -> tuple[tuple[str, str], ...]:
    """Return (class, supercategory) pairs; a class that is its own supercategory (person) has no parent."""
    return tuple(
        (name, parent)
        for name, parent in zip(categories.names, categories.parents, strict=True)
        if parent is not None and parent != name
    )


def _add_segments(file: JsonFile, reader: CocoFileReader, progress: Progress) -> None:
    """Add the segments of each image as annotations."""
    for item in file.items("annotations", f"Segments of {file.path.name}", progress):
        segments = item.get("segments_info")
        if not isinstance(segments, list) or not all(isinstance(segment, dict) for segment in segments):
            image = short_json(item.get("image_id"))
            raise DatasetError(f"{file.path}: the annotation of image {image} has no segments_info.")
        for segment in segments:
            reader.add_annotation({**segment, "image_id": item.get("image_id")})
    reader.add_present_labels()
