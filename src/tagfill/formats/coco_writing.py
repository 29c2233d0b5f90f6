"""The lists of a COCO-style JSON file, made from a dataset."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path, PurePosixPath
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tagfill.annotations import Dataset, LabelMatrix
from tagfill.errors import DatasetError
from tagfill.formats import json_sections, unsaid, writable
from tagfill.formats.masks import RunLengths
from tagfill.formats.writable import Location
from tagfill.progress import Bar, Progress

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
    places = writable.locations(dataset, split, labels, kinds, format_name)
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
        unsaid.complete(labels, unknown, self.format_name, self.split)
        found = located(self.dataset, self.split, labels, self.kinds, self.format_name)
        writable.require_located(self.dataset, self.split, labels, found, self.format_name)
        return len(found)

    def write(self, count: int, progress: Progress) -> None:
        """Write the file with so many annotations."""
        labels = self.dataset.labels(self.split)
        places = writable.locations(self.dataset, self.split, labels, self.kinds, self.format_name)
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
    json_sections.write(
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
