"""NUS-WIDE: 81 concepts of photos from Flickr, in the three layouts that are in use.

| layout | files |
|---|---|
| official | `ImageList/{Train,Test}Imagelist.txt`, `Groundtruth/TrainTestLabels/Labels_<concept>_{Train,Test}.txt` |
| arrays | `formatted_{train,val}_{images,labels}.npy`, released for single positive labels (Cole et al., CVPR 2021) |
| list | one text file with a line `file index index…` per image |

The first two label every image with every concept, so 0 is read as absent unless `absent_means` says otherwise. A list
may be of images whose labels were dropped, so it requires `absent_means`. `Concepts81.txt`, in the folder or in
`ConceptsList/`, names the concepts; the official layout can do without it. The layouts hold different images, and
results on them are not comparable.

Chua et al., NUS-WIDE: A Real-World Web Image Database from National University of Singapore, CIVR 2009.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from tagfill.dataset import Dataset
from tagfill.dataset.dataset import image_root
from tagfill.errors import DatasetError, one_of
from tagfill.formats import image_files, read_only, text_files
from tagfill.formats.dataset_builder import DatasetBuilder, check_absent_means, resolve_absent_means
from tagfill.progress import SILENT, Bar, Progress

TITLE = "NUS-WIDE: official lists, released arrays, or list files"

_IMAGES_AT_ONCE = 4096

__getattr__ = read_only("nus-wide")


def read(
    source: str | os.PathLike[str],
    *,
    root: str | os.PathLike[str] | None = None,
    absent_means: str | None = None,
    classes: Sequence[str] | None = None,
    held_out: str = "val",
    split: str = "train",
    layout: str | None = None,
    progress: Progress = SILENT,
) -> Dataset:
    """Read NUS-WIDE.

    Args:
        source: the folder of the official files or of the arrays, or a list file.
        root: where the images are, a folder or a URL; by default the folder `Flickr` there if it exists, else the
            folder itself.
        absent_means: what is not marked present, `unknown` or `absent`; required for a list file.
        classes: names of the concepts in order, if no file has them.
        held_out: the split of the official test images; the published single-positive protocol divides `val`.
        split: of the images of a list file.
        layout: `official`, `arrays` or `list`, to refuse any other; by default the one that is there.
        progress: told about files and images.

    Raises:
        DatasetError: `absent_means` is missing, or a file is missing, damaged, or contradicts another.
    """
    source = Path(source)
    folder = source if source.is_dir() else source.parent
    if layout is not None:
        one_of("layout", layout, _LAYOUTS)
        _require_layout(source, layout)
    if root is None:
        root = folder / "Flickr" if (folder / "Flickr").is_dir() else folder
    if source.is_file():
        return _read_list(source, image_root(root), _concepts(folder, classes, source), absent_means, split, progress)
    if (folder / "formatted_train_images.npy").is_file():
        parts = {"train": "train", "val": held_out}
        names = _concepts(folder, classes, folder / "formatted_train_labels.npy")
        matrices = ((part, *_read_arrays(folder, word, len(names))) for word, part in parts.items())
    elif (folder / "ImageList").is_dir():
        parts = {"Train": "train", "Test": held_out}
        names = tuple(classes or _official_concepts(folder))
        matrices = ((part, *_read_official(folder, word, names, progress)) for word, part in parts.items())
    else:
        raise DatasetError(
            f"{folder} has neither ImageList/ nor formatted_train_images.npy; give the folder of NUS-WIDE, or a list."
        )
    absent_means = check_absent_means(absent_means or "absent")
    builder = DatasetBuilder("nus-wide", image_root(root), names, source="nus-wide")
    for part, images, matrix, where in matrices:
        builder.add_images({"image": images, "split": [part] * len(images)})
        with progress.bar(f"Reading {part}", len(images), "images") as bar:
            _add_matrix(builder, images, matrix, absent_means, where, bar)
    return builder.build()


_LAYOUTS = {"official": "ImageList", "arrays": "formatted_train_images.npy", "list": "a list file"}


def _require_layout(source: Path, layout: str) -> None:
    """Raise if the source has another layout, whose images are others."""
    marker = _LAYOUTS[layout]
    if source.is_file() != (layout == "list") or (layout != "list" and not (source / marker).exists()):
        raise DatasetError(
            f"{source} is not NUS-WIDE in the layout '{layout}': there is no {marker}. The layouts hold different "
            "images, so their results cannot be compared."
        )


def _read_official(
    folder: Path, word: str, classes: Sequence[str], progress: Progress
) -> tuple[list[str], NDArray[Any], Path]:
    """Return the images of a part, their N×L matrix of 0 and 1, and the folder of the labels."""
    path = folder / "ImageList" / f"{word}Imagelist.txt"
    images = [_image_name(line, path, number) for number, line in text_files.read_lines(path)]
    matrix = np.zeros((len(images), len(classes)), dtype=np.int8)
    labels = folder / "Groundtruth" / "TrainTestLabels"
    with progress.bar(f"Reading labels of {word}", len(classes), "concepts") as bar:
        for column, concept in enumerate(classes):
            file = labels / f"Labels_{concept}_{word}.txt"
            values = [_parse_bit(text, file, number) for number, text in text_files.read_lines(file)]
            if len(values) != len(images):
                raise DatasetError(f"{file} has {len(values):,} lines, but {path.name} lists {len(images):,} images.")
            matrix[:, column] = values
            bar.advance()
    return images, matrix, labels


def _parse_bit(text: str, path: Path, number: int) -> int:
    if text not in ("0", "1"):
        raise text_files.line_error(path, number, f"'{text[:40]}'", "0 or 1 is expected")
    return int(text)


def _read_arrays(folder: Path, word: str, classes: int) -> tuple[list[str], NDArray[Any], Path]:
    """Return the images of a part, their N×L matrix of 0 and 1, and the file of the labels."""
    path, labels = folder / f"formatted_{word}_images.npy", folder / f"formatted_{word}_labels.npy"
    names, matrix = _load_array(path), _load_array(labels)
    if names.ndim != 1 or names.dtype.kind not in "US":
        raise DatasetError(f"{path} is not a list of file names; it holds {names.dtype} of shape {names.shape}.")
    if matrix.shape != (len(names), classes) or matrix.dtype.kind not in "biuf":
        raise DatasetError(
            f"{labels} holds {matrix.dtype} of shape {matrix.shape}, but numbers of {len(names):,} images × {classes} "
            "concepts are expected."
        )
    try:
        texts = _decode_names(names)
    except ValueError:
        raise DatasetError(f"{path} holds a name that is not text; download it again.") from None
    return [_image_name(text, path, number) for number, text in enumerate(texts)], matrix, labels


def _load_array(path: Path) -> NDArray[Any]:
    try:
        array = np.load(text_files.require_file(path, "an array"), allow_pickle=False, mmap_mode="r")
    except DatasetError:
        raise
    except Exception as error:  # a damaged header can fail in any way
        problem = " ".join(str(error).split())[:200]
        raise DatasetError(
            f"{path} cannot be read as an array ({problem}); arrays of Python objects are not read: save file names "
            "with array.astype(str)."
        ) from None
    if not isinstance(array, np.ndarray):
        raise DatasetError(f"{path} holds several arrays; one is expected.")
    return array


def _decode_names(names: NDArray[Any]) -> list[str]:
    """Return names as text; a ValueError for bytes that are not UTF-8 and numbers that are not characters."""
    if names.dtype.kind == "S":
        return [name.decode() for name in names.tolist()]
    if names.nbytes and np.array(names, names.dtype.newbyteorder("=")).view(np.uint32).max() > sys.maxunicode:
        raise ValueError
    texts: list[str] = names.tolist()
    "".join(texts).encode()
    return texts


def _add_matrix(
    builder: DatasetBuilder,
    images: Sequence[str],
    matrix: NDArray[np.generic],
    absent_means: str,
    where: object,
    bar: Bar,
) -> None:
    """Add the rows of an N×L matrix of 0 and 1, which may be a memory map; `where` it is stored, for the message."""
    classes = pa.array(builder.classes, pa.string())
    for start in range(0, len(images), _IMAGES_AT_ONCE):
        block = np.asarray(matrix[start : start + _IMAGES_AT_ONCE])
        other = np.argwhere((block != 0) & (block != 1))
        if len(other):
            row, column = other[0].tolist()
            raise DatasetError(
                f"{where}, row {start + row}, column {column}: found {block[row, column]}; 1 is present, "
                "0 is not, and other values are not allowed."
            )
        image, label = np.nonzero(block == 1) if absent_means == "unknown" else np.indices(block.shape).reshape(2, -1)
        names = pa.array(images[start : start + len(block)], pa.string())
        present = np.asarray(block[image, label] == 1, dtype=bool)
        builder.add_rows(
            {
                "image": names.take(pa.array(image)),
                "label": classes.take(pa.array(label)),
                "present": pa.array(present),
            }
        )
        bar.advance(len(block))


def _read_list(
    path: Path, root: Path | str, classes: Sequence[str], absent_means: str | None, split: str, progress: Progress
) -> Dataset:
    images = present = 0
    for _, indices in _list_lines(path, len(classes), progress):
        images, present = images + 1, present + len(indices)
    absent_means = resolve_absent_means(absent_means, path, images=images, classes=len(classes), present=present)
    builder = DatasetBuilder("nus-wide", root, classes, source="nus-wide")
    for image, indices in _list_lines(path, len(classes), progress):
        builder.add_image(image, split)
        labels = [classes[index] for index in indices]
        for label in labels:
            builder.add_row(image, label, True)
        if absent_means == "absent":
            builder.mark_rest_absent(image, labels)
    return builder.build()


def _list_lines(path: Path, classes: int, progress: Progress) -> Iterator[tuple[str, list[int]]]:
    """Iterate over the image and the indices of each line of a list file."""
    for number, line in text_files.read_lines(path, progress):
        image, *words = re.split(r"[,\s]+", line.rstrip(", "))
        indices = [text_files.parse_whole_number(word, path, number, "the index of a concept") for word in words]
        if len(set(indices)) < len(indices):
            remedy = "indices of present concepts are expected, not a column of 0 and 1 for each"
            raise text_files.line_error(path, number, "the same index twice", remedy)
        if indices and max(indices) >= classes:
            raise text_files.line_error(
                path, number, f"index {max(indices)}", f"the {classes} concepts are 0…{classes - 1}"
            )
        yield _image_name(image, path, number), indices


def _image_name(text: str, path: Path, number: int) -> str:
    """Return the path of an image; the official lists have backslashes."""
    name = text.replace("\\", "/")
    image_files.check_image_path(name, f"{path}, line {number}")
    return name


def _concepts(folder: Path, classes: Sequence[str] | None, numbered: Path) -> tuple[str, ...]:
    """Return the names of concepts that a file only numbers."""
    names = tuple(classes or _listed_concepts(folder))
    if not names:
        raise DatasetError(
            f"{numbered} numbers the concepts without naming them; put Concepts81.txt beside it or give classes=."
        )
    return names


def _official_concepts(folder: Path) -> tuple[str, ...]:
    """Return the concepts in the order of their list, if there is one; it must name every concept with labels."""
    listed, labeled = _listed_concepts(folder), _labeled_concepts(folder)
    if listed and (missing := sorted(set(labeled) - set(listed))):
        raise DatasetError(
            f"{folder} has labels of {missing[0]}, which Concepts81.txt does not list; it may be an incomplete "
            "download, or give classes= to choose some."
        )
    return listed or labeled


def _listed_concepts(folder: Path) -> tuple[str, ...]:
    for path in (folder / "Concepts81.txt", folder / "ConceptsList" / "Concepts81.txt"):
        if path.is_file():
            return tuple(line for _, line in text_files.read_lines(path))
    return ()


def _labeled_concepts(folder: Path) -> tuple[str, ...]:
    labels = folder / "Groundtruth" / "TrainTestLabels"
    names = [path.name.removeprefix("Labels_").removesuffix("_Train.txt") for path in labels.glob("Labels_*_Train.txt")]
    if not names:
        raise DatasetError(f"{labels} has no Labels_<concept>_Train.txt; unpack the ground truth there.")
    return tuple(sorted(names))
