"""A folder of images for each class, with folders for splits above them or not.

    photos/cat/1.jpg                 photos/train/cat/1.jpg
    photos/dog/old/1.jpg             photos/val/dog/1.jpg

A file lies in one folder, so an image has one present label, and `absent_means` tells what the others are. Files of the
same name in two class folders are two images, because their paths differ and mostly their pixels too; with
`same_name="same"` they are one image with two labels, known under the path that comes first. Folders within a class's
folder belong to it, an empty folder is a class too, and hidden files are left out.
"""

from __future__ import annotations

import os
from pathlib import Path, PurePosixPath

from tagfill.dataset import Dataset
from tagfill.errors import DatasetError, one_of
from tagfill.formats import image_files, reader
from tagfill.formats.export import ImageRows, by_image
from tagfill.formats.image_files import Carry
from tagfill.formats.reader import Collector
from tagfill.progress import SILENT, Progress

TITLE = "Image folders: one folder a class, with splits above or not"


def read(
    source: str | os.PathLike[str],
    *,
    absent_means: str | None = None,
    same_name: str = "different",
    split: str = "train",
    progress: Progress = SILENT,
) -> Dataset:
    """Read a folder of class folders.

    Args:
        source: the folder; if everything in it is called like a split (train, val, valid, validation, test), the class
            folders lie below these.
        absent_means: what the other labels of an image are, `unknown` or `absent`; has to be said.
        same_name: files of the same name in several class folders are `different` images or the `same` one.
        split: of all images if there are no folders for splits.
        progress: told about each image.
    """
    root = Path(source)
    one_of("same_name", same_name, ["different", "same"])
    parts = _parts(root, split)
    classes = sorted({name for _, folder in parts for name in image_files.folders_in(folder)})
    if not classes:
        raise DatasetError(f"{root} has no folder with a class's images; it should hold one folder for each class.")
    labels: dict[str, list[str]] = {}
    splits: dict[str, str] = {}
    with progress.bar(f"Listing {root.name}", None, "images") as bar:
        for part, folder in parts:
            first: dict[str, str] = {}
            for name in image_files.folders_in(folder):
                for file in image_files.below(folder / name):
                    image = (folder / name / file).relative_to(root).as_posix()
                    image = first.setdefault(file, image) if same_name == "same" else image
                    labels.setdefault(image, []).append(name)
                    splits[image] = part
                    bar.advance()
    present = sum(map(len, labels.values()))
    meaning = reader.reading(absent_means, root, images=len(labels), classes=len(classes), present=present)
    collector = Collector(root.resolve().name, root, classes, source="folder")
    for image, shown in labels.items():
        collector.add_image(image, splits[image])
        for label in shown:
            collector.add(image, label, True)
        if meaning == "absent":
            collector.add_absent(image, shown)
    return collector.dataset()


def write(
    dataset: Dataset,
    target: str | os.PathLike[str],
    *,
    images: Carry = "copy",
    absent_means: str | None = None,
    several: str = "refuse",
    none: str = "refuse",
    progress: Progress = SILENT,
) -> None:
    """Write image files into a folder for each split and class.

    An image whose path already ends a folder of its split and class keeps it; others are put below that folder.

    Args:
        dataset: what to write.
        target: the folder.
        images: `copy` them, or `link` to them.
        absent_means: how the folder will be read, if the dataset has both absent and unknown labels.
        several: images with several present labels are refused, or put into each folder with `repeat`.
        none: images without a present label are refused, or left out with `skip`.
        progress: told about each image.
    """
    folder = Path(target)
    carrier = image_files.Carrier(dataset.root, images)
    reader.writing(dataset.labels(), absent_means, "A folder for each class")
    one_of("several", several, ["refuse", "repeat"])
    one_of("none", none, ["refuse", "skip"])
    for label in dataset.classes:
        if "/" in label or label.startswith("."):
            raise DatasetError(f"Class '{label}' cannot be the name of a folder; rename it.")
    taken: dict[str, str] = {}
    for entry in by_image(dataset, with_rows=False):
        _check_count(entry, several, none)
        for place in (_place(entry, label) for label in entry.present):
            if taken.setdefault(place, entry.image) != entry.image:
                raise DatasetError(f"Images {taken[place]} and {entry.image} would both become {place}; rename one.")
    with progress.bar(f"Writing {folder.name}", len(dataset), "images") as bar:
        for part, label in ((part, label) for part in dataset.splits for label in dataset.classes):
            (folder / part / label).mkdir(parents=True, exist_ok=True)
        for entry in by_image(dataset, with_rows=False):
            for label in entry.present:
                carrier.put(entry.image, folder / _place(entry, label))
            bar.advance()


def _place(entry: ImageRows, label: str) -> str:
    parts = PurePosixPath(entry.image).parts
    if parts[:2] == (entry.split, label) and len(parts) > 2:
        return entry.image
    rest = parts[1:] if parts[0] == label and len(parts) > 1 else parts
    return PurePosixPath(entry.split, label, *rest).as_posix()


def _check_count(entry: ImageRows, several: str, none: str) -> None:
    if len(entry.present) > 1 and several == "refuse":
        raise DatasetError(
            f"An image lies in one class folder, but {entry.image} shows {', '.join(entry.present)}; several='repeat' "
            "puts it into each."
        )
    if not entry.present and none == "refuse":
        raise DatasetError(
            f"An image lies in a class folder, but {entry.image} is not known to show a class; none='skip' leaves such "
            "images out."
        )


def _parts(root: Path, split: str) -> list[tuple[str, Path]]:
    """Splits and the folder of class folders of each."""
    if not root.is_dir():
        raise DatasetError(f"{root} is not a folder; it should hold one folder for each class.")
    names = image_files.folders_in(root)
    if names and all(name.lower() in image_files.SPLIT_NAMES for name in names):
        order = sorted(names, key=lambda name: (["train", "val", "test"].index(image_files.split_of(name)), name))
        return [(image_files.split_of(name), root / name) for name in order]
    return [(split, root)]
