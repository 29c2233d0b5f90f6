"""Writing the layout of ImageNet with ReaL labels."""

from __future__ import annotations

import os
from pathlib import Path, PurePosixPath

from tagfill.annotations import Dataset
from tagfill.errors import DatasetError, one_of
from tagfill.files import write_json
from tagfill.formats import image_files, unsaid
from tagfill.formats.grouping import ImageRows, by_image
from tagfill.formats.image_files import Carry
from tagfill.progress import SILENT, Progress

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
        unsaid.writing(dataset.labels("train"), absent_means, "ImageNet's train folder")
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
