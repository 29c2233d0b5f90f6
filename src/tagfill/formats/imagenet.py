"""ImageNet: a folder of training images for each class, validation images, and the ReaL labels of the latter.

    train/n01440764/n01440764_10026.JPEG
    val/n01440764/ILSVRC2012_val_00000293.JPEG      or      val/ILSVRC2012_val_00000293.JPEG
    real.json                                       a list of class numbers for each validation image

Classes are numbered in the order of their sorted identifiers. A folder gives an image one present label, and
`absent_means` tells what the others are, since most images show more than one thing. ReaL (Beyer et al., 2020)
labelled each validation image anew: its lists, in the order of file names, are complete, and replace the label of the
folder. An empty list means that people did not agree on anything, so all labels of that image stay unknown, as do those
of images without a folder or a list.


Writing the layout of ImageNet with ReaL labels.
"""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from pathlib import Path, PurePosixPath

from tagfill.dataset import Dataset
from tagfill.errors import DatasetError, one_of
from tagfill.formats import image_files, reader, text_files
from tagfill.formats.export import ImageRows, by_image
from tagfill.formats.image_files import Carry
from tagfill.formats.json_stream import shown
from tagfill.formats.reader import Collector
from tagfill.io import write_json
from tagfill.progress import SILENT, Progress

TITLE = "ImageNet: class folders, and ReaL labels"

__all__ = ["TITLE", "read", "write"]


def read(
    source: str | os.PathLike[str],
    *,
    real: str | os.PathLike[str] | None = None,
    classes: Sequence[str] | None = None,
    absent_means: str | None = None,
    progress: Progress = SILENT,
) -> Dataset:
    """Read ImageNet.

    Args:
        source: the folder of `train` and `val`, or of one of them.
        real: the ReaL labels; `real.json` in the folder, if it is there, unless given.
        classes: their identifiers in the order of their numbers; the sorted class folders unless given.
        absent_means: what the other labels are of images that have theirs from a folder, `unknown` or `absent`; has to
            be said if there are such images.
        progress: told about each image.
    """
    root = Path(source)
    images = {part: list(image_files.below(root / part)) for part in ("train", "val")}
    if not any(images.values()):
        raise DatasetError(f"{root} has no images in train/ or val/; name the folder of both.")
    folders = sorted({name for part in images for name in image_files.folders_in(root / part)})
    names = tuple(folders if classes is None else classes)
    if not names:
        raise DatasetError(f"{root} has no folder for a class; name the classes in order with classes=.")
    for image in (f"{part}/{file}" for part, files in images.items() for file in files):
        folder = _folder(image)
        if folder is not None and folder not in names:
            raise DatasetError(f"{root / image} lies in '{folder}', which is not among the classes given.")
    path = Path(real) if real is not None else root / REAL
    lists = _real(path, images["val"], len(names)) if real is not None or path.is_file() else {}
    from_folder = sum(_folder(f"{part}/{file}") is not None for part in images for file in images[part])
    from_folder -= sum(_folder(f"val/{file}") is not None for file in lists)
    if from_folder or absent_means is not None:
        absent_means = reader.reading(absent_means, root, images=from_folder, classes=len(names), present=from_folder)
    collector = Collector("imagenet", root, names, source="imagenet")
    for part, files in images.items():
        with progress.bar(f"Listing {part}", len(files), "images") as bar:
            for file in files:
                image = f"{part}/{file}"
                collector.add_image(image, part)
                if part == "val" and file in lists:
                    _add(collector, image, [names[number] for number in lists[file]], exhaustive=bool(lists[file]))
                elif (folder := _folder(image)) is not None:
                    _add(collector, image, [folder], exhaustive=absent_means == "absent")
                bar.advance()
    return collector.dataset()


def _add(collector: Collector, image: str, shown: list[str], *, exhaustive: bool) -> None:
    for label in shown:
        collector.add(image, label, True)
    if exhaustive:
        collector.add_absent(image, shown)


def _folder(image: str) -> str | None:
    """The class folder of an image such as `train/n01440764/1.JPEG`."""
    parts = PurePosixPath(image).parts
    return parts[1] if len(parts) > 2 else None


def _real(path: Path, images: list[str], classes: int) -> dict[str, list[int]]:
    """The class numbers of each validation image."""
    try:
        lists = json.loads(text_files.needed(path, "the ReaL labels").read_text(encoding="utf-8-sig"))
    except (ValueError, RecursionError) as error:
        raise DatasetError(f"{path} is not valid JSON: {error}.") from None
    if not isinstance(lists, list) or len(lists) != len(images):
        found = f"a list of {len(lists):,}" if isinstance(lists, list) else type(lists).__name__
        raise DatasetError(
            f"{path} holds {found}, but there are {len(images):,} images in val/; both must be complete."
        )
    for number, entry in enumerate(lists):
        numbers = entry if isinstance(entry, list) else [None]
        if not all(type(code) is int and 0 <= code < classes for code in numbers) or len(set(numbers)) < len(numbers):
            raise DatasetError(
                f"{path}, entry {number}: found {shown(entry)}; distinct numbers of the {classes} classes are expected."
            )
    order = sorted(images, key=lambda file: PurePosixPath(file).name)
    return dict(zip(order, lists, strict=True))


REAL = "real.json"


def write(
    dataset: Dataset,
    target: str | os.PathLike[str],
    *,
    images: Carry = "copy",
    absent_means: str | None = None,
    unknown: str = "refuse",
    progress: Progress = SILENT,
) -> None:
    """Write training images into class folders, the others into `val/`, and the labels of these into `real.json`.

    Args:
        dataset: what to write, with a train split and one other; a training image shows one class.
        target: the folder.
        images: `copy` them, or `link` to them.
        absent_means: how training images will be read, if they have both absent and unknown labels.
        unknown: validation images with some unknown labels are refused, or these written as `absent`.
        progress: told about each image.
    """
    folder = Path(target)
    carrier = image_files.Carrier(dataset.root, images)
    one_of("unknown", unknown, ["refuse", "absent"])
    held_out = [part for part in dataset.splits if part != "train"]
    if len(held_out) > 1:
        raise DatasetError(
            f"ImageNet has train and val, but this dataset has train, {', '.join(held_out)}; merge some."
        )
    if "train" in dataset.splits:
        reader.writing(dataset.labels("train"), absent_means, "ImageNet's train folder")
    codes = {label: code for code, label in enumerate(sorted(dataset.classes))}
    lists: dict[str, list[int]] = {}
    places: dict[str, str] = {}
    for entry in by_image(dataset, with_rows=False):
        place = _train_place(entry) if entry.split == "train" else f"val/{PurePosixPath(entry.image).name}"
        if place in places:
            raise DatasetError(f"Images {places[place]} and {entry.image} would both become {place}; rename one.")
        places[place] = entry.image
        if entry.split != "train":
            lists[place] = [codes[label] for label in _complete(entry, len(codes), unknown)]
    for label in dataset.classes:
        (folder / "train" / label).mkdir(parents=True, exist_ok=True)
    with progress.bar(f"Writing {folder.name}", len(places), "images") as bar:
        for place, image in places.items():
            carrier.put(image, folder / place)
            bar.advance()
    if lists:
        write_json(folder / REAL, [sorted(numbers) for _, numbers in sorted(lists.items())])


def _train_place(entry: ImageRows) -> str:
    if len(entry.present) != 1:
        raise DatasetError(
            f"A training image of ImageNet lies in one class folder, but {entry.image} shows "
            f"{', '.join(entry.present) or 'no class'}; leave it out."
        )
    return f"train/{entry.present[0]}/{PurePosixPath(entry.image).name}"


def _complete(entry: ImageRows, classes: int, unknown: str) -> list[str]:
    """The labels of a validation image, or none if nothing is known about it."""
    known = sum(state is not None for state in entry.states.values())
    if 0 < known < classes and unknown == "refuse":
        raise DatasetError(
            f"ReaL cannot say unknown, but {classes - known} of {classes} labels of {entry.image} are; "
            "unknown='absent' writes them as absent."
        )
    if known and not entry.present:
        raise DatasetError(
            f"ReaL cannot say that an image shows no class, as {entry.image} does: its empty list means unknown."
        )
    return entry.present
