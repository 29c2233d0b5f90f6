"""YOLO: a text file of boxes beside each image, and a `data.yaml` that names the classes.

    data.yaml                    names: [cat, dog], or {0: cat, 1: dog}; train: images/train; val: images/val
    images/train/1.jpg           labels/train/1.txt    with lines  class x y width height
    train/images/1.jpg           train/labels/1.txt    (the other common order)

x and y are the centre, all four numbers are relative to the image. A text file says that somebody looked: its boxes are
present and the other classes absent, so an empty one says that nothing is there. An image without a text file was not
labelled. Where boxes were not drawn for every class, `absent_means="unknown"` leaves the classes without a box unknown,
but for empty files, which still say that nothing is there.


Writing YOLO datasets.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path, PurePosixPath
from typing import Any

import yaml

from tagfill.dataset import Dataset
from tagfill.errors import DatasetError, one_of
from tagfill.formats import image_files, rasterize, reader, text_files
from tagfill.formats.export import ImageRows, by_image
from tagfill.formats.image_files import Carry
from tagfill.formats.reader import Collector
from tagfill.io import atomic_write
from tagfill.progress import SILENT, Progress

TITLE = "YOLO: text files of boxes, images/ and labels/, data.yaml"

__all__ = ["TITLE", "read", "write"]

_SPLIT_KEYS = ("train", "val", "valid", "test")
_ROUNDING = 1e-3  # boxes may reach this far over the edge


def read(
    source: str | os.PathLike[str],
    *,
    absent_means: str = "absent",
    polygons: str = "refuse",
    progress: Progress = SILENT,
) -> Dataset:
    """Read a YOLO dataset.

    Args:
        source: the folder that holds `data.yaml`, or that file under any name.
        absent_means: what a class without a box is in an image that was looked at, `absent` or `unknown`.
        polygons: lines of a segmentation (class x y x y x y…) are refused, or become a `mask` or its `box`.
        progress: told about each image.
    """
    path = Path(source)
    path = path / "data.yaml" if path.is_dir() else path
    absent_means = reader.checked(absent_means)
    one_of("polygons", polygons, ["refuse", "mask", "box"])
    description = _description(path)
    classes = _names(path, description)
    images = [entry for part in _SPLIT_KEYS for entry in _images(path, description, part)]
    root = Path(os.path.commonpath([path.parent.absolute(), *(file.parent for _, file in images)]))
    collector = Collector(path.parent.absolute().name, root, classes, source="yolo")
    with progress.bar(f"Reading {path.parent.name}", len(images), "images") as bar:
        for part, file in images:
            image = file.relative_to(root).as_posix()
            labels = _labels_of(file)
            boxes = list(_boxes(labels, file, path, classes, polygons)) if labels.is_file() else []
            size = image_files.size(root, image) if any("rle" in box for _, box in boxes) else (None, None)
            collector.add_image(image, image_files.split_of(part), *size)
            for label, box in boxes:
                collector.add(image, label, True, **box)
            if labels.is_file() and (absent_means == "absent" or not boxes):
                collector.add_absent(image, [label for label, _ in boxes])
            bar.advance()
    return collector.dataset()


def _description(path: Path) -> dict[str, Any]:
    try:
        content = yaml.safe_load(text_files.needed(path, "the names of the classes").read_bytes())
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        raise DatasetError(f"{path} is not valid YAML: {' '.join(str(error).split())[:400]}.") from None
    if not isinstance(content, dict):
        raise DatasetError(f"{path} is not a description of a YOLO dataset; it needs 'names' and 'train'.")
    return content


def _names(path: Path, description: dict[str, Any]) -> list[str]:
    names = description.get("names")
    if isinstance(names, dict):
        if sorted(names, key=str) != sorted(range(len(names)), key=str):
            raise DatasetError(f"{path}: 'names' must number the classes 0, 1, 2… without gaps.")
        names = [names[number] for number in range(len(names))]
    if not isinstance(names, list) or not names:
        raise DatasetError(f"{path} has no 'names'; list the class names there.")
    if not all(isinstance(name, str) for name in names):
        wrong = next(name for name in names if not isinstance(name, str))
        raise DatasetError(
            f"{path}: class name {ascii(wrong)[:60]} is no text; quote names that look like numbers or dates."
        )
    if description.get("nc", len(names)) != len(names):
        raise DatasetError(
            f"{path}: 'nc' is {ascii(description['nc'])[:60]}, but {len(names)} classes are named; mend one of them."
        )
    return names


def _images(path: Path, description: dict[str, Any], part: str) -> Iterator[tuple[str, Path]]:
    """Images of a split, which is given as folders or as lists of files."""
    given = description.get(part) or []
    entries = [given] if isinstance(given, str) else given
    if not isinstance(entries, list) or not all(isinstance(entry, str) for entry in entries):
        raise DatasetError(f"{path}: '{part}' is {ascii(given)[:60]}; a folder, a file or a list of them is expected.")
    for entry in entries:
        place = _existing(path, description, entry)
        if place.is_dir():
            yield from ((part, place / name) for name in image_files.below(place))
        else:
            for number, line in text_files.lines(place):
                beside = place.parent / line
                image = beside if _is_there(beside) else _existing(path, description, line)
                if not image.is_file():
                    raise text_files.bad_line(place, number, f"'{line[:60]}'", "the path of an image is expected")
                yield part, image


def _existing(path: Path, description: dict[str, Any], entry: str) -> Path:
    """Where an entry of data.yaml leads: below `path`, beside data.yaml, or there without the leading `../`."""
    base = path.parent.absolute()
    for place in (base / str(description.get("path") or "") / entry, base / entry, base / entry.removeprefix("../")):
        if _is_there(place):
            return Path(os.path.normpath(place))
    raise DatasetError(f"{path} names '{entry[:200]}', but there is no such file or folder; mend the path.")


def _is_there(place: Path) -> bool:
    try:
        return place.exists()
    except OSError:  # the name is too long
        return False


def _labels_of(image: Path) -> Path:
    """The text file of an image: the last folder called images becomes labels."""
    parts = list(image.parent.parts)
    for at in reversed(range(len(parts))):
        if parts[at] == "images":
            parts[at] = "labels"
            break
    return Path(*parts, f"{image.stem}.txt")


def _boxes(
    path: Path, image: Path, description: Path, classes: list[str], polygons: str
) -> Iterator[tuple[str, dict[str, Any]]]:
    """Label and columns of each line of a text file."""
    for number, line in text_files.lines(path):
        words = line.split()
        try:
            code, *place = [float(word) for word in words]
        except ValueError:
            raise text_files.bad_line(path, number, f"'{line[:60]}'", "numbers are expected") from None
        if code not in range(len(classes)):
            found = f"class {words[0]}, but {description.name} names {len(classes)}"
            raise text_files.bad_line(path, number, found, "mend the line or add the class")
        if not all(-_ROUNDING <= value <= 1 + _ROUNDING for value in place):
            remedy = "divide pixels by the image's width and height"
            raise text_files.bad_line(path, number, f"'{line[:60]}', which is not within 0 and 1", remedy)
        if len(place) == 4:
            yield classes[int(code)], {"kind": "box", **dict(zip("xywh", place, strict=True))}
        elif len(place) >= 6 and len(place) % 2 == 0 and polygons != "refuse":
            yield classes[int(code)], _polygon(place, image, polygons)
        else:
            remedy = "a box has four" + ("; polygons='mask' or 'box' reads polygons" if len(place) >= 6 else "")
            raise text_files.bad_line(path, number, f"{len(place)} numbers after the class", remedy)


def _polygon(corners: list[float], image: Path, polygons: str) -> dict[str, Any]:
    xs, ys = corners[::2], corners[1::2]
    left, top, right, bottom = min(xs), min(ys), max(xs), max(ys)
    box = {"x": (left + right) / 2, "y": (top + bottom) / 2, "w": right - left, "h": bottom - top}
    if polygons == "mask":
        width, height = image_files.size(image.parent, image.name)
        pixels = [value * (height if at % 2 else width) for at, value in enumerate(corners)]
        mask = rasterize.from_segmentation([pixels], height, width)
        if mask is not None:
            return {**box, **mask.columns()}
    return {"kind": "box", **box}


def write(
    dataset: Dataset,
    target: str | os.PathLike[str],
    *,
    images: Carry = "copy",
    absent_means: str | None = None,
    without_box: str = "refuse",
    progress: Progress = SILENT,
) -> None:
    """Write `data.yaml`, `labels/<split>/…` and `images/<split>/…`; masks become their boxes, flags are not written.

    Args:
        dataset: what to write.
        target: the folder.
        images: `copy` them, `link` to them, or `none`.
        absent_means: how it will be read, if some images have both absent and unknown labels.
        without_box: present labels without a box or mask are refused, become a box around the `whole` image, or are
            left out with `drop`; an image of which nothing remains is written as not labelled.
        progress: told about each image.
    """
    folder = Path(target)
    carrier = image_files.Carrier(dataset.root, images)
    one_of("without_box", without_box, ["refuse", "whole", "drop"])
    _check_states(dataset, absent_means)
    places: dict[str, str] = {}
    for entry in by_image(dataset):
        place = _place(entry)
        stem = PurePosixPath(place).with_suffix("").as_posix()
        if stem in places:
            raise DatasetError(f"Images {places[stem]} and {entry.image} would share {_text_name(place)}; rename one.")
        places[stem] = entry.image
        _lines(entry, dataset.classes, without_box)
    description = {
        "path": ".",
        **{part: f"images/{part}" for part in dataset.splits},
        "names": dict(enumerate(dataset.classes)),
    }
    with progress.bar(f"Writing {folder.name}", len(dataset), "images") as bar:
        for entry in by_image(dataset):
            place = _place(entry)
            carrier.put(entry.image, folder / place)
            lines = _lines(entry, dataset.classes, without_box)
            if lines or _is_empty(entry, len(dataset.classes), absent_means):
                with atomic_write(folder / _text_name(place), sync=False) as file:
                    file.write("".join(lines).encode())
            bar.advance()
    with atomic_write(folder / "data.yaml") as file:
        file.write(yaml.safe_dump(description, sort_keys=False, allow_unicode=True).encode())


def _place(entry: ImageRows) -> str:
    """Where an image goes below the target: where it is if that is right, else below the folder of its split."""
    here = PurePosixPath("images", entry.split)
    return entry.image if PurePosixPath(entry.image).is_relative_to(here) else (here / entry.image).as_posix()


def _text_name(place: str) -> str:
    return PurePosixPath("labels", *PurePosixPath(place).parts[1:]).with_suffix(".txt").as_posix()


def _is_empty(entry: ImageRows, classes: int, absent_means: str | None) -> bool:
    """Whether every class is known to be absent, or counts as such."""
    absent = sum(state is False for state in entry.states.values())
    return absent == classes or (absent_means == "absent" and absent > 0 and not entry.present)


def _check_states(dataset: Dataset, absent_means: str | None) -> None:
    """Each image is written as looked at or not; refuse what is neither, unless it was said how to read it."""
    if absent_means is not None:
        reader.checked(absent_means)
        return
    classes = len(dataset.classes)
    complete, partial, neither = 0, 0, 0
    for entry in by_image(dataset, with_rows=False):
        absent = sum(state is False for state in entry.states.values())
        complete += bool(entry.present) and len(entry.present) + absent == classes and absent > 0
        partial += bool(entry.present) and absent == 0 and len(entry.present) < classes
        neither += 0 < absent < classes - len(entry.present)
    if neither or (complete and partial):
        raise DatasetError(
            f"YOLO cannot tell absent from unknown, but {complete + neither:,} images have absent labels beside others "
            f"and {partial + neither:,} have unknown ones; absent_means='absent' writes the unknown labels of images "
            "with boxes as absent, absent_means='unknown' forgets their absent ones."
        )


def _lines(entry: ImageRows, classes: tuple[str, ...], without_box: str) -> list[str]:
    rows = entry.locations("box", "mask")
    missing = [label for label in entry.present if label not in {row["label"] for row in rows}]
    if missing and without_box == "refuse":
        raise DatasetError(
            f"YOLO needs a box for what is present, but '{missing[0]}' of {entry.image} has none; without_box='whole' "
            "draws one around the image, without_box='drop' leaves such labels out."
        )
    if without_box == "whole":
        rows += [{"label": label, "x": 0.5, "y": 0.5, "w": 1.0, "h": 1.0} for label in missing]
    places = [(classes.index(row["label"]), *(f"{row[side]:.9g}" for side in "xywh")) for row in rows]
    return [" ".join(map(str, place)) + "\n" for place in places]
