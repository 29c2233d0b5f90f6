"""CUB-200-2011: 312 attributes of birds, each marked present or absent in each photo.

    CUB_200_2011/images.txt                              image_id path
    CUB_200_2011/train_test_split.txt                    image_id is_training
    CUB_200_2011/attributes/image_attribute_labels.txt   image_id attribute_id is_present certainty time
    attributes.txt                                       attribute_id name, beside the folder or in it

Of a row of labels only the first three fields count: the certainty is ignored, as in published work, and some rows of
the release carry extra fields after it. Archives unpack into one or two folders called `CUB_200_2011`; both are
searched.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from tagfill.dataset import Dataset
from tagfill.errors import DatasetError
from tagfill.formats import image_files, read_only, text_files
from tagfill.formats.reader import Collector
from tagfill.progress import SILENT, Progress

TITLE = "CUB-200-2011: attributes of birds"

__getattr__ = read_only("cub")

_FOLDER = "CUB_200_2011"
_LABELS = Path("attributes", "image_attribute_labels.txt")
_ROWS_AT_ONCE = 1 << 18


def read(source: str | os.PathLike[str], *, held_out: str = "val", progress: Progress = SILENT) -> Dataset:
    """Read the attributes of CUB-200-2011.

    Args:
        source: the folder `CUB_200_2011`, or one that holds it.
        held_out: the split of the official test images; `val` is what the published single-positive protocol divides.
        progress: told about each megabyte.
    """
    folder = _find(Path(source))
    images = _table(folder / "images.txt", "the path of an image")
    training = _table(folder / "train_test_split.txt", "1 or 0")
    attributes = _table(_find_attributes(folder), "the name of an attribute")
    collector = Collector("cub", folder / "images", list(attributes.values()), source="cub")
    for number, name in images.items():
        image_files.check_name(name, str(folder / "images.txt"))
        if training.get(number) not in ("0", "1"):
            raise DatasetError(f"{folder / 'train_test_split.txt'} does not say 1 or 0 of image {number}; mend it.")
        collector.add_image(name, "train" if training[number] == "1" else held_out)
    _add_labels(collector, folder / _LABELS, images, attributes, progress)
    return collector.dataset()


def _add_labels(
    collector: Collector, path: Path, images: dict[int, str], attributes: dict[int, str], progress: Progress
) -> None:
    rows_of, columns_of = ({number: at for at, number in enumerate(table)} for table in (images, attributes))
    seen = np.zeros((len(images), len(attributes)), dtype=bool)
    rows: list[tuple[str, str, bool]] = []
    for number, image, attribute, present in _label_rows(path, progress):
        if image not in images or attribute not in attributes:
            which = f"image {image}" if image not in images else f"attribute {attribute}"
            raise text_files.bad_line(path, number, f"{which}, which is not listed", "mend the line or the list")
        if seen[rows_of[image], columns_of[attribute]]:
            found = f"attribute {attribute} of image {image} a second time"
            raise text_files.bad_line(path, number, found, "drop one of the two lines")
        seen[rows_of[image], columns_of[attribute]] = True
        rows.append((images[image], attributes[attribute], present))
        if len(rows) == _ROWS_AT_ONCE:
            _flush(collector, rows)
    _flush(collector, rows)
    if not seen.all():
        image, attribute = np.argwhere(~seen)[0].tolist()
        raise DatasetError(
            f"{path} says nothing about attribute {list(attributes)[attribute]} of image {list(images)[image]}, but "
            "has a line for each in the release; it may be an incomplete download."
        )


def _flush(collector: Collector, rows: list[tuple[str, str, bool]]) -> None:
    if rows:
        collector.add_rows(dict(zip(("image", "label", "present"), zip(*rows, strict=True), strict=True)))
        rows.clear()


def _label_rows(path: Path, progress: Progress) -> Iterator[tuple[int, int, int, bool]]:
    """Line, image, attribute and state; everything after the third field is ignored."""
    for number, line in text_files.lines(path, progress):
        fields = line.split(maxsplit=3)[:3]
        if len(fields) < 3 or fields[2] not in ("0", "1"):
            remedy = "image_id attribute_id is_present… is expected, the last one 1 or 0"
            raise text_files.bad_line(path, number, f"'{line[:60]}'", remedy)
        image = text_files.whole_number(fields[0], path, number, "an image")
        attribute = text_files.whole_number(fields[1], path, number, "an attribute")
        yield number, image, attribute, fields[2] == "1"


def _find(source: Path) -> Path:
    for folder in (source, source / _FOLDER, source / _FOLDER / _FOLDER):
        if (folder / "images.txt").is_file():
            return folder
    raise DatasetError(f"{source} has no images.txt, nor has {_FOLDER} in it; name the unpacked folder.")


def _find_attributes(folder: Path) -> Path:
    places = (folder / "attributes", folder, folder.parent, folder.parent.parent)
    for path in (place / "attributes.txt" for place in places):
        if path.is_file():
            return path
    raise DatasetError(f"There is no attributes.txt beside {folder} or in it; it names the attributes.")


def _table(path: Path, what: str) -> dict[int, str]:
    """Numbers and texts of a file with a number and a text a line."""
    texts: dict[int, str] = {}
    for number, line in text_files.lines(path):
        key, text = [*line.split(maxsplit=1), ""][:2]
        identity = text_files.whole_number(key, path, number, "a number")
        if not text or identity in texts:
            found = f"number {identity} again" if text else f"'{line[:60]}'"
            raise text_files.bad_line(path, number, found, f"a new number and {what} are expected")
        texts[identity] = text
    return texts
