"""The files of PASCAL VOC: lists of images, marks of classes, and one XML file for each image."""

from __future__ import annotations

import math
import xml.etree.ElementTree as ElementTree
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

from tagfill.errors import DatasetError
from tagfill.files import replacing
from tagfill.formats import text_files

SPLITS = ("train", "val", "test")
FLAGS = ("difficult", "truncated", "occluded")
_LONGEST_SIDE = 2**31 - 1


@dataclass(frozen=True)
class Thing:
    """An object of an XML file: its class, its flags, and its box as columns of a row."""

    label: str
    flags: tuple[str, ...]
    box: dict[str, float]


@dataclass(frozen=True)
class Photo:
    """What an XML file says: the image's path below the folder, its size, and its objects in their order."""

    name: str
    width: int | None
    height: int | None
    things: tuple[Thing, ...]


def find(source: Path) -> Path:
    """The folder with Annotations and ImageSets: the one given, or VOC20… in it or in VOCdevkit."""
    candidates = [source, *sorted(source.glob("VOC2*")), *sorted(source.glob("VOCdevkit/VOC2*"))]
    found = [folder for folder in candidates if (folder / "ImageSets" / "Main").is_dir()]
    if not found:
        raise DatasetError(f"{source} has no ImageSets/Main, neither itself nor in VOCdevkit/VOC2012.")
    if len(found) > 1:
        names = ", ".join(folder.name for folder in found)
        raise DatasetError(f"{source} holds several years of VOC ({names}); give one of these folders.")
    return found[0]


def image_lists(folder: Path) -> dict[str, list[str]]:
    """The ids of each split, sorted."""
    main = folder / "ImageSets" / "Main"
    paths = {split: main / f"{split}.txt" for split in SPLITS}
    lists = {
        split: sorted(line for _, line in text_files.lines(path)) for split, path in paths.items() if path.is_file()
    }
    if not lists:
        raise DatasetError(f"{main} has no train.txt, val.txt or test.txt.")
    for split, ids in lists.items():
        if outside := next((name for name in ids if name.startswith("/") or ".." in name.split("/")), None):
            raise DatasetError(f"{main / split}.txt lists {outside[:60]}, which leads out of the folder.")
    return lists


def class_names(folder: Path, splits: Iterable[str]) -> tuple[str, ...]:
    """Classes with a file of marks, in alphabetical order; none if the folder has only XML files."""
    found = {
        path.name.removesuffix(f"_{split}.txt")
        for split in splits
        for path in (folder / "ImageSets" / "Main").glob(f"[!.]*_{split}.txt")
    }
    return tuple(sorted(found))


def read_marks(folder: Path, label: str, split: str, ids: list[str]) -> dict[str, int]:
    """1, -1 or 0 (difficult) for each image of a split."""
    path = folder / "ImageSets" / "Main" / f"{label}_{split}.txt"
    if not path.is_file():
        raise DatasetError(f"There is no file {path}, although class '{label}' has one for another split.")
    marks: dict[str, int] = {}
    for number, line in text_files.lines(path):
        identity, _, mark = line.rpartition(" ")
        if mark not in ("1", "-1", "0"):
            raise DatasetError(f"{path}, line {number}: '{line[:60]}' is not an image and one of 1, -1 and 0.")
        if identity.strip() in marks:
            raise text_files.bad_line(path, number, f"image {identity.strip()[:60]} again", "drop one of the two lines")
        marks[identity.strip()] = int(mark)
    if missing := sorted(set(ids) ^ set(marks)):
        raise DatasetError(
            f"{path} and {split}.txt beside it do not list the same images; {missing[0][:60]} is in one only."
        )
    return marks


def read_photo(folder: Path, identity: str) -> Photo:
    """Read `Annotations/<identity>.xml`."""
    path = folder / "Annotations" / f"{identity}.xml"
    try:
        root = ElementTree.parse(path).getroot()
    except FileNotFoundError:
        raise DatasetError(f"There is no file {path}, although ImageSets/Main lists {identity}.") from None
    except OSError as error:
        found = f"ImageSets/Main lists {identity[:60]}"
        raise DatasetError(f"{found}, but its XML file cannot be read ({error.strerror}).") from None
    except (ElementTree.ParseError, LookupError, ValueError) as error:  # the latter two for encodings
        raise DatasetError(f"{path} is not valid XML: {error}.") from None
    width, height = (_side(root.findtext(f"size/{side}"), path, side) for side in ("width", "height"))
    things = tuple(_thing(item, width, height, path) for item in root.iterfind("object"))
    return Photo(_name(root, identity), width, height, things)


def write_photo(folder: Path, identity: str, photo: Photo) -> None:
    """Write `Annotations/<identity>.xml`."""
    root = ElementTree.Element("annotation")
    image = PurePosixPath(photo.name)
    _add(root, "folder", "VOC2012" if image.parts[0] == "JPEGImages" else image.parent.as_posix())
    _add(root, "filename", image.name)
    if photo.width is not None and photo.height is not None:
        size = ElementTree.SubElement(root, "size")
        for side, length in (("width", photo.width), ("height", photo.height), ("depth", 3)):
            _add(size, side, length)
    for thing in photo.things:
        item = ElementTree.SubElement(root, "object")
        _add(item, "name", thing.label)
        for flag in ("truncated", "occluded"):
            _add(item, flag, int(flag in thing.flags))
        corners = ElementTree.SubElement(item, "bndbox")
        for corner, value in _corners(thing.box, photo):
            _add(corners, corner, int(value) if value.is_integer() else value)
        _add(item, "difficult", int("difficult" in thing.flags))
    ElementTree.indent(root, "\t")
    with replacing(folder / "Annotations" / f"{identity}.xml", sync=False) as file:
        file.write(ElementTree.tostring(root, encoding="utf-8") + b"\n")


def write_lines(path: Path, lines: Iterable[str]) -> None:
    """Write a list of ImageSets."""
    with replacing(path, sync=False) as file:
        file.writelines(f"{line}\n".encode() for line in lines)


def _name(root: ElementTree.Element, identity: str) -> str:
    """Below JPEGImages as in VOC, unless folder and file name together are where the id points to."""
    file_name = PurePosixPath((root.findtext("filename") or "").strip())
    place = root.findtext("folder")
    if place is not None and file_name.name:
        stated = PurePosixPath(place.strip()) / file_name
        if stated.with_suffix("").as_posix() == identity:
            return stated.as_posix()
    return f"JPEGImages/{identity}{file_name.suffix or '.jpg'}"


def _side(text: str | None, path: Path, side: str) -> int | None:
    if text is None:
        return None
    try:
        length = int(text)
    except ValueError:
        length = 0
    if not 1 <= length <= _LONGEST_SIDE:
        raise DatasetError(
            f"{path}: the {side} of its size is '{text[:40]}'; it must be a whole number of pixels, at least one."
        )
    return length


def _thing(item: ElementTree.Element, width: int | None, height: int | None, path: Path) -> Thing:
    label = (item.findtext("name") or "").strip()
    if not label:
        raise DatasetError(f"{path} has an object without a name.")
    if width is None or height is None:
        raise DatasetError(f"{path} has no size, which the boxes of its objects are relative to.")
    flags = tuple(flag for flag in FLAGS if _is_set(item, flag, path))
    corners = {corner: _number(item.findtext(f"bndbox/{corner}")) for corner in ("xmin", "ymin", "xmax", "ymax")}
    if any(value is None for value in corners.values()):
        raise DatasetError(
            f"{path}: the bndbox of a {label} lacks one of xmin, ymin, xmax and ymax, or it is no number."
        )
    left, top, right, bottom = (float(value or 0.0) for value in corners.values())
    x, w = _relative(left, right, width)
    y, h = _relative(top, bottom, height)
    if w < 0 or h < 0:
        raise DatasetError(f"{path}: the bndbox of a {label} ends before it begins.")
    return Thing(label, flags, {"x": x, "y": y, "w": w, "h": h})


def _is_set(item: ElementTree.Element, flag: str, path: Path) -> bool:
    text = (item.findtext(flag) or "").strip()
    if text not in ("", "0", "1"):
        raise DatasetError(f"{path}: the {flag} of an object is '{text[:40]}', which is neither 0 nor 1.")
    return text == "1"


def _relative(first: float, last: float, length: int) -> tuple[float, float]:
    """Centre and size from the first and last pixel, which count from 1; what is outside of the image is cut."""
    start, end = (first - 1) / length, last / length
    if start < -1e-6 or end > 1 + 1e-6:
        start, end = max(start, 0.0), min(end, 1.0)
    return (start + end) / 2, end - start


def _corners(box: dict[str, float], photo: Photo) -> Iterable[tuple[str, float]]:
    assert photo.width is not None
    assert photo.height is not None
    return {
        "xmin": (box["x"] - box["w"] / 2) * photo.width + 1,
        "ymin": (box["y"] - box["h"] / 2) * photo.height + 1,
        "xmax": (box["x"] + box["w"] / 2) * photo.width,
        "ymax": (box["y"] + box["h"] / 2) * photo.height,
    }.items()


def _number(text: str | None) -> float | None:
    try:
        number = float(text or "")
    except ValueError:
        return None
    return number if math.isfinite(number) else None


def _add(parent: ElementTree.Element, name: str, value: Any) -> None:
    ElementTree.SubElement(parent, name).text = str(value)
