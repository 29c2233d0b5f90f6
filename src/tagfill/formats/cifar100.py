"""CIFAR-100: 60,000 images of 32×32 pixels, one of 100 classes each; the classes belong to 20 superclasses.

    train.bin, test.bin                                superclass, class and 3,072 pixels per record
    fine_label_names.txt, coarse_label_names.txt       names of the classes and superclasses

Only the binary version (`cifar-100-binary`) is read. The Python version consists of pickles, which are not opened.

Classes and superclasses are 120 labels, and a hierarchy: each superclass is the parent of its classes. An image shows
one class and its superclass, and none of the others. Images are written as PNG files, since Tagfill reads images from
files.

Krizhevsky, Learning Multiple Layers of Features from Tiny Images, 2009.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from tagfill.dataset import Dataset
from tagfill.errors import DatasetError
from tagfill.formats import dataset_builder, read_only, text_files
from tagfill.formats.dataset_builder import DatasetBuilder
from tagfill.io import atomic_write
from tagfill.progress import SILENT, Progress

TITLE = "CIFAR-100: classes and superclasses, binary version"

_SIDE = 32
_PIXELS = 3 * _SIDE * _SIDE
_RECORD = 2 + _PIXELS

__getattr__ = read_only("cifar100")


def read(
    source: str | os.PathLike[str],
    *,
    images_to: str | os.PathLike[str],
    absent_means: str = "absent",
    held_out: str = "test",
    progress: Progress = SILENT,
) -> Dataset:
    """Read CIFAR-100 and write its images as PNG files.

    Args:
        source: the folder that holds `train.bin`.
        images_to: the folder to put images into, as `images/<split>/00000.png`; it becomes the image root.
        absent_means: what the other labels of an image are, `absent` or `unknown`.
        held_out: the split of the official test images.
        progress: told about each image.

    Raises:
        DatasetError: a file is missing or damaged, or the folder holds the Python version.
    """
    folder, root = Path(source), Path(images_to)
    meaning = dataset_builder.check_absent_means(absent_means)
    if not (folder / "train.bin").is_file():
        if (folder / "train").is_file():
            raise DatasetError(
                f"{folder} holds the Python version of CIFAR-100, whose pickles are not read; download the binary "
                "version (cifar-100-binary.tar.gz)."
            )
        raise DatasetError(f"{folder} has no train.bin; give the unpacked folder cifar-100-binary.")
    fine, coarse = (_read_names(folder / f"{kind}_label_names.txt") for kind in ("fine", "coarse"))
    parts = [_read_records(folder / f"{word}.bin") for word in ("train", "test")]
    parents: dict[int, int] = {}
    for part in parts:
        part.check(len(fine), len(coarse), parents)
    builder = DatasetBuilder("cifar100", root, [*fine, *coarse], source="cifar100")
    for part, split in zip(parts, ("train", held_out), strict=True):
        with progress.bar(f"Writing images of {split}", len(part.fine), "images") as bar:
            for number, pixels in enumerate(part.images()):
                image = f"images/{split}/{number:05d}.png"
                with atomic_write(root / image, sync=False) as file:
                    Image.fromarray(pixels).save(file, format="PNG", compress_level=1)
                builder.add_image(image, split, _SIDE, _SIDE)
                present = (fine[part.fine[number]], coarse[part.coarse[number]])
                for label in present:
                    builder.add_row(image, label, True)
                if meaning == "absent":
                    builder.mark_rest_absent(image, present)
                bar.advance()
    edges = tuple((fine[child], coarse[parent]) for child, parent in sorted(parents.items()))
    return builder.build(hierarchy=edges)


@dataclass(frozen=True)
class _Records:
    """The images of one file: class, superclass and pixels of each."""

    path: Path
    fine: NDArray[np.integer]
    coarse: NDArray[np.integer]
    pixels: NDArray[np.uint8]

    def check(self, fine: int, coarse: int, parents: dict[int, int]) -> None:
        """Raise unless every number has a name and a class always has the same superclass; fills in `parents`."""
        for number, (child, parent) in enumerate(zip(self.fine.tolist(), self.coarse.tolist(), strict=True)):
            if not (0 <= child < fine and 0 <= parent < coarse):
                raise DatasetError(
                    f"{self.path}, record {number}: class {child} of superclass {parent}, but only {fine} and {coarse} "
                    "have names; download the files again."
                )
            if parents.setdefault(child, parent) != parent:
                raise DatasetError(
                    f"{self.path}, record {number}: class {child} is of superclass {parent}, but was of "
                    f"{parents[child]} before; download the files again."
                )

    def images(self) -> Iterator[NDArray[np.uint8]]:
        """Height × width × RGB of each image; the file stores one color after the other."""
        for flat in self.pixels:
            yield np.ascontiguousarray(flat.reshape(3, _SIDE, _SIDE).transpose(1, 2, 0))


def _read_records(path: Path) -> _Records:
    size = text_files.require_file(path, "the records of CIFAR-100").stat().st_size
    if size % _RECORD:
        raise DatasetError(
            f"{path} has {size:,} bytes, which is not a multiple of the {_RECORD:,} bytes of a record; download it "
            "again."
        )
    if not size:
        empty = np.empty(0, dtype=np.uint8)
        return _Records(path, empty, empty, empty.reshape(0, _PIXELS))
    records = np.memmap(path, dtype=np.uint8, mode="r").reshape(-1, _RECORD)
    return _Records(path, np.array(records[:, 1]), np.array(records[:, 0]), records[:, 2:])


def _read_names(path: Path) -> list[str]:
    return [line for _, line in text_files.read_lines(path)]
