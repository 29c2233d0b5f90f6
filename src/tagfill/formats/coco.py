"""COCO instances of 2014 and 2017, and other files of the same form.

    annotations/instances_train2014.json, annotations/instances_val2014.json
    train2014/COCO_train2014_000000000009.jpg, …

Labels are exhaustive: a class without an annotation is absent. An annotation of a crowd counts as present and carries
the flag `crowd`. Polygons become run lengths. Images are in the order of their ids as strings, as in the published
single-positive splits, which also leave out images without any annotation.

Lin et al., Microsoft COCO: Common Objects in Context, ECCV 2014.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path, PurePosixPath
from typing import Any

import numpy as np

from tagfill.dataset import Dataset
from tagfill.dataset.dataset import image_root
from tagfill.errors import DatasetError, one_of
from tagfill.formats import coco_json, writer
from tagfill.formats.coco_json import CocoFileReader
from tagfill.formats.dataset_builder import DatasetBuilder
from tagfill.formats.json_stream import JsonFile
from tagfill.formats.rasterize import RunLengths
from tagfill.formats.writer import Location
from tagfill.io import atomic_write
from tagfill.progress import SILENT, Bar, Progress

TITLE = "COCO instances (2014, 2017, and files of the same form)"

_OFFICIAL = re.compile(r"(train|val|test)(20\d\d)")
_SPLIT = re.compile(r"train|val|test")
_KINDS = ("mask", "box")
_LAST_NUMBER = re.compile(r"\d+\Z")


def read(
    source: str | os.PathLike[str],
    *,
    year: int | None = None,
    split: str | None = None,
    root: str | os.PathLike[str] | None = None,
    images: str = "annotated",
    locations: str = "mask",
    exhaustive: bool = True,
    progress: Progress = SILENT,
) -> Dataset:
    """Read COCO instances.

    Args:
        source: the folder that holds `annotations/`, or one JSON file.
        year: 2014 or 2017, if the folder has both.
        split: of a single JSON file; by default what its name says, else train.
        root: where the images are, a folder or a URL; by default the folder.
        images: `annotated`, or `all` to include images without any annotation.
        locations: `mask`, `box`, or `none` for labels of whole images.
        exhaustive: whether a class without an annotation is absent; otherwise it is unknown.
        progress: told about the bytes read.

    Raises:
        DatasetError: a file is missing, damaged, or contradicts itself.

    Example:
        >>> import tagfill
        >>> tagfill.formats.coco.read("coco", year=2014)  # doctest: +SKIP
    """
    one_of("images", images, coco_json.IMAGES)
    one_of("locations", locations, coco_json.LOCATIONS)
    base, parts = _find_files(Path(source), year, split, None if root is None else image_root(root))
    files = [JsonFile.open(part.path) for part in parts]
    categories = coco_json.read_shared_categories(files)
    builder = DatasetBuilder(_dataset_name(parts), base, categories.names, source="coco")
    for part, file in zip(parts, files, strict=True):
        path_of = coco_json.path_in_folder(part.folder)
        reader = CocoFileReader(file, builder, categories, path_of, locations=locations, progress=progress)
        reader.add_annotations()
        reader.add_images(part.split, images=images, exhaustive=exhaustive)
    return builder.build()


@dataclass(frozen=True)
class _Part:
    """One file: its split, and the folder of its images below the root."""

    path: Path
    split: str
    folder: str


def _find_files(
    source: Path, year: int | None, split: str | None, root: Path | str | None
) -> tuple[Path | str, list[_Part]]:
    """Return the image root and the files to read."""
    if source.is_file():
        base = root or (source.parent.parent if source.parent.name == "annotations" else source.parent)
        return base, [_part(source, base, split)]
    base = root or source
    paths = sorted((source / "annotations").glob("instances_*.json"))
    if year is not None:
        paths = [path for path in paths if path.stem.endswith(str(year))]
    parts = sorted((_part(path, base, split) for path in paths), key=lambda part: _rank(part.split))
    if not parts:
        edition = f"*{year}" if year is not None else "*"
        raise DatasetError(
            f"{source} has no annotations/instances_{edition}.json; give the folder that holds annotations, or a file."
        )
    splits = [part.split for part in parts]
    if len(set(splits)) < len(splits):
        names = ", ".join(part.path.name for part in parts)
        raise DatasetError(f"{source} has several files of one split ({names}); choose a year, or give one file.")
    return base, parts


def _part(path: Path, base: Path | str, split: str | None) -> _Part:
    subset = path.stem.removeprefix("instances_")
    official = _OFFICIAL.fullmatch(subset) is not None and path.parent.name == "annotations"
    folder = subset if official or (isinstance(base, Path) and (base / subset).is_dir()) else ""
    named = _SPLIT.search(subset)
    return _Part(path, split or (named[0] if named else "train"), folder)


def _rank(split: str) -> int:
    return ("train", "val", "test").index(split) if split in ("train", "val", "test") else 3


def _dataset_name(parts: list[_Part]) -> str:
    official = _OFFICIAL.fullmatch(parts[0].folder)
    return f"coco{official[2]}" if official else "coco"


def write(
    dataset: Dataset,
    target: str | os.PathLike[str],
    *,
    year: int | None = None,
    unknown: str = "refuse",
    progress: Progress = SILENT,
) -> None:
    """Write `annotations/instances_<split>.json` for each split; images stay where they are.

    Sources, times and costs are not written, and of the flags only `crowd`. Reading the files with `images="all"`
    returns the same images and labels.

    Args:
        dataset: whose present labels all have a box or a mask.
        target: the folder to write into.
        year: to name files and image folders as in COCO of that year: images must be below `train2017/` and so on.
        unknown: `refuse`, or `absent` to write unknown labels as absent.
        progress: told about the annotations.

    Raises:
        DatasetError: the format cannot express what the dataset holds; nothing is written.
    """
    images = {split: _image_list(dataset, split, "" if year is None else f"{split}{year}/") for split in dataset.splits}
    counts = {split: _check_split(dataset, split, unknown) for split in dataset.splits}
    for split, count in counts.items():
        path = Path(target) / "annotations" / f"instances_{split}{year or ''}.json"
        locations = writer.iter_locations(dataset, split, dataset.labels(split), _KINDS, "COCO")
        with progress.bar(f"Writing {path.name}", count, "annotations") as bar:
            _write_json(
                path,
                {
                    "info": {"description": dataset.name},
                    "images": images[split],
                    "annotations": _annotations(locations, images[split], bar),
                    "categories": [
                        {"id": number, "name": name} for number, name in enumerate(dataset.classes, start=1)
                    ],
                },
            )


def _check_split(dataset: Dataset, split: str, unknown: str) -> int:
    """Raise if the format cannot express a split; otherwise return the number of its annotations."""
    labels = dataset.labels(split)
    writer.require_complete(labels, unknown, "COCO", split)
    locations = writer.iter_locations(dataset, split, labels, _KINDS, "COCO")
    located = np.fromiter((place.image * labels.width + place.label for place in locations), dtype=np.int64)
    writer.require_located(dataset, split, labels, located, "COCO")
    return len(located)


def _image_list(dataset: Dataset, split: str, folder: str) -> list[dict[str, Any]]:
    """Return the `images` of a split, with ids whose order as strings is that of the dataset.

    Args:
        dataset: to be written.
        split: of the dataset.
        folder: to leave out of file names, such as `train2017/`; every image must be in it.
    """
    table = dataset.images.take(dataset.split(split))
    names: list[str] = table["image"].to_pylist()
    if outside := next((name for name in names if not name.startswith(folder)), None):
        raise DatasetError(f"Image {outside} of split {split} is not in the folder {folder}; move it, or omit year.")
    widths, heights = table["width"].to_pylist(), table["height"].to_pylist()
    if None in (*widths, *heights):
        bare = next(name for name, *size in zip(names, widths, heights, strict=True) if None in size)
        raise DatasetError(f"Image {bare} has no width and height in the table of images, but boxes are in pixels.")
    return [
        {"id": identity, "file_name": _file_name(name, folder), "width": width, "height": height}
        for identity, name, width, height in zip(_image_ids(names), names, widths, heights, strict=True)
    ]


def _file_name(name: str, folder: str) -> str:
    """Return a name without its folder, unless it lies deeper: a reader looks for a path below the root."""
    inside = name.removeprefix(folder)
    return name if "/" in inside else inside


def _image_ids(names: Sequence[str]) -> list[int]:
    """Return the numbers at the end of the file names if they are distinct and in order; else consecutive ones."""
    found = [_LAST_NUMBER.search(PurePosixPath(name).stem) for name in names]
    ids = [int(number[0]) for number in found if number]
    texts = [str(identity) for identity in ids]
    if len(ids) == len(names) and all(first < second for first, second in pairwise(texts)):
        return ids
    first = 10 ** len(str(len(names)))  # all ids have the same number of digits
    return list(range(first, first + len(names)))


def _annotations(
    locations: Iterable[Location], images: Sequence[Mapping[str, Any]], bar: Bar
) -> Iterator[dict[str, Any]]:
    for number, location in enumerate(locations, start=1):
        image, row = images[location.image], location.row
        width, height = image["width"], image["height"]
        across, down = row["w"] * width, row["h"] * height
        mask = None
        if row["kind"] == "mask":
            mask = RunLengths(row["rle"], row["rle_height"], row["rle_width"])
        yield {
            "id": number,
            "image_id": image["id"],
            "category_id": location.label + 1,
            "bbox": [row["x"] * width - across / 2, row["y"] * height - down / 2, across, down],
            "area": across * down if mask is None else mask.area(),
            "segmentation": [] if mask is None else {"size": [mask.height, mask.width], "counts": mask.counts.decode()},
            **{key: int(flag in (row["flags"] or ())) for key, flag in coco_json.CROWD.items()},
        }
        bar.advance()


def _write_json(path: Path, sections: Mapping[str, Iterable[Any] | dict[str, Any]]) -> None:
    """Write a JSON object whose lists are streamed, one item per line."""
    with atomic_write(path) as file:
        file.write(b"{")
        for number, (key, content) in enumerate(sections.items()):
            file.write(b"," * (number > 0) + b"\n" + json.dumps(key).encode() + b": ")
            if isinstance(content, dict):
                file.write(json.dumps(content, ensure_ascii=False).encode())
                continue
            file.write(b"[")
            for position, item in enumerate(content):
                file.write(b"," * (position > 0) + b"\n" + json.dumps(item, ensure_ascii=False).encode())
            file.write(b"]")
        file.write(b"\n}\n")
