"""ImageNet: a folder of training images per class, validation images, and the ReaL labels of the latter.

    train/n01440764/n01440764_10026.JPEG
    val/n01440764/ILSVRC2012_val_00000293.JPEG      or      val/ILSVRC2012_val_00000293.JPEG
    real.json                                       a list of class numbers for each validation image

Classes are numbered in the order of their sorted identifiers. A folder gives an image one present label;
`absent_means` says what the others are, since most images show more than one thing. ReaL (Beyer et al., 2020) labeled
each validation image again: its lists, in the order of file names, are complete and replace the label of the folder.
An empty list means that the annotators did not agree on any label, so all labels of that image stay unknown, as do
those of images without a folder or a list.

Russakovsky et al., ImageNet Large Scale Visual Recognition Challenge, IJCV 2015; Beyer et al., Are We Done with
ImageNet?, 2020.
"""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from pathlib import Path, PurePosixPath

from tagfill.dataset import Dataset
from tagfill.errors import DatasetError
from tagfill.formats import image_files, read_only, text_files
from tagfill.formats.dataset_builder import DatasetBuilder, resolve_absent_means
from tagfill.formats.json_stream import short_json
from tagfill.progress import SILENT, Progress

TITLE = "ImageNet: class folders, and ReaL labels"

__getattr__ = read_only("imagenet")


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
        real: the ReaL labels; by default `real.json` in the folder, if it is there.
        classes: their identifiers in the order of their numbers; by default the sorted class folders.
        absent_means: what the other labels of an image with a class folder are, `unknown` or `absent`; required if
            there are such images.
        progress: told about each image.

    Raises:
        DatasetError: `absent_means` is missing, or files are missing, damaged, or contradict each other.
    """
    root = Path(source)
    images = {part: list(image_files.list_images(root / part)) for part in ("train", "val")}
    if not any(images.values()):
        raise DatasetError(f"{root} has no images in train/ or val/; give the folder that holds them.")
    folders = sorted({name for part in images for name in image_files.list_folders(root / part)})
    names = tuple(folders if classes is None else classes)
    if not names:
        raise DatasetError(f"{root} has no folder for a class; name the classes in order with classes=.")
    for image in (f"{part}/{file}" for part, files in images.items() for file in files):
        folder = _class_folder(image)
        if folder is not None and folder not in names:
            raise DatasetError(f"{root / image} lies in '{folder}', which is not among the classes given.")
    path = Path(real) if real is not None else root / "real.json"
    lists = _read_real(path, images["val"], len(names)) if real is not None or path.is_file() else {}
    from_folder = sum(_class_folder(f"{part}/{file}") is not None for part in images for file in images[part])
    from_folder -= sum(_class_folder(f"val/{file}") is not None for file in lists)
    if from_folder or absent_means is not None:
        absent_means = resolve_absent_means(
            absent_means, root, images=from_folder, classes=len(names), present=from_folder
        )
    builder = DatasetBuilder("imagenet", root, names, source="imagenet")
    for part, files in images.items():
        with progress.bar(f"Listing {part}", len(files), "images") as bar:
            for file in files:
                image = f"{part}/{file}"
                builder.add_image(image, part)
                if part == "val" and file in lists:
                    present = [names[number] for number in lists[file]]
                    _add_rows(builder, image, present, exhaustive=bool(present))
                elif (folder := _class_folder(image)) is not None:
                    _add_rows(builder, image, [folder], exhaustive=absent_means == "absent")
                bar.advance()
    return builder.build()


def _class_folder(image: str) -> str | None:
    """Return the class folder of an image such as `train/n01440764/1.JPEG`."""
    parts = PurePosixPath(image).parts
    return parts[1] if len(parts) > 2 else None


def _read_real(path: Path, images: list[str], classes: int) -> dict[str, list[int]]:
    """Return the class numbers of each validation image."""
    try:
        lists = json.loads(text_files.require_file(path, "the ReaL labels").read_text(encoding="utf-8-sig"))
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
                f"{path}, entry {number}: found {short_json(entry)}; distinct numbers of the {classes} classes are "
                "expected."
            )
    order = sorted(images, key=lambda file: PurePosixPath(file).name)
    return dict(zip(order, lists, strict=True))


def _add_rows(builder: DatasetBuilder, image: str, present: list[str], *, exhaustive: bool) -> None:
    for label in present:
        builder.add_row(image, label, True)
    if exhaustive:
        builder.mark_rest_absent(image, present)
