"""Writing the layouts of NUS-WIDE."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path

import numpy as np

from tagfill.annotations import Dataset
from tagfill.errors import DatasetError, one_of
from tagfill.files import replacing
from tagfill.formats import dense, unsaid
from tagfill.formats.grouping import by_image
from tagfill.progress import SILENT, Progress


def write(
    dataset: Dataset,
    target: str | os.PathLike[str],
    *,
    layout: str = "official",
    unknown: str = "refuse",
    absent_means: str | None = None,
    progress: Progress = SILENT,
) -> None:
    """Write labels in a layout of NUS-WIDE, with the class names in `Concepts81.txt`; images stay where they are.

    Args:
        dataset: what to write; `official` and `arrays` hold a train split and one other.
        target: the folder, or the file of a `list`.
        layout: `official`, `arrays` or `list`.
        unknown: in the layouts that are read as complete, unknown labels are refused, or written as `absent`.
        absent_means: how a list will be read, if the dataset has both absent and unknown labels.
        progress: told about what is written.
    """
    one_of("layout", layout, ["official", "arrays", "list"])
    path = Path(target)
    if layout == "list":
        _write_list(dataset, path, absent_means, progress)
        return
    unsaid.complete(dataset.labels(), unknown, "NUS-WIDE")
    held_out = [part for part in dataset.splits if part != "train"]
    if len(held_out) > 1:
        raise DatasetError(f"NUS-WIDE has two parts, but this dataset has train, {', '.join(held_out)}; merge some.")
    write_part = _write_official if layout == "official" else _write_arrays
    for part in ("train", *(held_out or ["val"])):
        write_part(dataset, path, part, progress)
    concepts = path / "ConceptsList" if layout == "official" else path
    _write_lines(concepts / "Concepts81.txt", dataset.classes)


def _write_official(dataset: Dataset, folder: Path, part: str, progress: Progress) -> None:
    if bad := [label for label in dataset.classes if "/" in label]:
        raise DatasetError(f"Class '{bad[0]}' cannot be part of a file's name; rename it.")
    word = "Train" if part == "train" else "Test"
    names, matrix = dense.part(dataset, part)
    _write_lines(folder / "ImageList" / f"{word}Imagelist.txt", (name.replace("/", "\\") for name in names))
    labels = folder / "Groundtruth" / "TrainTestLabels"
    with progress.bar(f"Writing {part}", len(dataset.classes), "concepts") as bar:
        for column, concept in enumerate(dataset.classes):
            _write_lines(labels / f"Labels_{concept}_{word}.txt", map(str, matrix[:, column].tolist()))
            bar.advance()


def _write_arrays(dataset: Dataset, folder: Path, part: str, progress: Progress) -> None:
    word = "train" if part == "train" else "val"
    names, matrix = dense.part(dataset, part)
    for what, array in (("images", np.array(names, dtype=np.str_)), ("labels", matrix)):
        with replacing(folder / f"formatted_{word}_{what}.npy") as file:
            np.save(file, array, allow_pickle=False)


def _write_list(dataset: Dataset, path: Path, absent_means: str | None, progress: Progress) -> None:
    unsaid.writing(dataset.labels(), absent_means, "A list of NUS-WIDE")
    codes = {label: str(code) for code, label in enumerate(dataset.classes)}
    lines = []
    with progress.bar(f"Writing {path.name}", len(dataset), "images") as bar:
        for entry in by_image(dataset, with_rows=False):
            if any(sign.isspace() or sign == "," for sign in entry.image):
                raise DatasetError(f"Image '{entry.image}' cannot stand in a list, which is cut at spaces and commas.")
            lines.append(" ".join([entry.image, *(codes[label] for label in entry.present)]))
            bar.advance()
    _write_lines(path, lines)
    _write_lines(path.parent / "Concepts81.txt", dataset.classes)


def _write_lines(path: Path, lines: Iterable[str]) -> None:
    with replacing(path, sync=False) as file:
        file.write("".join(f"{line}\n" for line in lines).encode())
