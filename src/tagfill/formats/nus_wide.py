"""NUS-WIDE: 81 concepts of photos from Flickr, in the three layouts that are in use.

| layout | files |
|---|---|
| `official` | `ImageList/{Train,Test}Imagelist.txt`, `Groundtruth/TrainTestLabels/Labels_<concept>_{Train,Test}.txt` |
| `arrays` | `formatted_{train,val}_{images,labels}.npy`, released for single positive labels (Cole et al., CVPR 2021) |
| `list` | one text file with a line `file index index…` for each image |

The first two label every image with every concept, so 0 is read as absent unless `absent_means` says otherwise. A list
may be of images whose labels were dropped, so `absent_means` has to be given. Concepts are named by `Concepts81.txt`,
in the folder or in `ConceptsList/`; the official layout can do without it. The layouts hold different images, and
results on them are not comparable.


Writing the layouts of NUS-WIDE.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tagfill.dataset import Dataset
from tagfill.dataset.dataset import image_root
from tagfill.errors import DatasetError
from tagfill.formats import image_files, read_only, reader, text_files
from tagfill.formats.reader import Collector
from tagfill.progress import SILENT, Progress

TITLE = "NUS-WIDE: official lists, released arrays, or list files"

__getattr__ = read_only("nus-wide")


def read(
    source: str | os.PathLike[str],
    *,
    root: str | os.PathLike[str] | None = None,
    absent_means: str | None = None,
    classes: Sequence[str] | None = None,
    held_out: str = "val",
    split: str = "train",
    progress: Progress = SILENT,
) -> Dataset:
    """Read NUS-WIDE.

    Args:
        source: the folder of the official files or of the arrays, or a list file.
        root: where the images are, a folder or a URL; the folder `Flickr` there if it exists, else the folder itself.
        absent_means: what is not marked present, `unknown` or `absent`.
        classes: names of the concepts in order, if no file has them.
        held_out: the split of the official test images; `val` is what the published single-positive protocol divides.
        split: of the images of a list file.
        progress: told about files and images.
    """
    source = Path(source)
    folder = source if source.is_dir() else source.parent
    if root is None:
        root = folder / "Flickr" if (folder / "Flickr").is_dir() else folder
    if source.is_file():
        return _read_list(source, image_root(root), _concepts(folder, classes, source), absent_means, split, progress)
    if (folder / "formatted_train_images.npy").is_file():
        parts = {"train": "train", "val": held_out}
        names = _concepts(folder, classes, folder / "formatted_train_labels.npy")
        blocks = ((part, *_arrays(folder, word, len(names))) for word, part in parts.items())
    elif (folder / "ImageList").is_dir():
        parts = {"Train": "train", "Test": held_out}
        names = tuple(classes or _official_concepts(folder))
        blocks = ((part, *_official(folder, word, names, progress)) for word, part in parts.items())
    else:
        raise DatasetError(
            f"{folder} has neither ImageList/ nor formatted_train_images.npy; name the folder of NUS-WIDE, or a list."
        )
    meaning = reader.checked(absent_means or "absent")
    collector = Collector("nus-wide", image_root(root), names, source="nus-wide")
    for part, images, matrix, where in blocks:
        collector.add_images({"image": images, "split": [part] * len(images)})
        with progress.bar(f"Reading {part}", len(images), "images") as bar:
            reader.add_matrix(collector, images, matrix, meaning, where, bar)
    return collector.dataset()


def _official(
    folder: Path, word: str, classes: Sequence[str], progress: Progress
) -> tuple[list[str], NDArray[Any], Path]:
    path = folder / "ImageList" / f"{word}Imagelist.txt"
    images = [_name(line, path, number) for number, line in text_files.lines(path)]
    matrix = np.zeros((len(images), len(classes)), dtype=np.int8)
    labels = folder / "Groundtruth" / "TrainTestLabels"
    with progress.bar(f"Reading labels of {word}", len(classes), "concepts") as bar:
        for column, concept in enumerate(classes):
            file = labels / f"Labels_{concept}_{word}.txt"
            values = [_bit(text, file, number) for number, text in text_files.lines(file)]
            if len(values) != len(images):
                raise DatasetError(f"{file} has {len(values):,} lines, but {path.name} lists {len(images):,} images.")
            matrix[:, column] = values
            bar.advance()
    return images, matrix, labels


def _arrays(folder: Path, word: str, classes: int) -> tuple[list[str], NDArray[Any], Path]:
    path, labels = folder / f"formatted_{word}_images.npy", folder / f"formatted_{word}_labels.npy"
    names, matrix = _load(path), _load(labels)
    if names.ndim != 1 or names.dtype.kind not in "US":
        raise DatasetError(f"{path} is not a list of file names; it holds {names.dtype} of shape {names.shape}.")
    if matrix.shape != (len(names), classes) or matrix.dtype.kind not in "biuf":
        raise DatasetError(
            f"{labels} holds {matrix.dtype} of shape {matrix.shape}, but numbers of {len(names):,} images × {classes} "
            "concepts are expected."
        )
    try:
        texts = _texts(names)
    except ValueError:
        raise DatasetError(f"{path} holds a name that is not text; get it anew.") from None
    return [_name(text, path, number) for number, text in enumerate(texts)], matrix, labels


def _texts(names: NDArray[Any]) -> list[str]:
    """Bytes that are no UTF-8, and numbers that are no characters, are a ValueError."""
    if names.dtype.kind == "S":
        return [name.decode() for name in names.tolist()]
    if names.nbytes and np.array(names, names.dtype.newbyteorder("=")).view(np.uint32).max() > sys.maxunicode:
        raise ValueError
    texts: list[str] = names.tolist()
    "".join(texts).encode()
    return texts


def _load(path: Path) -> NDArray[Any]:
    try:
        array = np.load(text_files.needed(path, "an array"), allow_pickle=False, mmap_mode="r")
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


def _read_list(
    path: Path, root: Path | str, classes: Sequence[str], absent_means: str | None, split: str, progress: Progress
) -> Dataset:
    images = present = 0
    for _, _, indices in _list_lines(path, len(classes), progress):
        images, present = images + 1, present + len(indices)
    meaning = reader.reading(absent_means, path, images=images, classes=len(classes), present=present)
    collector = Collector("nus-wide", root, classes, source="nus-wide")
    for _, image, indices in _list_lines(path, len(classes), progress):
        collector.add_image(image, split)
        labels = [classes[index] for index in indices]
        for label in labels:
            collector.add(image, label, True)
        if meaning == "absent":
            collector.add_absent(image, labels)
    return collector.dataset()


def _list_lines(path: Path, classes: int, progress: Progress) -> Iterator[tuple[int, str, list[int]]]:
    for number, line in text_files.lines(path, progress):
        image, *words = re.split(r"[,\s]+", line.rstrip(", "))
        indices = [text_files.whole_number(word, path, number, "the index of a concept") for word in words]
        if len(set(indices)) < len(indices):
            remedy = "indices of present concepts are expected, not a column of 0 and 1 for each"
            raise text_files.bad_line(path, number, "the same index twice", remedy)
        if indices and max(indices) >= classes:
            raise text_files.bad_line(
                path, number, f"index {max(indices)}", f"the {classes} concepts are 0…{classes - 1}"
            )
        yield number, _name(image, path, number), indices


def _concepts(folder: Path, classes: Sequence[str] | None, of: Path) -> tuple[str, ...]:
    names = tuple(classes or _listed_concepts(folder))
    if not names:
        raise DatasetError(
            f"{of} numbers the concepts without naming them; put Concepts81.txt beside it or give classes=."
        )
    return names


def _listed_concepts(folder: Path) -> tuple[str, ...]:
    for path in (folder / "Concepts81.txt", folder / "ConceptsList" / "Concepts81.txt"):
        if path.is_file():
            return tuple(line for _, line in text_files.lines(path))
    return ()


def _official_concepts(folder: Path) -> tuple[str, ...]:
    """The concepts in the order of their list, if there is one; it must have all that there are labels of."""
    listed, labelled = _listed_concepts(folder), _labelled_concepts(folder)
    if listed and (missing := sorted(set(labelled) - set(listed))):
        raise DatasetError(
            f"{folder} has labels of {missing[0]}, which Concepts81.txt does not list; it may be an incomplete "
            "download, or give classes= to choose some."
        )
    return listed or labelled


def _labelled_concepts(folder: Path) -> tuple[str, ...]:
    labels = folder / "Groundtruth" / "TrainTestLabels"
    names = [path.name.removeprefix("Labels_").removesuffix("_Train.txt") for path in labels.glob("Labels_*_Train.txt")]
    if not names:
        raise DatasetError(f"{labels} has no Labels_<concept>_Train.txt; unpack the ground truth there.")
    return tuple(sorted(names))


def _name(text: str, path: Path, number: int) -> str:
    """A path as it stands in a list, where the official ones have backslashes."""
    name = text.replace("\\", "/")
    image_files.check_name(name, f"{path}, line {number}")
    return name


def _bit(text: str, path: Path, number: int) -> int:
    if text not in ("0", "1"):
        raise text_files.bad_line(path, number, f"'{text[:40]}'", "0 or 1 is expected")
    return int(text)
