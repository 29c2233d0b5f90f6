"""PASCAL VOC: XML files with boxes, and lists that mark each class of each image as 1, -1 or 0 (difficult).

    VOCdevkit/VOC2012/JPEGImages/2008_000008.jpg
    VOCdevkit/VOC2012/Annotations/2008_000008.xml
    VOCdevkit/VOC2012/ImageSets/Main/train.txt, aeroplane_train.txt, …
    VOCdevkit/VOC2012/SegmentationObject/2008_000009.png, SegmentationClass/…   (some images)

The lists decide. A class whose objects are all difficult is marked 0; the published partial-label splits count it as
absent, and so does the default. Folders with XML files and image lists but without class lists are read too: a class
with an object that is not difficult is 1. Images are sorted by name; boxes are relative to the size in the XML file.

Masks are palette images. In SegmentationObject, pixels of value k belong to the k-th object of the XML file; in
SegmentationClass, to the k-th class in alphabetical order. 0 is background and 255 is void.

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
from tagfill.formats import rasterize, tar_archive, text_files, writer
from tagfill.formats.dataset_builder import DatasetBuilder
from tagfill.formats.rasterize import RunLengths
from tagfill.io import atomic_write
from tagfill.labels import NEGATIVE, POSITIVE, LabelMatrix
from tagfill.progress import SILENT, Progress

TITLE = "PASCAL VOC"

_SPLITS = ("train", "val", "test")
_DIFFICULT = "difficult"
_FLAGS = (_DIFFICULT, "truncated", "occluded")
_DIFFICULT_STATES = {"present": True, "absent": False, "unknown": None}
_LONGEST_SIDE = 2**31 - 1
_VOID = 255


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
        difficult: what a class is whose objects are all difficult: `absent`, `present` or `unknown`. If absent, the
            label carries the flag `difficult`, and the boxes of those objects are left out.
        locations: `box`, `mask` to read masks where an image has them, or `none` for labels of whole images.
        images: `annotated` for those that show some class, or `all`.
        extract_to: where to unpack an archive.
        progress: told about the images.

    Raises:
        DatasetError: a file is missing, damaged, or contradicts another.
    """
    one_of("difficult", difficult, tuple(_DIFFICULT_STATES))
    one_of("locations", locations, ("box", "mask", "none"))
    one_of("images", images, ("annotated", "all"))
    folder = _find_folder(_unpack(Path(source), extract_to, progress))
    ids_of = _read_image_lists(folder)
    annotations = _read_annotations(folder, ids_of, progress)
    listed = _list_classes(folder, ids_of)
    classes = listed or tuple(sorted({item.label for found in annotations.values() for item in found.objects}))
    builder = DatasetBuilder(folder.name.lower(), folder, classes, source="voc")
    for split, ids in ids_of.items():
        marks_of = {label: _read_marks(folder, label, split, ids) for label in listed}
        for identity in ids:
            annotation = annotations[identity]
            if listed:
                marks = {label: marks_of[label][identity] for label in listed}
            else:
                marks = _marks_from_objects(annotation, classes)
            if images == "all" or any(_state(mark, difficult) for mark in marks.values()):
                _check_marks(folder, identity, annotation, marks)
                builder.add_image(annotation.name, split, annotation.width, annotation.height)
                masks = _read_masks(folder, identity, annotation, classes) if locations == "mask" else {}
                _add_rows(builder, annotation, marks, masks, difficult, locations)
    return builder.build()


@dataclass(frozen=True)
class _Object:
    """An object of an XML file: its class, its flags, and its box as columns of a row."""

    label: str
    flags: tuple[str, ...]
    box: dict[str, float]


@dataclass(frozen=True)
class _Annotation:
    """The content of an XML file: path of the image below the folder, its size, and its objects in order."""

    name: str
    width: int | None
    height: int | None
    objects: tuple[_Object, ...]


def _unpack(source: Path, extract_to: str | os.PathLike[str] | None, progress: Progress) -> Path:
    if not tar_archive.is_archive(source):
        return source
    if extract_to is None:
        raise DatasetError(f"{source} is an archive; say where to unpack it with extract_to.")
    return tar_archive.unpack(source, Path(extract_to), progress)


def _find_folder(source: Path) -> Path:
    """Return the folder with Annotations and ImageSets: the one given, or VOC20… in it or in VOCdevkit."""
    candidates = [source, *sorted(source.glob("VOC2*")), *sorted(source.glob("VOCdevkit/VOC2*"))]
    found = [folder for folder in candidates if (folder / "ImageSets" / "Main").is_dir()]
    if not found:
        raise DatasetError(f"{source} has no ImageSets/Main, neither itself nor in VOCdevkit/VOC2012.")
    if len(found) > 1:
        names = ", ".join(folder.name for folder in found)
        raise DatasetError(f"{source} holds several years of VOC ({names}); give one of these folders.")
    return found[0]


def _read_image_lists(folder: Path) -> dict[str, list[str]]:
    """Return the image ids of each split, sorted."""
    main = folder / "ImageSets" / "Main"
    paths = {split: main / f"{split}.txt" for split in _SPLITS}
    ids_of = {
        split: sorted(line for _, line in text_files.read_lines(path))
        for split, path in paths.items()
        if path.is_file()
    }
    if not ids_of:
        raise DatasetError(f"{main} has no train.txt, val.txt or test.txt.")
    for split, ids in ids_of.items():
        if outside := next((name for name in ids if name.startswith("/") or ".." in name.split("/")), None):
            raise DatasetError(f"{main / split}.txt lists {outside[:60]}, which leads out of the folder.")
    return ids_of


def _list_classes(folder: Path, splits: Iterable[str]) -> tuple[str, ...]:
    """Return the classes with a list of marks, in alphabetical order; none if the folder has only XML files."""
    found = {
        path.name.removesuffix(f"_{split}.txt")
        for split in splits
        for path in (folder / "ImageSets" / "Main").glob(f"[!.]*_{split}.txt")
    }
    return tuple(sorted(found))


def _read_marks(folder: Path, label: str, split: str, ids: list[str]) -> dict[str, int]:
    """Return 1, -1 or 0 (difficult) for each image of a split."""
    path = folder / "ImageSets" / "Main" / f"{label}_{split}.txt"
    if not path.is_file():
        raise DatasetError(f"There is no file {path}, although class '{label}' has one for another split.")
    marks: dict[str, int] = {}
    for number, line in text_files.read_lines(path):
        identity, _, mark = line.rpartition(" ")
        if mark not in ("1", "-1", "0"):
            raise DatasetError(f"{path}, line {number}: '{line[:60]}' is not an image and one of 1, -1 and 0.")
        if identity.strip() in marks:
            found = f"image {identity.strip()[:60]} again"
            raise text_files.line_error(path, number, found, "drop one of the two lines")
        marks[identity.strip()] = int(mark)
    if missing := sorted(set(ids) ^ set(marks)):
        raise DatasetError(
            f"{path} and {split}.txt beside it do not list the same images; {missing[0][:60]} is in one only."
        )
    return marks


def _read_annotations(folder: Path, ids_of: dict[str, list[str]], progress: Progress) -> dict[str, _Annotation]:
    annotations = {}
    with progress.bar("Reading annotations", sum(map(len, ids_of.values())), "images") as bar:
        for ids in ids_of.values():
            for identity in ids:
                annotations[identity] = _read_xml(folder, identity)
                bar.advance()
    return annotations


def _read_xml(folder: Path, identity: str) -> _Annotation:
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
    width, height = (_parse_side(root.findtext(f"size/{side}"), path, side) for side in ("width", "height"))
    objects = tuple(_parse_object(item, width, height, path) for item in root.iterfind("object"))
    return _Annotation(_image_name(root, identity), width, height, objects)


def _image_name(root: ElementTree.Element, identity: str) -> str:
    """Return a path below JPEGImages as in VOC, unless folder and file name together are where the id points to."""
    file_name = PurePosixPath((root.findtext("filename") or "").strip())
    place = root.findtext("folder")
    if place is not None and file_name.name:
        stated = PurePosixPath(place.strip()) / file_name
        if stated.with_suffix("").as_posix() == identity:
            return stated.as_posix()
    return f"JPEGImages/{identity}{file_name.suffix or '.jpg'}"


def _parse_side(text: str | None, path: Path, side: str) -> int | None:
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


def _parse_object(item: ElementTree.Element, width: int | None, height: int | None, path: Path) -> _Object:
    label = (item.findtext("name") or "").strip()
    if not label:
        raise DatasetError(f"{path} has an object without a name.")
    if width is None or height is None:
        raise DatasetError(f"{path} has no size, which the boxes of its objects are relative to.")
    flags = tuple(flag for flag in _FLAGS if _is_set(item, flag, path))
    corners = {corner: _parse_number(item.findtext(f"bndbox/{corner}")) for corner in ("xmin", "ymin", "xmax", "ymax")}
    if any(value is None for value in corners.values()):
        raise DatasetError(
            f"{path}: the bndbox of a {label} lacks one of xmin, ymin, xmax and ymax, or it is not a number."
        )
    left, top, right, bottom = (float(value or 0.0) for value in corners.values())
    x, w = _center_and_size(left, right, width)
    y, h = _center_and_size(top, bottom, height)
    if w < 0 or h < 0:
        raise DatasetError(f"{path}: the bndbox of a {label} ends before it begins.")
    return _Object(label, flags, {"x": x, "y": y, "w": w, "h": h})


def _is_set(item: ElementTree.Element, flag: str, path: Path) -> bool:
    text = (item.findtext(flag) or "").strip()
    if text not in ("", "0", "1"):
        raise DatasetError(f"{path}: the {flag} of an object is '{text[:40]}', which is neither 0 nor 1.")
    return text == "1"


def _parse_number(text: str | None) -> float | None:
    try:
        number = float(text or "")
    except ValueError:
        return None
    return number if math.isfinite(number) else None


def _center_and_size(first: float, last: float, length: int) -> tuple[float, float]:
    """Return center and size from the first and last pixel, counted from 1; what is outside the image is cut off."""
    start, end = (first - 1) / length, last / length
    if start < -1e-6 or end > 1 + 1e-6:
        start, end = max(start, 0.0), min(end, 1.0)
    return (start + end) / 2, end - start


def _marks_from_objects(annotation: _Annotation, classes: tuple[str, ...]) -> dict[str, int]:
    """Return the marks that class lists would have: 0 if all objects of a class are difficult."""
    marks = dict.fromkeys(classes, -1)
    for item in annotation.objects:
        marks[item.label] = max(marks[item.label], 0 if _DIFFICULT in item.flags else 1)
    return marks


def _state(mark: int, difficult: str) -> bool | None:
    """Return the state of a mark: present, absent, or None for cannot tell."""
    return _DIFFICULT_STATES[difficult] if mark == 0 else mark == 1


def _check_marks(folder: Path, identity: str, annotation: _Annotation, marks: dict[str, int]) -> None:
    """Raise if an XML file and the class lists contradict each other."""
    for item in annotation.objects:
        if marks.get(item.label, -1) == -1:
            lists = "marks it -1" if item.label in marks else "has no list for this class"
            raise DatasetError(
                f"{folder / 'Annotations' / identity}.xml shows a {item.label}, but ImageSets/Main {lists}."
            )


def _read_masks(
    folder: Path, identity: str, annotation: _Annotation, classes: tuple[str, ...]
) -> dict[int, RunLengths]:
    """Return the masks of the objects of an image, by position; objects without a mask are left out.

    An object whose pixels are of another class, which happens in a few images, has no mask either. Where there is no
    image of objects, the only object of its class gets the pixels of the class.
    """
    class_pixels = _read_pixels(folder / "SegmentationClass" / f"{identity}.png")
    object_pixels = _read_pixels(folder / "SegmentationObject" / f"{identity}.png")
    if class_pixels is not None and object_pixels is not None and class_pixels.shape != object_pixels.shape:
        raise DatasetError(f"The masks of {identity} in SegmentationClass and SegmentationObject differ in size.")
    found = {}
    labels = [item.label for item in annotation.objects]
    for number, label in enumerate(labels):
        code = classes.index(label) + 1
        if object_pixels is not None:
            pixels = object_pixels == number + 1
            known = class_pixels[pixels & (class_pixels != _VOID)] if class_pixels is not None else np.array([code])
            agrees = known.size and np.bincount(known).argmax() == code
        elif class_pixels is not None and labels.count(label) == 1:
            pixels, agrees = class_pixels == code, True
        else:
            continue
        if agrees and pixels.any():
            found[number] = rasterize.from_pixels(pixels)
    return found


def _read_pixels(path: Path) -> NDArray[np.uint8] | None:
    if not path.is_file():
        return None
    try:
        with Image.open(path, formats=("PNG",)) as image:
            if image.mode not in ("P", "L"):
                raise DatasetError(f"{path} is not a palette image with a number for each pixel.")
            return np.asarray(image)
    except (OSError, SyntaxError, ValueError, UnidentifiedImageError, Image.DecompressionBombError) as error:
        raise DatasetError(f"{path} cannot be read: {error}.") from None


def _add_rows(
    builder: DatasetBuilder,
    annotation: _Annotation,
    marks: dict[str, int],
    masks: dict[int, RunLengths],
    difficult: str,
    locations: str,
) -> None:
    """Add the rows of an image: its objects, present labels without an object, and absent labels."""
    state = {label: _state(mark, difficult) for label, mark in marks.items()}
    located = set()
    if locations != "none":
        for number, item in enumerate(annotation.objects):
            if state[item.label] is not False:
                columns = masks[number].columns() if number in masks else {"kind": "box"}
                columns = {"flags": list(item.flags) or None, **item.box, **columns}
                builder.add_row(annotation.name, item.label, state[item.label], **columns)
                located.add(item.label)
    for label, mark in marks.items():
        if mark >= 0 and label not in located:
            builder.add_row(annotation.name, label, state[label], flags=[_DIFFICULT] if mark == 0 else None)
    builder.mark_rest_absent(annotation.name, [label for label, mark in marks.items() if mark >= 0])


def write(
    dataset: Dataset,
    target: str | os.PathLike[str],
    *,
    unknown: str = "refuse",
    masks: str = "refuse",
    progress: Progress = SILENT,
) -> None:
    """Write Annotations and ImageSets; images stay where they are.

    Classes are read back in alphabetical order. Sources, times and costs are not written, and of the flags only
    `difficult`, `truncated` and `occluded`.

    Args:
        dataset: with splits among train, val and test.
        target: the folder to write into, the counterpart of VOC2012.
        unknown: `refuse`, or `absent` to write unknown labels as absent.
        masks: `refuse`, or `box` to write masks as their boxes.
        progress: told about the images.

    Raises:
        DatasetError: the format cannot express what the dataset holds; nothing is written.
    """
    folder = Path(target)
    prepared = []
    identities: dict[str, str] = {}
    writer.require_splits(dataset, _SPLITS, "VOC")
    for split in dataset.splits:
        labels = dataset.labels(split)
        writer.require_complete(labels, unknown, "VOC", split)
        kinds = writer.location_kinds(masks)
        prepared.append((split, labels, list(_iter_annotations(dataset, split, labels, kinds))))
        for name in dataset.names(dataset.split(split)):
            if identities.setdefault(_image_id(name), name) != name:
                raise DatasetError(
                    f"VOC identifies images by their name without suffix, but {name} and another one share it."
                )
    if bad := next((name for name in dataset.classes if "/" in name), None):
        raise DatasetError(
            f"VOC has a file for each class, but '{bad}' cannot be part of a file name; rename the class."
        )
    main, difficult = folder / "ImageSets" / "Main", _difficult_pairs(dataset)
    with progress.bar("Writing annotations", len(dataset), "images") as bar:
        for split, labels, annotations in prepared:
            ids = [_image_id(annotation.name) for annotation in annotations]
            _write_lines(main / f"{split}.txt", ids)
            for code, label in enumerate(dataset.classes):
                marks = (
                    _mark(writer.label_state(labels, position, code), (annotation.name, label) in difficult)
                    for position, annotation in enumerate(annotations)
                )
                lines = (f"{identity} {mark:2d}" for identity, mark in zip(ids, marks, strict=True))
                _write_lines(main / f"{label}_{split}.txt", lines)
            for identity, annotation in zip(ids, annotations, strict=True):
                _write_xml(folder, identity, annotation)
                bar.advance()


def _iter_annotations(
    dataset: Dataset, split: str, labels: LabelMatrix, kinds: tuple[str, ...]
) -> Iterator[_Annotation]:
    """Iterate over the images of a split, with their objects."""
    images = dataset.images.take(dataset.split(split)).to_pylist()
    objects_of: list[list[_Object]] = [[] for _ in images]
    for location in writer.iter_locations(dataset, split, labels, kinds, "VOC"):
        flags = tuple(flag for flag in _FLAGS if flag in (location.row["flags"] or ()))
        box = {side: location.row[side] for side in "xywh"}
        objects_of[location.image].append(_Object(dataset.classes[location.label], flags, box))
    for image, objects in zip(images, objects_of, strict=True):
        if objects and None in (image["width"], image["height"]):
            raise DatasetError(f"Image {image['image']} has no width and height, but boxes of VOC are in pixels.")
        yield _Annotation(image["image"], image["width"], image["height"], tuple(objects))


def _image_id(name: str) -> str:
    """Return the path of an image without suffix, and without JPEGImages if it is there."""
    return PurePosixPath(name.removeprefix("JPEGImages/")).with_suffix("").as_posix()


def _difficult_pairs(dataset: Dataset) -> set[tuple[str, str]]:
    """Return the images and labels that are absent because all objects were difficult."""
    found: set[tuple[str, str]] = set()
    for batch in dataset.scan(["image", "label", "present", "kind", "flags"]):
        rows: list[dict[str, Any]] = batch.filter(batch["flags"].is_valid()).to_pylist()
        found |= {
            (row["image"], row["label"])
            for row in rows
            if row["present"] is False and row["kind"] == "image" and _DIFFICULT in row["flags"]
        }
    return found


def _mark(state: int, difficult: bool) -> int:
    if state == POSITIVE:
        return 1
    return 0 if difficult and state == NEGATIVE else -1


def _write_lines(path: Path, lines: Iterable[str]) -> None:
    with atomic_write(path, sync=False) as file:
        file.writelines(f"{line}\n".encode() for line in lines)


def _write_xml(folder: Path, identity: str, annotation: _Annotation) -> None:
    root = ElementTree.Element("annotation")
    image = PurePosixPath(annotation.name)
    _add_element(root, "folder", "VOC2012" if image.parts[0] == "JPEGImages" else image.parent.as_posix())
    _add_element(root, "filename", image.name)
    if annotation.width is not None and annotation.height is not None:
        size = ElementTree.SubElement(root, "size")
        for side, length in (("width", annotation.width), ("height", annotation.height), ("depth", 3)):
            _add_element(size, side, length)
    for item in annotation.objects:
        element = ElementTree.SubElement(root, "object")
        _add_element(element, "name", item.label)
        for flag in ("truncated", "occluded"):
            _add_element(element, flag, int(flag in item.flags))
        box = ElementTree.SubElement(element, "bndbox")
        for corner, value in _corners(item.box, annotation).items():
            _add_element(box, corner, int(value) if value.is_integer() else value)
        _add_element(element, "difficult", int(_DIFFICULT in item.flags))
    ElementTree.indent(root, "\t")
    with atomic_write(folder / "Annotations" / f"{identity}.xml", sync=False) as file:
        file.write(ElementTree.tostring(root, encoding="utf-8") + b"\n")


def _corners(box: dict[str, float], annotation: _Annotation) -> dict[str, float]:
    """Return the corners of a box in pixels, counted from 1."""
    assert annotation.width is not None
    assert annotation.height is not None
    return {
        "xmin": (box["x"] - box["w"] / 2) * annotation.width + 1,
        "ymin": (box["y"] - box["h"] / 2) * annotation.height + 1,
        "xmax": (box["x"] + box["w"] / 2) * annotation.width,
        "ymax": (box["y"] + box["h"] / 2) * annotation.height,
    }


def _add_element(parent: ElementTree.Element, name: str, value: Any) -> None:
    ElementTree.SubElement(parent, name).text = str(value)
