"""PASCAL VOC: XML files with boxes, and lists that mark each class of each image as 1, -1 or 0 (difficult).

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

import os
from collections.abc import Iterator
from pathlib import Path, PurePosixPath
from typing import Any

from tagfill.annotations import NEGATIVE, POSITIVE, Dataset, LabelMatrix
from tagfill.errors import DatasetError, one_of
from tagfill.formats import archives, unsaid, voc_files, voc_masks, writable
from tagfill.formats.collecting import Collector
from tagfill.formats.voc_files import Photo, Thing
from tagfill.progress import SILENT, Progress

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
    folder = voc_files.find(_unpacked(Path(source), extract_to, progress))
    lists = voc_files.image_lists(folder)
    photos = _read_photos(folder, lists, progress)
    listed = voc_files.class_names(folder, lists)
    classes = listed or tuple(sorted({thing.label for photo in photos.values() for thing in photo.things}))
    collector = Collector(folder.name.lower(), folder, classes, source="voc")
    for split, ids in lists.items():
        marks = {label: voc_files.read_marks(folder, label, split, ids) for label in listed}
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
    writable.require_splits(dataset, voc_files.SPLITS, "VOC")
    for split in dataset.splits:
        labels = dataset.labels(split)
        unsaid.complete(labels, unknown, "VOC", split)
        prepared.append((split, labels, list(_photos(dataset, split, labels, writable.box_kinds(masks)))))
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
            voc_files.write_lines(main / f"{split}.txt", ids)
            for code, label in enumerate(dataset.classes):
                marks = (
                    _mark(writable.state(labels, place, code), (photo.name, label) in doubtful)
                    for place, photo in enumerate(photos)
                )
                lines = (f"{identity} {mark:2d}" for identity, mark in zip(ids, marks, strict=True))
                voc_files.write_lines(main / f"{label}_{split}.txt", lines)
            for identity, photo in zip(ids, photos, strict=True):
                voc_files.write_photo(folder, identity, photo)
                bar.advance()


def _unpacked(source: Path, extract_to: str | os.PathLike[str] | None, progress: Progress) -> Path:
    if not archives.is_archive(source):
        return source
    if extract_to is None:
        raise DatasetError(f"{source} is an archive; say where to unpack it with extract_to.")
    return archives.unpack(source, Path(extract_to), progress)


def _read_photos(folder: Path, lists: dict[str, list[str]], progress: Progress) -> dict[str, Photo]:
    photos = {}
    with progress.bar("Reading annotations", sum(map(len, lists.values())), "images") as bar:
        for ids in lists.values():
            for identity in ids:
                photos[identity] = voc_files.read_photo(folder, identity)
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
        masks = voc_masks.read(folder, identity, photo, collector.classes) if locations == "mask" else {}
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
    for place in writable.locations(dataset, split, labels, kinds, "VOC"):
        flags = tuple(flag for flag in voc_files.FLAGS if flag in (place.row["flags"] or ()))
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
