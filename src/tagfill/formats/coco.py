"""COCO instances, of 2014, of 2017, and of anybody who writes such files.

    annotations/instances_train2014.json, annotations/instances_val2014.json
    train2014/COCO_train2014_000000000009.jpg, …

Labels are exhaustive: a class without an annotation is absent. An annotation of a crowd counts as presence and carries
the flag `crowd`. Polygons become run lengths. Images are in the order of their ids as strings, as in the published
single-positive splits, which also leave out images without any annotation.

Lin et al., Microsoft COCO: Common Objects in Context, ECCV 2014.
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from pathlib import Path

from tagfill.annotations import Dataset
from tagfill.annotations.image_root import image_root
from tagfill.errors import DatasetError, one_of
from tagfill.formats import coco_instances, coco_tables, coco_writing
from tagfill.formats.collecting import Collector
from tagfill.formats.json_sections import JsonFile
from tagfill.progress import SILENT, Progress

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
    one_of("images", images, coco_instances.IMAGES)
    one_of("locations", locations, coco_instances.LOCATIONS)
    base, parts = _find(Path(source), year, split, None if root is None else image_root(root))
    files = [JsonFile.open(part.path) for part in parts]
    categories = coco_tables.agreed_categories(files)
    collector = Collector(_name(parts), base, categories.names, source="coco")
    for part, file in zip(parts, files, strict=True):
        pictures = coco_tables.read_pictures(file, coco_tables.in_folder(part.folder), progress)
        shown = coco_instances.collect(file, collector, pictures, categories, locations=locations, progress=progress)
        coco_instances.add_images(collector, pictures, shown, part.split, images=images, exhaustive=exhaustive)
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
        coco_writing.Instances(
            dataset,
            split,
            Path(target) / "annotations" / f"instances_{split}{year or ''}.json",
            coco_writing.pictures(dataset, split, "" if year is None else f"{split}{year}/"),
            kinds=("mask", "box"),
            flags=coco_instances.CROWD,
            format_name="COCO",
        )
        for split in dataset.splits
    ]
    coco_writing.write_instances(parts, unknown, progress)


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
