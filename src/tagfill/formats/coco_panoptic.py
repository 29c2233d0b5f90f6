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
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tagfill.dataset import Dataset, Hierarchy
from tagfill.errors import DatasetError, one_of
from tagfill.formats import coco, coco_json, export, json_stream, reader
from tagfill.formats.coco_json import Categories, Pictures, Shown
from tagfill.formats.json_stream import JsonFile
from tagfill.formats.reader import Collector
from tagfill.labels import POSITIVE, LabelMatrix
from tagfill.progress import SILENT, Progress

TITLE = "COCO panoptic 2017"
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


def write(
    dataset: Dataset,
    target: str | os.PathLike[str],
    *,
    unknown: str = "refuse",
    masks: str = "refuse",
    progress: Progress = SILENT,
) -> None:
    """Write `annotations/panoptic_<split>2017.json` for each split: labels and boxes, without segment pixels.

    A class that is a parent becomes the supercategory of its children. Images must be below `train2017/` and
    `val2017/`. Sources, times and costs are not carried, and of the flags only `crowd`.

    Args:
        dataset: whose present labels all have a box; splits are train and val.
        target: the folder to write into.
        unknown: `refuse`, or `absent` to write unknown labels as absent.
        masks: `refuse`, or `box` to write masks as their boxes.
        progress: told about the splits.

    Raises:
        DatasetError: the format cannot say what the dataset says.
    """
    parents, kinds = _parents(dataset), export.box_kinds(masks)
    codes = {name: code for code, name in enumerate(dataset.classes)}
    leaves = [name for name in dataset.classes if name not in parents.values()]
    export.require_splits(dataset, _SPLITS, "COCO panoptic")
    prepared = {}
    for split in dataset.splits:
        labels = dataset.labels(split)
        reader.complete(labels, unknown, "COCO panoptic", split)
        found = coco.located(dataset, split, labels, kinds, "COCO panoptic")
        export.require_located(dataset, split, labels, found, "COCO panoptic", [codes[name] for name in leaves])
        _require_children(dataset, split, labels, found, parents)
        prepared[split] = len(found), coco.pictures(dataset, split, f"{split}2017/")
    for split, (count, pictures) in prepared.items():
        path = Path(target) / "annotations" / f"panoptic_{split}2017.json"
        with progress.bar(f"Writing {path.name}", count, "segments") as bar:
            places = export.locations(dataset, split, dataset.labels(split), kinds, "COCO panoptic")
            segments = coco.objects(places, pictures, coco_json.CROWD, bar)
            json_stream.write(
                path,
                {
                    "info": {"description": dataset.name},
                    "images": pictures,
                    "annotations": _by_image(segments, pictures),
                    "categories": [
                        {"id": codes[name] + 1, "name": name, "supercategory": parents.get(name, name)}
                        for name in leaves
                    ],
                },
            )


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


def _parents(dataset: Dataset) -> dict[str, str]:
    """The parent of each class, for a hierarchy of two levels."""
    parents = dict(dataset.hierarchy)
    if len(parents) < len(dataset.hierarchy) or set(parents) & set(parents.values()):
        raise DatasetError(
            f"COCO panoptic has one supercategory for each class, but the hierarchy of {dataset.name} has classes with "
            "several parents, or more than two levels."
        )
    return parents


def _require_children(
    dataset: Dataset, split: str, labels: LabelMatrix, located: NDArray[np.int64], parents: dict[str, str]
) -> None:
    """Refuse a supercategory that is present, or has a box, without one of its classes."""
    codes = {name: code for code, name in enumerate(dataset.classes)}
    above = np.full(labels.width, -1)
    for child, parent in parents.items():
        above[codes[child]] = codes[parent]
    inner = [codes[parent] for parent in set(parents.values())]
    present = export.pairs(labels, POSITIVE)
    children = present[above[present % labels.width] >= 0]
    implied = children - children % labels.width + above[children % labels.width]
    stated = present[np.isin(present % labels.width, inner)]
    wrong = np.concatenate([np.setdiff1d(stated, implied), located[np.isin(located % labels.width, inner)]])
    if len(wrong):
        image, label = divmod(int(wrong[0]), labels.width)
        raise DatasetError(
            f"COCO panoptic knows supercategories by their classes only, but '{dataset.classes[label]}' of "
            f"{dataset.names(dataset.split(split))[image]} is present on its own."
        )


def _by_image(segments: Iterator[dict[str, Any]], pictures: list[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """Segments gathered in one annotation for each image."""
    gathered: dict[int, list[dict[str, Any]]] = {picture["id"]: [] for picture in pictures}
    for segment in segments:
        segment.pop("segmentation")
        gathered[segment.pop("image_id")].append(segment)
    for image, infos in gathered.items():
        yield {"image_id": image, "segments_info": infos}
