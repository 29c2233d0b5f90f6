"""The files of PASCAL VOC: lists of images, marks of classes, and one XML file for each image.

The masks of PASCAL VOC: palette images whose pixels are numbers of objects or of classes.

In SegmentationObject, pixels of value k belong to the k-th object of the XML file; in SegmentationClass, to the k-th
class in alphabetical order. 0 is background and 255 is void.

PASCAL VOC: XML files with boxes, and lists that mark each class of each image as 1, -1 or 0 (difficult).

    VOCdevkit/VOC2012/JPEGImages/2008_000008.jpg
    VOCdevkit/VOC2012/Annotations/2008_000008.xml
    VOCdevkit/VOC2012/ImageSets/Main/train.txt, aeroplane_train.txt, …
    VOCdevkit/VOC2012/SegmentationObject/2008_000009.png, SegmentationClass/…   (some images)

The lists decide. A class whose every object is difficult is marked 0; the published partial-label splits count it as
absent, and so does the default. Folders with XML files and image lists but without class lists are read too: a class
with an object that is not difficult is 1. Images are sorted by name; boxes are relative to the size in the XML file.

Everingham et al., The PASCAL Visual Object Classes (VOC) Challenge, IJCV 2010.
"""

from __future__ import annotations

import math
import os
import xml.etree.ElementTree as ElementTree
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image, UnidentifiedImageError

from tagfill.dataset import Dataset
from tagfill.errors import DatasetError, one_of
from tagfill.formats import export, image_files, rasterize, reader, text_files
from tagfill.formats.rasterize import RunLengths
from tagfill.formats.reader import Collector
from tagfill.io import atomic_write
from tagfill.labels import NEGATIVE, POSITIVE, LabelMatrix
from tagfill.progress import SILENT, Progress

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


def find_files(source: Path) -> Path:
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
    with atomic_write(folder / "Annotations" / f"{identity}.xml", sync=False) as file:
        file.write(ElementTree.tostring(root, encoding="utf-8") + b"\n")


def write_lines(path: Path, lines: Iterable[str]) -> None:
    """Write a list of ImageSets."""
    with atomic_write(path, sync=False) as file:
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


_VOID = 255


def read_masks(folder: Path, identity: str, photo: Photo, classes: tuple[str, ...]) -> dict[int, RunLengths]:
    """The masks of an image's objects, by their position; those without a mask are left out.

    An object whose pixels are of another class, which happens in a few images, has no mask either. Where there is no
    image of objects, the only object of its class gets the pixels of the class.
    """
    kinds = _pixels(folder / "SegmentationClass" / f"{identity}.png")
    numbers = _pixels(folder / "SegmentationObject" / f"{identity}.png")
    if kinds is not None and numbers is not None and kinds.shape != numbers.shape:
        raise DatasetError(f"The masks of {identity} in SegmentationClass and SegmentationObject differ in size.")
    found = {}
    labels = [thing.label for thing in photo.things]
    for number, label in enumerate(labels):
        code = classes.index(label) + 1
        if numbers is not None:
            its = numbers == number + 1
            shown = kinds[its & (kinds != _VOID)] if kinds is not None else np.array([code])
            agrees = shown.size and np.bincount(shown).argmax() == code
        else:
            its = kinds == code if kinds is not None and labels.count(label) == 1 else np.zeros((1, 1), dtype=bool)
            agrees = True
        if agrees and its.any():
            found[number] = rasterize.from_pixels(its)
    return found


def _pixels(path: Path) -> NDArray[np.uint8] | None:
    if not path.is_file():
        return None
    try:
        with Image.open(path, formats=("PNG",)) as image:
            if image.mode not in ("P", "L"):
                raise DatasetError(f"{path} is not a palette image with a number for each pixel.")
            return np.asarray(image)
    except (OSError, SyntaxError, ValueError, UnidentifiedImageError, Image.DecompressionBombError) as error:
        raise DatasetError(f"{path} cannot be read: {error}.") from None


TITLE = "PASCAL VOC"
DIFFICULT = "difficult"
_STATES = {"present": True, "absent": False, "unknown": None}


def read(
    source: str | os.PathLike[str],
    *,
    difficult: str = "absent",
    locations: str = "box",
    images: str = "annotated",
    extract_to: str | os.PathLike[str] | None = None,
    progress: Progress = SILENT,
) -> Dataset:
    """Read PASCAL VOC.

    Args:
        source: the folder that holds VOCdevkit, or VOC2012 itself, or a tar archive of either.
        difficult: what a class is of which all objects are difficult: `absent`, `present` or `unknown`. If absent,
            the label carries the flag `difficult`, and the boxes of those objects are left out.
        locations: `box`, `mask` for masks too where an image has them, or `none` for labels of whole images.
        images: `annotated` for those that show some class, or `all`.
        extract_to: where to unpack an archive.
        progress: told about the images.

    Raises:
        DatasetError: a file is missing, damaged, or contradicts another.
    """
    one_of("difficult", difficult, tuple(_STATES))
    one_of("locations", locations, ("box", "mask", "none"))
    one_of("images", images, ("annotated", "all"))
    folder = find_files(_unpacked(Path(source), extract_to, progress))
    lists = image_lists(folder)
    photos = _read_photos(folder, lists, progress)
    listed = class_names(folder, lists)
    classes = listed or tuple(sorted({thing.label for photo in photos.values() for thing in photo.things}))
    collector = Collector(folder.name.lower(), folder, classes, source="voc")
    for split, ids in lists.items():
        marks = {label: read_marks(folder, label, split, ids) for label in listed}
        for identity in ids:
            photo = photos[identity]
            its = {label: marks[label][identity] for label in listed} if listed else _marks(photo, classes)
            if images == "all" or any(_state(mark, difficult) for mark in its.values()):
                _check(folder, identity, photo, its)
                collector.add_image(photo.name, split, photo.width, photo.height)
                _add_rows(collector, folder, identity, photo, its, difficult, locations)
    return collector.dataset()


def write(
    dataset: Dataset,
    target: str | os.PathLike[str],
    *,
    unknown: str = "refuse",
    masks: str = "refuse",
    progress: Progress = SILENT,
) -> None:
    """Write Annotations and ImageSets; images stay where they are.

    Classes are read back in alphabetical order. Sources, times and costs are not carried, and of the flags only
    `difficult`, `truncated` and `occluded`.

    Args:
        dataset: with splits among train, val and test.
        target: the folder to write into, the counterpart of VOC2012.
        unknown: `refuse`, or `absent` to write unknown labels as absent.
        masks: `refuse`, or `box` to write masks as their boxes.
        progress: told about the images.

    Raises:
        DatasetError: the format cannot say what the dataset says.
    """
    folder = Path(target)
    prepared = []
    identities: dict[str, str] = {}
    export.require_splits(dataset, SPLITS, "VOC")
    for split in dataset.splits:
        labels = dataset.labels(split)
        reader.complete(labels, unknown, "VOC", split)
        prepared.append((split, labels, list(_photos(dataset, split, labels, export.box_kinds(masks)))))
        for name in dataset.names(dataset.split(split)):
            if identities.setdefault(_identity(name), name) != name:
                raise DatasetError(f"VOC knows images by name without suffix, but {name} and another one share it.")
    if bad := next((name for name in dataset.classes if "/" in name), None):
        raise DatasetError(
            f"VOC has a file for each class, but '{bad}' cannot be part of a file name; rename the class."
        )
    main, doubtful = folder / "ImageSets" / "Main", _difficult_pairs(dataset)
    with progress.bar("Writing annotations", len(dataset), "images") as bar:
        for split, labels, photos in prepared:
            ids = [_identity(photo.name) for photo in photos]
            write_lines(main / f"{split}.txt", ids)
            for code, label in enumerate(dataset.classes):
                marks = (
                    _mark(export.state(labels, place, code), (photo.name, label) in doubtful)
                    for place, photo in enumerate(photos)
                )
                lines = (f"{identity} {mark:2d}" for identity, mark in zip(ids, marks, strict=True))
                write_lines(main / f"{label}_{split}.txt", lines)
            for identity, photo in zip(ids, photos, strict=True):
                write_photo(folder, identity, photo)
                bar.advance()


def _unpacked(source: Path, extract_to: str | os.PathLike[str] | None, progress: Progress) -> Path:
    if not image_files.is_archive(source):
        return source
    if extract_to is None:
        raise DatasetError(f"{source} is an archive; say where to unpack it with extract_to.")
    return image_files.unpack(source, Path(extract_to), progress)


def _read_photos(folder: Path, lists: dict[str, list[str]], progress: Progress) -> dict[str, Photo]:
    photos = {}
    with progress.bar("Reading annotations", sum(map(len, lists.values())), "images") as bar:
        for ids in lists.values():
            for identity in ids:
                photos[identity] = read_photo(folder, identity)
                bar.advance()
    return photos


def _marks(photo: Photo, classes: tuple[str, ...]) -> dict[str, int]:
    """What the lists of classes would say: 0 if all objects of a class are difficult."""
    marks = dict.fromkeys(classes, -1)
    for thing in photo.things:
        marks[thing.label] = max(marks[thing.label], 0 if DIFFICULT in thing.flags else 1)
    return marks


def _check(folder: Path, identity: str, photo: Photo, marks: dict[str, int]) -> None:
    """Refuse an XML file and class lists that contradict each other."""
    for thing in photo.things:
        if marks.get(thing.label, -1) == -1:
            lists = "marks it -1" if thing.label in marks else "has no list for this class"
            raise DatasetError(
                f"{folder / 'Annotations' / identity}.xml shows a {thing.label}, but ImageSets/Main {lists}."
            )


def _add_rows(
    collector: Collector,
    folder: Path,
    identity: str,
    photo: Photo,
    marks: dict[str, int],
    difficult: str,
    locations: str,
) -> None:
    """The rows of an image: its objects, labels without an object, and absences."""
    state = {label: _state(mark, difficult) for label, mark in marks.items()}
    located = set()
    if locations != "none":
        masks = read_masks(folder, identity, photo, collector.classes) if locations == "mask" else {}
        for number, thing in enumerate(photo.things):
            if state[thing.label] is not False:
                columns = masks[number].columns() if number in masks else {"kind": "box"}
                said = {"flags": list(thing.flags) or None, **thing.box, **columns}
                collector.add(photo.name, thing.label, state[thing.label], **said)
                located.add(thing.label)
    for label, mark in marks.items():
        if mark >= 0 and label not in located:
            collector.add(photo.name, label, state[label], flags=[DIFFICULT] if mark == 0 else None)
    collector.add_absent(photo.name, [label for label, mark in marks.items() if mark >= 0])


def _state(mark: int, difficult: str) -> bool | None:
    """What a mark says: present, absent, or cannot tell."""
    return _STATES[difficult] if mark == 0 else mark == 1


def _identity(name: str) -> str:
    """The id of an image: its path without suffix, below JPEGImages if it is there."""
    return PurePosixPath(name.removeprefix("JPEGImages/")).with_suffix("").as_posix()


def _photos(dataset: Dataset, split: str, labels: LabelMatrix, kinds: tuple[str, ...]) -> Iterator[Photo]:
    """What to write about each image of a split."""
    table = dataset.images.take(dataset.split(split)).to_pylist()
    things: list[list[Thing]] = [[] for _ in table]
    for place in export.locations(dataset, split, labels, kinds, "VOC"):
        flags = tuple(flag for flag in FLAGS if flag in (place.row["flags"] or ()))
        box = {side: place.row[side] for side in "xywh"}
        things[place.image].append(Thing(dataset.classes[place.label], flags, box))
    for image, its in zip(table, things, strict=True):
        if its and None in (image["width"], image["height"]):
            raise DatasetError(f"Image {image['image']} has no width and height, but boxes of VOC are in pixels.")
        yield Photo(image["image"], image["width"], image["height"], tuple(its))


def _difficult_pairs(dataset: Dataset) -> set[tuple[str, str]]:
    """Images and labels that are absent because whatever there is was difficult."""
    found: set[tuple[str, str]] = set()
    for batch in dataset.scan(["image", "label", "present", "kind", "flags"]):
        rows: list[dict[str, Any]] = batch.filter(batch["flags"].is_valid()).to_pylist()
        found |= {
            (row["image"], row["label"])
            for row in rows
            if row["present"] is False and row["kind"] == "image" and DIFFICULT in row["flags"]
        }
    return found


def _mark(state: int, doubtful: bool) -> int:
    if state == POSITIVE:
        return 1
    return 0 if doubtful and state == NEGATIVE else -1
