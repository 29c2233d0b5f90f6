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
from tagfill.errors import DatasetError
from tagfill.formats import image_files, read_only, reader, text_files
from tagfill.formats.json_stream import shown
from tagfill.formats.reader import Collector
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
