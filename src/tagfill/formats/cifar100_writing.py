"""Writing the binary version of CIFAR-100."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
from PIL import Image, UnidentifiedImageError

from tagfill.annotations import Dataset
from tagfill.annotations.image_root import local
from tagfill.errors import DatasetError, ImageError
from tagfill.files import replacing
from tagfill.formats import unsaid
from tagfill.formats.grouping import ImageRows, by_image
from tagfill.progress import SILENT, Progress

SIDE = 32
PIXELS = 3 * SIDE * SIDE


def write(
    dataset: Dataset, target: str | os.PathLike[str], *, unknown: str = "refuse", progress: Progress = SILENT
) -> None:
    """Write `train.bin`, `test.bin` and the names of classes and superclasses.

    Args:
        dataset: of pictures of 32×32 pixels, each showing one class and its one parent in the hierarchy; with a train
            split and one other.
        target: the folder.
        unknown: unknown labels are refused, or written as `absent`.
        progress: told about each picture.
    """
    folder, root = Path(target), local(dataset.root, "CIFAR-100, which is made of pixels,")
    unsaid.complete(dataset.labels(), unknown, "CIFAR-100")
    held_out = [part for part in dataset.splits if part != "train"]
    if len(held_out) > 1:
        raise DatasetError(f"CIFAR-100 has two parts, but this dataset has train, {', '.join(held_out)}; merge some.")
    parents = dict(dataset.hierarchy)
    coarse = [label for label in dataset.classes if label in parents.values()]
    fine = [label for label in dataset.classes if label not in coarse]
    if len(parents) < len(dataset.hierarchy) or set(parents) - set(fine) or max(len(fine), len(coarse)) > 256:
        raise DatasetError("CIFAR-100 has up to 256 classes, each of one superclass; this hierarchy is another.")
    with (
        replacing(folder / "train.bin") as train,
        replacing(folder / "test.bin") as test,
        progress.bar(f"Writing {folder.name}", len(dataset), "images") as bar,
    ):
        for entry in by_image(dataset, with_rows=False):
            child = _only(entry, fine, parents)
            head = bytes([coarse.index(parents[child]), fine.index(child)])
            (train if entry.split == "train" else test).write(head + _pixels(root, entry.image))
            bar.advance()
    for kind, names in (("fine", fine), ("coarse", coarse)):
        with replacing(folder / f"{kind}_label_names.txt") as file:
            file.write("".join(f"{name}\n" for name in names).encode())


def _only(entry: ImageRows, fine: list[str], parents: dict[str, str]) -> str:
    """The one class of an image, if its superclass is the only other label."""
    shown = [label for label in entry.present if label in fine]
    if len(shown) != 1 or set(entry.present) != {shown[0], parents.get(shown[0])}:
        raise DatasetError(
            f"A picture of CIFAR-100 shows one class and its superclass, but {entry.image} shows "
            f"{', '.join(entry.present) or 'nothing'}; leave it out."
        )
    return shown[0]


def _pixels(root: Path, name: str) -> bytes:
    try:
        with Image.open(root / name, formats=("JPEG", "PNG", "WEBP")) as image:
            if image.size != (SIDE, SIDE):
                raise ImageError(name, f"{image.width}×{image.height} pixels, but CIFAR-100 has {SIDE}×{SIDE}")
            return np.asarray(image.convert("RGB")).transpose(2, 0, 1).tobytes()
    except (OSError, UnidentifiedImageError) as error:
        raise ImageError(name, f"cannot be decoded ({error})") from None
