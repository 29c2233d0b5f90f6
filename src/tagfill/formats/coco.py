"""COCO instances, of 2014, of 2017, and of anybody who writes such files.

    annotations/instances_train2014.json, annotations/instances_val2014.json
    train2014/COCO_train2014_000000000009.jpg, …

Labels are exhaustive: a class without an annotation is absent. An annotation of a crowd counts as presence and carries
the flag `crowd`. Polygons become run lengths. Images are in the order of their ids as strings, as in the published
single-positive splits, which also leave out images without any annotation.

Lin et al., Microsoft COCO: Common Objects in Context, ECCV 2014.


The lists of a COCO-style JSON file, made from a dataset.
"""

from __future__ import annotations

import os
import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path, PurePosixPath
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tagfill.dataset import Dataset
from tagfill.dataset.dataset import image_root
from tagfill.errors import DatasetError, one_of
from tagfill.formats import coco_json, export, json_stream, reader
from tagfill.formats.export import Location
from tagfill.formats.json_stream import JsonFile
from tagfill.formats.rasterize import RunLengths
from tagfill.formats.reader import Collector
from tagfill.labels import LabelMatrix
from tagfill.progress import SILENT, Bar, Progress

TITLE = "COCO instances (2014, 2017, and files of the same form)"
_OFFICIAL = re.compile(r"(train|val|test)(20\d\d)")
_SPLIT = re.compile(r"train|val|test")


@dataclass(frozen=True)
class _Part:
    """One file: its split, and the folder that its images are in, below the root."""

    path: Path
    split: str
    folder: str


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
        images: `annotated`, or `all` for those without any annotation too.
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
    base, parts = _find(Path(source), year, split, None if root is None else image_root(root))
    files = [JsonFile.open(part.path) for part in parts]
    categories = coco_json.agreed_categories(files)
    collector = Collector(_name(parts), base, categories.names, source="coco")
    for part, file in zip(parts, files, strict=True):
        pictures = coco_json.read_pictures(file, coco_json.in_folder(part.folder), progress)
        shown = coco_json.collect(file, collector, pictures, categories, locations=locations, progress=progress)
        coco_json.add_images(collector, pictures, shown, part.split, images=images, exhaustive=exhaustive)
    return collector.dataset()


def write(
    dataset: Dataset,
    target: str | os.PathLike[str],
    *,
    year: int | None = None,
    unknown: str = "refuse",
    progress: Progress = SILENT,
) -> None:
    """Write `annotations/instances_<split>.json` for each split; images stay where they are.

    Sources, times and costs are not carried, and of the flags only `crowd`. Read with `images="all"`, the files give
    the same images and labels.

    Args:
        dataset: whose present labels all have a box or a mask.
        target: the folder to write into.
        year: to name files and image folders as in COCO of that year: images must be below `train2017/` and so on.
        unknown: `refuse`, or `absent` to write unknown labels as absent.
        progress: told about the splits.

    Raises:
        DatasetError: the format cannot say what the dataset says.
    """
    parts = [
        Instances(
            dataset,
            split,
            Path(target) / "annotations" / f"instances_{split}{year or ''}.json",
            pictures(dataset, split, "" if year is None else f"{split}{year}/"),
            kinds=("mask", "box"),
            flags=coco_json.CROWD,
            format_name="COCO",
        )
        for split in dataset.splits
    ]
    write_instances(parts, unknown, progress)


def _find(source: Path, year: int | None, split: str | None, root: Path | str | None) -> tuple[Path | str, list[_Part]]:
    """The image root, and the files to read."""
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


def _name(parts: list[_Part]) -> str:
    official = _OFFICIAL.fullmatch(parts[0].folder)
    return f"coco{official[2]}" if official else "coco"


_NUMBER = re.compile(r"\d+\Z")


def categories(classes: Sequence[str]) -> list[dict[str, Any]]:
    """The classes, numbered from 1."""
    return [{"id": number, "name": name} for number, name in enumerate(classes, start=1)]


def pictures(dataset: Dataset, split: str, folder: str = "", *, sizes: bool = True) -> list[dict[str, Any]]:
    """The images of a split, with ids whose order as strings is theirs.

    Args:
        dataset: to be written.
        split: of it.
        folder: that is left out of file names, such as `train2017/`; every image must be in it.
        sizes: whether each needs a width and a height.
    """
    table = dataset.images.take(dataset.split(split))
    names: list[str] = table["image"].to_pylist()
    if outside := next((name for name in names if not name.startswith(folder)), None):
        raise DatasetError(
            f"Image {outside} of split {split} is not in the folder {folder}, which its name stands for."
        )
    widths, heights = table["width"].to_pylist(), table["height"].to_pylist()
    if sizes and None in (*widths, *heights):
        bare = next(name for name, *size in zip(names, widths, heights, strict=True) if None in size)
        raise DatasetError(f"Image {bare} has no width and height in the table of images, but boxes are in pixels.")
    return [
        {"id": identity, "file_name": _file_name(name, folder), "width": width, "height": height}
        for identity, name, width, height in zip(_ids(names), names, widths, heights, strict=True)
    ]


def objects(
    places: Iterable[Location], images: Sequence[Mapping[str, Any]], flags: Mapping[str, str], bar: Bar
) -> Iterator[dict[str, Any]]:
    """An annotation for each location; `flags` names the flag that a key stands for."""
    for number, place in enumerate(places, start=1):
        image, row = images[place.image], place.row
        width, height = image["width"], image["height"]
        across, down = row["w"] * width, row["h"] * height
        mask = None
        if row["kind"] == "mask":
            mask = RunLengths(row["rle"], row["rle_height"], row["rle_width"])
        yield {
            "id": number,
            "image_id": image["id"],
            "category_id": place.label + 1,
            "bbox": [row["x"] * width - across / 2, row["y"] * height - down / 2, across, down],
            "area": across * down if mask is None else mask.area(),
            "segmentation": [] if mask is None else {"size": [mask.height, mask.width], "counts": mask.counts.decode()},
            **{key: int(flag in (row["flags"] or ())) for key, flag in flags.items()},
        }
        bar.advance()


def located(
    dataset: Dataset, split: str, labels: LabelMatrix, kinds: Collection[str], format_name: str
) -> NDArray[np.int64]:
    """Pairs with a location, as image × L + class, one entry for each; refuses what the format cannot carry."""
    places = export.locations(dataset, split, labels, kinds, format_name)
    return np.fromiter((place.image * labels.width + place.label for place in places), dtype=np.int64)


@dataclass(frozen=True)
class Instances:
    """A split to be written as a file in which a class without an annotation is absent.

    Attributes:
        dataset: to be written.
        split: of it.
        path: of the file.
        images: its list of images.
        kinds: of locations that the format carries.
        flags: the flag that each key of an annotation stands for.
        format_name: for messages.
    """

    dataset: Dataset
    split: str
    path: Path
    images: Sequence[Mapping[str, Any]]
    kinds: Collection[str]
    flags: Mapping[str, str]
    format_name: str

    def check(self, unknown: str) -> int:
        """Refuse what the format cannot say, else count the annotations; `unknown` is `refuse` or `absent`."""
        labels = self.dataset.labels(self.split)
        reader.complete(labels, unknown, self.format_name, self.split)
        found = located(self.dataset, self.split, labels, self.kinds, self.format_name)
        export.require_located(self.dataset, self.split, labels, found, self.format_name)
        return len(found)

    def write(self, count: int, progress: Progress) -> None:
        """Write the file with so many annotations."""
        labels = self.dataset.labels(self.split)
        places = export.locations(self.dataset, self.split, labels, self.kinds, self.format_name)
        with progress.bar(f"Writing {self.path.name}", count, "annotations") as bar:
            write_file(self.path, self.dataset, self.images, objects(places, self.images, self.flags, bar))


def write_instances(parts: Sequence[Instances], unknown: str, progress: Progress) -> None:
    """Write some splits; all of them are checked before the first file is touched."""
    counts = [part.check(unknown) for part in parts]
    for part, count in zip(parts, counts, strict=True):
        part.write(count, progress)


def write_file(
    path: Path, dataset: Dataset, images: Sequence[Mapping[str, Any]], annotations: Iterable[Mapping[str, Any]]
) -> None:
    """Write the sections of a file."""
    json_stream.write(
        path,
        {
            "info": {"description": dataset.name},
            "images": images,
            "annotations": annotations,
            "categories": categories(dataset.classes),
        },
    )


def _file_name(name: str, folder: str) -> str:
    """A name without its folder, unless it lies deeper: whoever reads a path looks for it below the root."""
    inside = name.removeprefix(folder)
    return name if "/" in inside else inside


def _ids(names: Sequence[str]) -> list[int]:
    """Numbers at the end of the file names, if they are distinct and keep the order; else consecutive ones."""
    found = [_NUMBER.search(PurePosixPath(name).stem) for name in names]
    ids = [int(number[0]) for number in found if number]
    texts = [str(identity) for identity in ids]
    if len(ids) == len(names) and all(first < second for first, second in pairwise(texts)):
        return ids
    first = 10 ** len(str(len(names)))  # so many digits for all of them
    return list(range(first, first + len(names)))
