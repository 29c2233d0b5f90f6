"""Reading old pickles that hold plain data, without running any of them.

Loading a pickle can call whatever it names. This reader knows the three names that NumPy writes for an array, and puts
stand-ins of its own in their place, which accept what describes an array of integers and nothing else; any other name
ends the reading before anything is called. What can come out are arrays of integers, bytes, text, numbers, lists,
tuples and dictionaries.


Writing the binary version of CIFAR-100.

CIFAR-100: 60,000 pictures of 32×32 pixels, each of one of 100 classes, which belong to 20 superclasses.

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
import pickle
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image, UnidentifiedImageError

from tagfill.dataset import Dataset
from tagfill.dataset.dataset import local_root
from tagfill.errors import DatasetError, ImageError
from tagfill.formats import reader, text_files
from tagfill.formats.export import ImageRows, by_image
from tagfill.formats.reader import Collector
from tagfill.formats.text_files import needed
from tagfill.io import atomic_write
from tagfill.progress import SILENT, Progress


class _ForbiddenError(Exception):
    """The pickle asks for something that plain data does not need."""


class _Integers:
    """A type of integers, as described by the call of `numpy.dtype` and by the state that follows."""

    __slots__ = ("code", "order")

    def __init__(self, code: str) -> None:
        self.code, self.order = code, "|"

    def __setstate__(self, state: object) -> None:
        order = _text(state[1]) if isinstance(state, tuple) and len(state) > 1 else ""
        if order not in ("|", "<", ">", "="):
            raise _ForbiddenError("an array in an unusual order of bytes")
        self.order = order


class _Array:
    """An array, empty until its state arrives."""

    __slots__ = ("values",)

    def __init__(self) -> None:
        self.values: NDArray[np.integer] = np.empty(0, dtype=np.int8)

    def __setstate__(self, state: object) -> None:
        if not isinstance(state, tuple) or len(state) != 5:
            raise _ForbiddenError("an array of an unusual kind")
        _, shape, kind, by_columns, content = state
        if not isinstance(kind, _Integers) or not isinstance(content, bytes) or not isinstance(shape, tuple):
            raise _ForbiddenError("an array of something other than integers")
        flat = np.frombuffer(content, dtype=np.dtype(kind.order + kind.code))
        self.values = flat.reshape(shape, order="F" if by_columns else "C")


class _Dtype:
    """Stands for `numpy.dtype`; without attributes, so that a pickle cannot change it."""

    __slots__ = ()

    def __call__(self, code: object, *options: object) -> _Integers:
        text = _text(code)
        if text not in ("u1", "i1", "u2", "i2", "u4", "i4", "u8", "i8"):
            raise _ForbiddenError("an array of something other than integers")
        return _Integers(text)


class _Reconstruct:
    """Stands for NumPy's `_reconstruct`, which makes an empty array."""

    __slots__ = ()

    def __call__(self, kind: object, shape: object, code: object) -> _Array:
        if kind != _NDARRAY:
            raise _ForbiddenError("an array of an unusual kind")
        return _Array()


_NDARRAY = "numpy.ndarray"  # only ever handed to _Reconstruct
_KNOWN: dict[tuple[str, str], Any] = {
    ("numpy.core.multiarray", "_reconstruct"): _Reconstruct(),
    ("numpy._core.multiarray", "_reconstruct"): _Reconstruct(),
    ("numpy", "ndarray"): _NDARRAY,
    ("numpy", "dtype"): _Dtype(),
}


class _Unpickler(pickle._Unpickler):  # that of Python, since that of C takes as much memory as a damaged file asks for
    def find_class(self, module: str, name: str) -> Any:
        if (module, name) not in _KNOWN:
            raise _ForbiddenError(f"{module}.{name}")
        return _KNOWN[module, name]


def load(path: Path) -> dict[Any, Any]:
    """The dictionary in a pickle of plain data; text of Python 2 comes as bytes.

    Raises:
        DatasetError: it is damaged, holds something else, or asks for more than plain data.
    """
    try:
        with needed(path, "a pickle").open("rb") as file:
            content = _Unpickler(file, encoding="bytes").load()
    except _ForbiddenError as error:
        asked = ascii(str(error))[1:-1][:100]
        raise DatasetError(f"{path} is not read, because it asks for {asked}, and not for plain data only.") from None
    except DatasetError:
        raise
    except Exception as error:  # a damaged pickle can fail in any way
        problem = " ".join(f"{type(error).__name__}: {error}".split())[:200]
        raise DatasetError(f"{path} is damaged ({problem}); get it anew.") from None
    if not isinstance(content, dict):
        raise DatasetError(f"{path} holds {type(content).__name__}, not a dictionary; it is another file.")
    return {key: value.values if isinstance(value, _Array) else value for key, value in content.items()}


def _text(value: object) -> str:
    if isinstance(value, bytes):
        return value.decode("ascii", "replace")
    return value if isinstance(value, str) else ""


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
    folder, root = Path(target), local_root(dataset.root, "CIFAR-100, which is made of pixels,")
    reader.complete(dataset.labels(), unknown, "CIFAR-100")
    held_out = [part for part in dataset.splits if part != "train"]
    if len(held_out) > 1:
        raise DatasetError(f"CIFAR-100 has two parts, but this dataset has train, {', '.join(held_out)}; merge some.")
    parents = dict(dataset.hierarchy)
    coarse = [label for label in dataset.classes if label in parents.values()]
    fine = [label for label in dataset.classes if label not in coarse]
    if len(parents) < len(dataset.hierarchy) or set(parents) - set(fine) or max(len(fine), len(coarse)) > 256:
        raise DatasetError("CIFAR-100 has up to 256 classes, each of one superclass; this hierarchy is another.")
    with (
        atomic_write(folder / "train.bin") as train,
        atomic_write(folder / "test.bin") as test,
        progress.bar(f"Writing {folder.name}", len(dataset), "images") as bar,
    ):
        for entry in by_image(dataset, with_rows=False):
            child = _only(entry, fine, parents)
            head = bytes([coarse.index(parents[child]), fine.index(child)])
            (train if entry.split == "train" else test).write(head + _pixels(root, entry.image))
            bar.advance()
    for kind, names in (("fine", fine), ("coarse", coarse)):
        with atomic_write(folder / f"{kind}_label_names.txt") as file:
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
    meaning = reader.checked(absent_means)
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
                with atomic_write(root / image, sync=False) as file:
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
    content = load(path)
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
    content = load(path)
    found = []
    for key in ("fine_label_names", "coarse_label_names"):
        names = content.get(key.encode())
        if not isinstance(names, list) or not all(isinstance(name, bytes) for name in names):
            raise DatasetError(f"{path} has no list '{key}'; it is not of CIFAR-100.")
        found.append([name.decode(errors="replace") for name in names])
    return found[0], found[1]


def _read_names(path: Path) -> list[str]:
    return [line for _, line in text_files.lines(path)]
