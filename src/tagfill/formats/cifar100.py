"""CIFAR-100: 60,000 pictures of 32×32 pixels, each of one of 100 classes, which belong to 20 superclasses.

| version | files |
|---|---|
| binary | `train.bin`, `test.bin` (superclass, class and 3,072 pixels a record), `{fine,coarse}_label_names.txt` |
| Python | `train`, `test` and `meta`, pickles of which plain data is read and nothing is run |

Classes and superclasses are 120 labels, and a hierarchy: each superclass is the parent of its classes. A picture
shows one class and its superclass, and none of the others. Pictures are written as PNG files, since Tagfill reads
images from files.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from tagfill.annotations import Dataset
from tagfill.errors import DatasetError
from tagfill.files import replacing
from tagfill.formats import plain_pickle, text_files, unsaid
from tagfill.formats.cifar100_writing import PIXELS, SIDE, write
from tagfill.formats.collecting import Collector
from tagfill.progress import SILENT, Progress

TITLE = "CIFAR-100: classes and superclasses, binary or Python version"

__all__ = ["TITLE", "read", "write"]

_RECORD = 2 + PIXELS


def read(
    source: str | os.PathLike[str],
    *,
    images_to: str | os.PathLike[str],
    absent_means: str = "absent",
    held_out: str = "test",
    progress: Progress = SILENT,
) -> Dataset:
    """Read CIFAR-100 and write its pictures.

    Args:
        source: the folder of `train.bin` or of the pickle `train`.
        images_to: the folder to put pictures into, as `images/<split>/00000.png`; it becomes the image root.
        absent_means: what the other labels of a picture are, `absent` or `unknown`.
        held_out: the split of the official test pictures.
        progress: told about each picture.
    """
    folder, root = Path(source), Path(images_to)
    meaning = unsaid.checked(absent_means)
    if (folder / "train.bin").is_file():
        fine, coarse = (_read_names(folder / f"{kind}_label_names.txt") for kind in ("fine", "coarse"))
        parts = [_read_binary(folder / f"{word}.bin") for word in ("train", "test")]
    elif (folder / "train").is_file():
        fine, coarse = _read_meta(folder / "meta")
        parts = [_read_pickle(folder / word) for word in ("train", "test")]
    else:
        raise DatasetError(f"{folder} has neither train.bin nor train; name the unpacked folder of CIFAR-100.")
    parents: dict[int, int] = {}
    for part in parts:
        part.check(len(fine), len(coarse), parents)
    collector = Collector("cifar100", root, [*fine, *coarse], source="cifar100")
    for part, split in zip(parts, ("train", held_out), strict=True):
        with progress.bar(f"Writing pictures of {split}", len(part.fine), "images") as bar:
            for number, pixels in enumerate(part.pictures()):
                image = f"images/{split}/{number:05d}.png"
                with replacing(root / image, sync=False) as file:
                    Image.fromarray(pixels).save(file, format="PNG", compress_level=1)
                collector.add_image(image, split, SIDE, SIDE)
                shown = (fine[part.fine[number]], coarse[part.coarse[number]])
                for label in shown:
                    collector.add(image, label, True)
                if meaning == "absent":
                    collector.add_absent(image, shown)
                bar.advance()
    edges = tuple((fine[child], coarse[parent]) for child, parent in sorted(parents.items()))
    return collector.dataset(hierarchy=edges)


@dataclass(frozen=True)
class _Part:
    """The pictures of one file: class, superclass and pixels of each."""

    path: Path
    fine: NDArray[np.integer]
    coarse: NDArray[np.integer]
    pixels: NDArray[np.uint8]

    def check(self, fine: int, coarse: int, parents: dict[int, int]) -> None:
        """Every number has a name, and a class is always of the same superclass; `parents` gathers which."""
        for number, (child, parent) in enumerate(zip(self.fine.tolist(), self.coarse.tolist(), strict=True)):
            if not (0 <= child < fine and 0 <= parent < coarse):
                raise DatasetError(
                    f"{self.path}, record {number}: class {child} of superclass {parent}, but only {fine} and {coarse} "
                    "have names; get the files anew."
                )
            if parents.setdefault(child, parent) != parent:
                raise DatasetError(
                    f"{self.path}, record {number}: class {child} is of superclass {parent}, but was of "
                    f"{parents[child]} before; get the files anew."
                )

    def pictures(self) -> Iterator[NDArray[np.uint8]]:
        """Height × width × RGB of each; the file has the colours one after the other."""
        for flat in self.pixels:
            yield np.ascontiguousarray(flat.reshape(3, SIDE, SIDE).transpose(1, 2, 0))


def _read_binary(path: Path) -> _Part:
    size = text_files.needed(path, "the records of CIFAR-100").stat().st_size
    if size % _RECORD:
        raise DatasetError(f"{path} has {size:,} bytes, which are no whole records of {_RECORD:,}; get it anew.")
    if not size:
        empty = np.empty(0, dtype=np.uint8)
        return _Part(path, empty, empty, empty.reshape(0, PIXELS))
    records = np.memmap(path, dtype=np.uint8, mode="r").reshape(-1, _RECORD)
    return _Part(path, np.array(records[:, 1]), np.array(records[:, 0]), records[:, 2:])


def _read_pickle(path: Path) -> _Part:
    content = plain_pickle.load(path)
    pixels = content.get(b"data")
    if not isinstance(pixels, np.ndarray) or pixels.dtype != np.uint8 or pixels.shape[1:] != (PIXELS,):
        raise DatasetError(f"{path} has no array 'data' of {PIXELS:,} bytes a picture; it is not of CIFAR-100.")
    fine, coarse = (_numbers(path, content, kind, len(pixels)) for kind in ("fine_labels", "coarse_labels"))
    return _Part(path, fine, coarse, pixels)


def _numbers(path: Path, content: dict[Any, Any], key: str, count: int) -> NDArray[np.int64]:
    numbers = content.get(key.encode())
    if not isinstance(numbers, list) or len(numbers) != count or not all(type(entry) is int for entry in numbers):
        raise DatasetError(f"{path} has no list '{key}' of {count:,} numbers; it is not of CIFAR-100.")
    try:
        return np.array(numbers, dtype=np.int64)
    except OverflowError:
        raise DatasetError(f"{path} has a number in '{key}' that is no class; get it anew.") from None


def _read_meta(path: Path) -> tuple[list[str], list[str]]:
    content = plain_pickle.load(path)
    found = []
    for key in ("fine_label_names", "coarse_label_names"):
        names = content.get(key.encode())
        if not isinstance(names, list) or not all(isinstance(name, bytes) for name in names):
            raise DatasetError(f"{path} has no list '{key}'; it is not of CIFAR-100.")
        found.append([name.decode(errors="replace") for name in names])
    return found[0], found[1]


def _read_names(path: Path) -> list[str]:
    return [line for _, line in text_files.lines(path)]
