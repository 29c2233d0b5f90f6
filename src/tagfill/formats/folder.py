"""One folder of images per class, with or without folders for splits above them.

    photos/cat/1.jpg                 photos/train/cat/1.jpg
    photos/dog/old/1.jpg             photos/val/dog/1.jpg

A file lies in one folder, so an image has one present label, and `absent_means` says what the others are. Files of the
same name in two class folders are two images, because their paths differ and usually their pixels too; with
`same_name="same"` they are one image with two labels, under the path that comes first. Folders inside a class folder
belong to the class, an empty folder is a class too, and hidden files are skipped.
"""

from __future__ import annotations

import os
from pathlib import Path, PurePosixPath

from tagfill.dataset import Dataset
from tagfill.errors import DatasetError, one_of
from tagfill.formats import image_files, writer
from tagfill.formats.dataset_builder import DatasetBuilder, resolve_absent_means
from tagfill.formats.image_files import CopyMode
from tagfill.formats.writer import ImageRows, iter_images
from tagfill.progress import SILENT, Progress

TITLE = "Image folders: one folder per class, with or without splits above"


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
        source: the folder; if all folders in it have names of splits (train, val, valid, validation, test), the class
            folders lie below these.
        absent_means: what the other labels of an image are, `unknown` or `absent`; required.
        same_name: files of the same name in several class folders are `different` images or the `same` one.
        split: of all images if there are no folders for splits.
        progress: told about each image.

    Raises:
        DatasetError: `absent_means` is missing, or there is no class folder.
    """
    root = Path(source)
    one_of("same_name", same_name, ["different", "same"])
    parts = _split_folders(root, split)
    classes = sorted({name for _, folder in parts for name in image_files.list_folders(folder)})
    if not classes:
        raise DatasetError(f"{root} has no folder with images of a class; it should hold one folder per class.")
    labels: dict[str, list[str]] = {}
    splits: dict[str, str] = {}
    with progress.bar(f"Listing {root.name}", None, "images") as bar:
        for part, folder in parts:
            first: dict[str, str] = {}
            for name in image_files.list_folders(folder):
                for file in image_files.list_images(folder / name):
                    image = (folder / name / file).relative_to(root).as_posix()
                    image = first.setdefault(file, image) if same_name == "same" else image
                    labels.setdefault(image, []).append(name)
                    splits[image] = part
                    bar.advance()
    present = sum(map(len, labels.values()))
    absent_means = resolve_absent_means(absent_means, root, images=len(labels), classes=len(classes), present=present)
    builder = DatasetBuilder(root.resolve().name, root, classes, source="folder")
    for image, its_labels in labels.items():
        builder.add_image(image, splits[image])
        for label in its_labels:
            builder.add_row(image, label, True)
        if absent_means == "absent":
            builder.mark_rest_absent(image, its_labels)
    return builder.build()


def _split_folders(root: Path, split: str) -> list[tuple[str, Path]]:
    """Return the splits with the folder of class folders of each."""
    if not root.is_dir():
        raise DatasetError(f"{root} is not a folder; it should hold one folder per class.")
    names = image_files.list_folders(root)
    if names and all(name.lower() in image_files.SPLIT_NAMES for name in names):
        order = sorted(
            names, key=lambda name: (["train", "val", "test"].index(image_files.split_for_folder(name)), name)
        )
        return [(image_files.split_for_folder(name), root / name) for name in order]
    return [(split, root)]


def write(
    dataset: Dataset,
    target: str | os.PathLike[str],
    *,
    images: CopyMode = "copy",
    absent_means: str | None = None,
    several: str = "refuse",
    none: str = "refuse",
    progress: Progress = SILENT,
) -> None:
    """Write image files into one folder per split and class.

    An image whose path already begins with its split and class keeps it; others are put below that folder.

    Args:
        dataset: to be written.
        target: the folder.
        images: `copy` them, or `link` to them.
        absent_means: how the folder will be read, if the dataset has both absent and unknown labels.
        several: `refuse` images with several present labels, or `repeat` them in each folder.
        none: `refuse` images without a present label, or `skip` them.
        progress: told about each image.

    Raises:
        DatasetError: folders cannot express what the dataset holds; nothing is written.
    """
    folder = Path(target)
    copier = image_files.ImageCopier(dataset.root, images)
    writer.check_present_only(dataset.labels(), absent_means, "A folder for each class")
    one_of("several", several, ["refuse", "repeat"])
    one_of("none", none, ["refuse", "skip"])
    for label in dataset.classes:
        if "/" in label or label.startswith("."):
            raise DatasetError(f"Class '{label}' cannot be the name of a folder; rename it.")
    taken: dict[str, str] = {}
    for entry in iter_images(dataset, with_rows=False):
        _check_count(entry, several, none)
        for path in (_target_path(entry, label) for label in entry.present):
            if taken.setdefault(path, entry.image) != entry.image:
                raise DatasetError(f"Images {taken[path]} and {entry.image} would both become {path}; rename one.")
    with progress.bar(f"Writing {folder.name}", len(dataset), "images") as bar:
        for part, label in ((part, label) for part in dataset.splits for label in dataset.classes):
            (folder / part / label).mkdir(parents=True, exist_ok=True)
        for entry in iter_images(dataset, with_rows=False):
            for label in entry.present:
                copier.copy(entry.image, folder / _target_path(entry, label))
            bar.advance()


def _check_count(entry: ImageRows, several: str, none: str) -> None:
    if len(entry.present) > 1 and several == "refuse":
        raise DatasetError(
            f"An image lies in one class folder, but {entry.image} shows {', '.join(entry.present)}; several='repeat' "
            "puts it into each."
        )
    if not entry.present and none == "refuse":
        raise DatasetError(
            f"An image lies in a class folder, but {entry.image} has no present label; none='skip' leaves such images "
            "out."
        )


def _target_path(entry: ImageRows, label: str) -> str:
    parts = PurePosixPath(entry.image).parts
    if parts[:2] == (entry.split, label) and len(parts) > 2:
        return entry.image
    rest = parts[1:] if parts[0] == label and len(parts) > 1 else parts
    return PurePosixPath(entry.split, label, *rest).as_posix()
