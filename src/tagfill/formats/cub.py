"""CUB-200-2011: 312 attributes of birds, each marked present or absent in each photo.

    CUB_200_2011/images.txt                              image_id path
    CUB_200_2011/train_test_split.txt                    image_id is_training
    CUB_200_2011/attributes/image_attribute_labels.txt   image_id attribute_id is_present certainty time
    attributes.txt                                       attribute_id name, beside the folder or in it

Only the first three fields of a label count: the certainty is ignored, as in published work, and some rows of the
release have extra fields after it. Archives unpack into one or two folders called `CUB_200_2011`; both are searched.

Wah et al., The Caltech-UCSD Birds-200-2011 Dataset, 2011.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from tagfill.dataset import Dataset
from tagfill.errors import DatasetError
from tagfill.formats import image_files, read_only, text_files
from tagfill.formats.dataset_builder import DatasetBuilder
from tagfill.progress import SILENT, Progress

TITLE = "CUB-200-2011: attributes of birds"

_FOLDER = "CUB_200_2011"
_LABELS = Path("attributes", "image_attribute_labels.txt")
_ROWS_AT_ONCE = 1 << 18

__getattr__ = read_only("cub")


def read(source: str | os.PathLike[str], *, held_out: str = "val", progress: Progress = SILENT) -> Dataset:
    """Read the attributes of CUB-200-2011.

    Args:
        source: the folder `CUB_200_2011`, or its parent.
        held_out: the split of the official test images; the published single-positive protocol divides `val`.
        progress: told about each megabyte.

    Raises:
        DatasetError: a file is missing, damaged, or incomplete.
    """
    folder = _find_folder(Path(source))
    images = _read_numbered(folder / "images.txt", "the path of an image")
    training = _read_numbered(folder / "train_test_split.txt", "1 or 0")
    attributes = _read_numbered(_find_attributes(folder), "the name of an attribute")
    builder = DatasetBuilder("cub", folder / "images", list(attributes.values()), source="cub")
    for number, name in images.items():
        image_files.check_image_path(name, str(folder / "images.txt"))
        if training.get(number) not in ("0", "1"):
            raise DatasetError(f"{folder / 'train_test_split.txt'} does not say 1 or 0 for image {number}; correct it.")
        builder.add_image(name, "train" if training[number] == "1" else held_out)
    _add_labels(builder, folder / _LABELS, images, attributes, progress)
    return builder.build()


def _find_folder(source: Path) -> Path:
    for folder in (source, source / _FOLDER, source / _FOLDER / _FOLDER):
        if (folder / "images.txt").is_file():
            return folder
    raise DatasetError(f"{source} has no images.txt, nor has {_FOLDER} in it; give the unpacked folder.")


def _find_attributes(folder: Path) -> Path:
    places = (folder / "attributes", folder, folder.parent, folder.parent.parent)
    for path in (place / "attributes.txt" for place in places):
        if path.is_file():
            return path
    raise DatasetError(f"There is no attributes.txt beside {folder} or in it; it names the attributes.")


def _read_numbered(path: Path, what: str) -> dict[int, str]:
    """Read a file with a number and a text per line."""
    texts: dict[int, str] = {}
    for number, line in text_files.read_lines(path):
        key, text = [*line.split(maxsplit=1), ""][:2]
        identity = text_files.parse_whole_number(key, path, number, "a number")
        if not text or identity in texts:
            found = f"number {identity} again" if text else f"'{line[:60]}'"
            raise text_files.line_error(path, number, found, f"a new number and {what} are expected")
        texts[identity] = text
    return texts


def _add_labels(
    builder: DatasetBuilder, path: Path, images: dict[int, str], attributes: dict[int, str], progress: Progress
) -> None:
    """Add a row per image and attribute; raise if one is missing or occurs twice."""
    row_of, column_of = ({number: at for at, number in enumerate(table)} for table in (images, attributes))
    seen = np.zeros((len(images), len(attributes)), dtype=bool)
    rows: list[tuple[str, str, bool]] = []
    for number, image, attribute, present in _read_labels(path, progress):
        if image not in images or attribute not in attributes:
            which = f"image {image}" if image not in images else f"attribute {attribute}"
            raise text_files.line_error(path, number, f"{which}, which is not listed", "correct the line or the list")
        if seen[row_of[image], column_of[attribute]]:
            found = f"attribute {attribute} of image {image} a second time"
            raise text_files.line_error(path, number, found, "drop one of the two lines")
        seen[row_of[image], column_of[attribute]] = True
        rows.append((images[image], attributes[attribute], present))
        if len(rows) == _ROWS_AT_ONCE:
            _flush(builder, rows)
    _flush(builder, rows)
    if not seen.all():
        image, attribute = np.argwhere(~seen)[0].tolist()
        raise DatasetError(
            f"{path} has no line for attribute {list(attributes)[attribute]} of image {list(images)[image]}, but the "
            "release has one for each; it may be an incomplete download."
        )


def _read_labels(path: Path, progress: Progress) -> Iterator[tuple[int, int, int, bool]]:
    """Iterate over line number, image, attribute and state; everything after the third field is ignored."""
    for number, line in text_files.read_lines(path, progress):
        fields = line.split(maxsplit=3)[:3]
        if len(fields) < 3 or fields[2] not in ("0", "1"):
            remedy = "image_id attribute_id is_present… is expected, the last one 1 or 0"
            raise text_files.line_error(path, number, f"'{line[:60]}'", remedy)
        image = text_files.parse_whole_number(fields[0], path, number, "an image")
        attribute = text_files.parse_whole_number(fields[1], path, number, "an attribute")
        yield number, image, attribute, fields[2] == "1"


def _flush(builder: DatasetBuilder, rows: list[tuple[str, str, bool]]) -> None:
    if rows:
        builder.add_rows(dict(zip(("image", "label", "present"), zip(*rows, strict=True), strict=True)))
        rows.clear()
