"""The elements of an XML file of CVAT: images with their shapes, one at a time, whatever the size of the file.

CVAT for images 1.1: one XML file with tags, boxes, points, polygons and masks.

| in CVAT | here |
|---|---|
| tag | a label of the image |
| box, points | boxes, and a point each |
| polygon, mask | masks |
| occluded="1", attributes that are `true` | flags |
| source | source, as `cvat:manual` |
| subset | split |

A tag with the attribute `present` says its value: `true`, `false`, or `unsure` for "cannot tell"; that is how absent
labels are written. Files without it do not say whether the other labels of an image are absent: `absent_means` has to.
An image without any annotation counts as not looked at, because CVAT lists the images of unfinished jobs too;
`empty="absent"` reads it as showing nothing. Polylines, cuboids, ellipses and skeletons are left out, with a line that
counts them.

Writing XML files for CVAT.
"""

from __future__ import annotations

import math
import os
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from xml.etree import ElementTree
from xml.sax.saxutils import escape, quoteattr

import numpy as np

from tagfill.dataset import Dataset, masks
from tagfill.dataset.dataset import image_root
from tagfill.errors import DatasetError, one_of
from tagfill.formats import image_files, rasterize, reader, text_files
from tagfill.formats.export import ImageRows, by_image
from tagfill.formats.reader import Collector
from tagfill.io import atomic_write
from tagfill.progress import SILENT, Progress

_CHUNK = 1 << 18
_LONGEST_SIDE = 2**31 - 1
_SHAPES = ("tag", "box", "points", "polygon", "mask")
_LEFT_OUT = ("polyline", "cuboid", "ellipse", "skeleton")


@dataclass
class Shape:
    """An annotation: the kind and attributes of its element, and the attributes that its label has in CVAT."""

    kind: str
    attributes: dict[str, str]
    more: dict[str, str] = field(default_factory=dict)


@dataclass
class Image:
    """An image and everything drawn in it."""

    name: str
    subset: str | None
    width: int
    height: int
    shapes: list[Shape] = field(default_factory=list)


class Target:
    """Receives the elements of the file from the parser; finished images wait in `images`."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.images: list[Image] = []
        self.labels: list[str] = []
        self.left_out: Counter[str] = Counter()
        self._open: list[str] = []
        self._image: Image | None = None
        self._shape: Shape | None = None
        self._attribute = ""
        self._text: list[str] = []

    def start(self, tag: str, attributes: dict[str, str]) -> None:
        """An element begins."""
        if not self._open and tag != "annotations":
            raise DatasetError(f"{self.path} begins with <{tag}>, not with <annotations>; it is no file of CVAT.")
        if tag == "track":
            raise DatasetError(f"{self.path} is of a video; export the task as 'CVAT for images 1.1'.")
        if tag == "image":
            self._image = self._read_image(attributes)
        elif self._image is not None and tag in _SHAPES and self._shape is None:
            if "label" not in attributes:
                raise DatasetError(f"{self.path}, image {self._image.name}: a {tag} has no label; mend it.")
            self._shape = Shape(tag, attributes)
        elif self._image is not None and tag in _LEFT_OUT:
            self.left_out[tag] += 1
        elif tag == "attribute":
            self._attribute = attributes.get("name", "")
        self._open.append(tag)
        self._text = []

    def end(self, tag: str) -> None:
        """An element ends."""
        text = "".join(self._text).strip()
        self._open.pop()
        if tag == "image" and self._image is not None:
            self.images.append(self._image)
            self._image = None
        elif self._shape is not None and tag == "attribute":
            self._shape.more[self._attribute] = text
        elif self._shape is not None and self._image is not None and tag == self._shape.kind:
            self._image.shapes.append(self._shape)
            self._shape = None
        elif tag == "name" and self._open[-1:] == ["label"]:
            self.labels.append(text)
        self._text = []

    def data(self, text: str) -> None:
        """Text within an element, perhaps not all of it."""
        self._text.append(text)

    def doctype(self, name: str, public: str | None, system: str | None) -> None:
        """Refused: a document type can define entities that grow without bounds."""
        raise DatasetError(f"{self.path} declares a document type, which files of CVAT never do; it is not read.")

    def close(self) -> None:
        """Nothing is left to do."""

    def _read_image(self, attributes: dict[str, str]) -> Image:
        name = attributes.get("name", "")
        image_files.check_name(name, str(self.path))
        try:
            width, height = int(attributes["width"]), int(attributes["height"])
        except (KeyError, ValueError):
            width = height = 0
        if not (0 < width <= _LONGEST_SIDE and 0 < height <= _LONGEST_SIDE):
            raise DatasetError(f"{self.path}, image {name}: its width and height are not whole numbers above 0.")
        return Image(name, attributes.get("subset"), width, height)


def images(path: Path, progress: Progress, target: Target | None = None) -> Iterator[Image]:
    """The images of a file, one at a time."""
    target = target or Target(path)
    parser = ElementTree.XMLParser(target=target)
    size = text_files.needed(path, "annotations of CVAT").stat().st_size
    try:
        with path.open("rb") as file, progress.bar(f"Reading {path.name}", size, "B") as bar:
            while chunk := file.read(_CHUNK):
                parser.feed(chunk)
                yield from target.images
                target.images.clear()
                bar.advance(len(chunk))
            parser.close()
    except (ElementTree.ParseError, LookupError, ValueError) as error:  # the latter two for encodings
        raise DatasetError(f"{path} is not valid XML ({error}); export it anew.") from None


TITLE = "CVAT for images 1.1: XML with tags, boxes, points, polygons and masks"

__all__ = ["TITLE", "read", "write"]


def read(
    source: str | os.PathLike[str],
    *,
    root: str | os.PathLike[str] | None = None,
    absent_means: str | None = None,
    empty: str = "unlabelled",
    polygons: str = "mask",
    split: str = "train",
    progress: Progress = SILENT,
) -> Dataset:
    """Read an XML file of CVAT.

    Args:
        source: `annotations.xml`, or the folder that holds it.
        root: where the images are, a folder or a URL; the folder `images` beside the file if there is one, else the
            file's own.
        absent_means: what an annotated image's other labels are, `unknown` or `absent`; has to be said unless the file
            says itself what is absent.
        empty: images without any annotation are `unlabelled`, or show nothing with `absent`.
        polygons: they become a `mask`, or its `box`, or are `refuse`d.
        split: of images without a subset.
        progress: told about each part of the file.
    """
    path = Path(source)
    path = path / "annotations.xml" if path.is_dir() else path
    one_of("empty", empty, ["unlabelled", "absent"])
    one_of("polygons", polygons, ["mask", "box", "refuse"])
    survey = _Survey(path, progress)
    if absent_means is not None or not survey.outspoken:
        absent_means = reader.reading(
            absent_means, path, images=survey.images, classes=len(survey.classes), present=survey.present
        )
    if root is None:
        root = path.parent / "images" if (path.parent / "images").is_dir() else path.parent
    collector = Collector(path.parent.absolute().name, image_root(root), survey.classes, source="cvat")
    for image in images(path, progress):
        collector.add_image(image.name, image_files.split_of(image.subset or split), image.width, image.height)
        for shape in image.shapes:
            for columns in _columns(shape, image, polygons, path):
                collector.add(image.name, **columns)
        looked_at = absent_means == "absent" if image.shapes else empty == "absent"
        if looked_at:
            collector.add_absent(image.name, {shape.attributes["label"] for shape in image.shapes})
    for kind, count in sorted(survey.left_out.items()):
        progress.say(f"{path.name}: {count:,} {kind} shapes were left out; they have no counterpart here.")
    return collector.dataset()


class _Survey:
    """Classes and counts, from a first reading."""

    def __init__(self, path: Path, progress: Progress) -> None:
        self.images = self.present = 0
        self.outspoken = False
        self.left_out: Counter[str] = Counter()
        target = Target(path)
        seen: dict[str, None] = {}
        for image in images(path, progress, target):
            self.images += 1
            labels = {shape.attributes["label"] for shape in image.shapes if _state(shape, image, path)}
            self.present += len(labels)
            seen |= dict.fromkeys(shape.attributes["label"] for shape in image.shapes)
            self.outspoken |= any(PRESENT in shape.more for shape in image.shapes)
        self.left_out = target.left_out
        self.classes = list(dict.fromkeys([*target.labels, *sorted(seen)]))


def _state(shape: Shape, image: Image, path: Path) -> bool | None:
    """What a shape says; only tags can say anything but present."""
    word = shape.more.get(PRESENT, "true")
    if word not in STATES or (shape.kind != "tag" and word != "true"):
        raise DatasetError(
            f"{path}, image {image.name}: a {shape.kind} of '{shape.attributes['label']}' has {PRESENT}='{word}'; "
            f"tags know {', '.join(STATES)}, and shapes true only."
        )
    return STATES[word]


def _columns(shape: Shape, image: Image, polygons: str, path: Path) -> Iterator[dict[str, Any]]:
    """The rows of a shape: one, or one for each of its points."""
    occluded = shape.attributes.get("occluded", "0")
    if occluded not in ("0", "1"):
        where = f"{path}, image {image.name}"
        raise DatasetError(f"{where}: a {shape.kind} has occluded='{occluded[:40]}'; 0 or 1 is expected.")
    flags = ["occluded"] if occluded == "1" else []
    flags += [name for name, value in shape.more.items() if value == "true" and name != PRESENT]
    row: dict[str, Any] = {
        "label": shape.attributes["label"],
        "present": _state(shape, image, path),
        "flags": flags or None,
        "source": f"cvat:{shape.attributes['source']}" if "source" in shape.attributes else "cvat",
    }
    where = f"{path}, image {image.name}, {shape.kind} of '{row['label']}'"
    if shape.kind == "polygon" and polygons == "refuse":
        raise DatasetError(f"{where}: polygons are refused; polygons='mask' or 'box' reads them.")
    try:
        for place in _places(shape, image, polygons):
            yield {**row, **place}
    except (KeyError, ValueError) as error:
        problem = f"{type(error).__name__}: {error}"[:200]
        raise DatasetError(f"{where} cannot be read ({problem}); mend it.") from None


def _places(shape: Shape, image: Image, polygons: str) -> Iterator[dict[str, Any]]:
    given = shape.attributes
    if shape.kind == "tag":
        yield {}
    elif shape.kind == "box":
        left, top, right, bottom = (_number(given[side]) for side in ("xtl", "ytl", "xbr", "ybr"))
        yield _box(left, top, right, bottom, image)
    elif shape.kind == "points":
        for x, y in _corners(given["points"]):
            yield {"kind": "point", "x": x / image.width, "y": y / image.height}
    elif shape.kind == "polygon":
        corners = _corners(given["points"])
        xs, ys = zip(*corners, strict=True)
        box = _box(min(xs), min(ys), max(xs), max(ys), image)
        flat = [side for corner in corners for side in corner]
        mask = rasterize.from_segmentation([flat], image.height, image.width) if polygons == "mask" else None
        yield box if mask is None else box | mask.columns()
    else:
        x, y, width, height = (int(given[side]) for side in ("left", "top", "width", "height"))
        pixels = _pixels(given["rle"], x, y, width, height, image)
        yield _box(x, y, x + width, y + height, image) | rasterize.from_pixels(pixels).columns()


def _box(left: float, top: float, right: float, bottom: float, image: Image) -> dict[str, Any]:
    return {
        "kind": "box",
        "x": (left + right) / 2 / image.width,
        "y": (top + bottom) / 2 / image.height,
        "w": (right - left) / image.width,
        "h": (bottom - top) / image.height,
    }


def _corners(text: str) -> list[tuple[float, float]]:
    pairs = [pair.split(",") for pair in text.split(";")]
    return [(_number(x), _number(y)) for x, y in pairs]


def _number(text: str) -> float:
    number = float(text)
    if not math.isfinite(number):
        raise ValueError(f"'{text[:40]}' is no length")
    return number


def _pixels(
    text: str, left: int, top: int, width: int, height: int, image: Image
) -> np.ndarray[Any, np.dtype[np.bool_]]:
    """The raster of a mask: run lengths along the rows of its own rectangle, the first of background."""
    rasterize.require_raster(image.height, image.width)
    runs = [int(run) for run in text.split(",")]
    inside = left >= 0 and top >= 0 and left + width <= image.width and top + height <= image.height
    if not inside or min(runs) < 0 or sum(runs) != width * height:
        raise ValueError("its run lengths do not fill a rectangle within the image")
    pixels = np.zeros((image.height, image.width), dtype=bool)
    values = np.repeat(np.arange(len(runs)) % 2 == 1, runs)
    pixels[top : top + height, left : left + width] = values.reshape(height, width)
    return pixels


PRESENT = "present"
STATES = {"true": True, "false": False, "unsure": None}

_WORDS = {state: word for word, state in STATES.items()}


def write(dataset: Dataset, target: str | os.PathLike[str], *, progress: Progress = SILENT) -> None:
    """Write `annotations.xml` as "CVAT for images 1.1" imports it.

    Labels are defined with a select attribute `present`, so that tags can say absent and "cannot tell". Times and costs
    are not written. Of rows that contradict each other, those that were overruled are left out.

    Args:
        dataset: what to write; the sizes of images that it does not know are read from their files.
        target: the XML file.
        progress: told about each image.
    """
    path = Path(target)
    flags = _flags(dataset)
    with atomic_write(path) as file, progress.bar(f"Writing {path.name}", len(dataset), "images") as bar:
        file.write(_head(dataset, flags).encode())
        for number, entry in enumerate(by_image(dataset)):
            width, height = entry.size or image_files.size(dataset.root, entry.image)
            head = {"id": number, "name": entry.image, "subset": entry.split, "width": width, "height": height}
            file.write(f"  <image{_attributes(head)}>\n".encode())
            for line in _shapes(entry, width, height):
                file.write(f"    {line}\n".encode())
            file.write(b"  </image>\n")
            bar.advance()
        file.write(b"</annotations>\n")


def _head(dataset: Dataset, flags: Sequence[str]) -> str:
    """Everything before the images: the task and its labels."""
    present = _definition(PRESENT, "select", "true", list(STATES))
    attributes = present + "".join(_definition(flag, "checkbox", "false", ["false"]) for flag in flags)
    labels = "".join(
        f"        <label>\n          <name>{escape(label)}</name>\n          <type>any</type>\n          <attributes>\n"
        f"{attributes}          </attributes>\n        </label>\n"
        for label in dataset.classes
    )
    return (
        '<?xml version="1.0" encoding="utf-8"?>\n<annotations>\n  <version>1.1</version>\n  <meta>\n    <task>\n'
        f"      <name>{escape(dataset.name)}</name>\n      <size>{len(dataset)}</size>\n      <mode>annotation</mode>\n"
        f"      <labels>\n{labels}      </labels>\n    </task>\n  </meta>\n"
    )


def _definition(name: str, kind: str, default: str, values: list[str]) -> str:
    indent = " " * 12
    return (
        f"{indent}<attribute>\n{indent}  <name>{escape(name)}</name>\n{indent}  <mutable>False</mutable>\n"
        f"{indent}  <input_type>{kind}</input_type>\n{indent}  <default_value>{default}</default_value>\n"
        f"{indent}  <values>{chr(10).join(values)}</values>\n{indent}</attribute>\n"
    )


def _flags(dataset: Dataset) -> list[str]:
    """All flags but `occluded`, which CVAT has of its own."""
    found: set[str] = set()
    for batch in dataset.scan(["flags"]):
        found.update(flag for flags in batch["flags"].to_pylist() for flag in flags or [])
    if PRESENT in found:
        raise DatasetError(f"A flag is called '{PRESENT}', which CVAT files need for the state of tags; rename it.")
    return sorted(found - {"occluded"})


def _shapes(entry: ImageRows, width: int, height: int) -> Iterator[str]:
    for row in entry.rows:
        state = row["present"]
        if row["kind"] != "image" and not state:
            raise DatasetError(
                f"CVAT cannot say that a region does not show a label, but a {row['kind']} of {entry.image} says so of "
                f"'{row['label']}'; drop that row."
            )
        if entry.states.get(row["label"]) is not state:
            continue
        more = {flag: "true" for flag in row["flags"] or [] if flag != "occluded"}
        if row["kind"] == "image":
            more = {PRESENT: _WORDS[state], **more}
        tag, place = _place(row, width, height)
        source = (row["source"] or "").removeprefix("cvat:")
        given = {"label": row["label"], "source": source if source in ("manual", "auto", "semi-auto") else "manual"}
        if row["kind"] != "image" or "occluded" in (row["flags"] or []):
            given["occluded"] = str(int("occluded" in (row["flags"] or [])))
        content = "".join(
            f"<attribute name={quoteattr(name)}>{escape(value)}</attribute>" for name, value in more.items()
        )
        yield f"<{tag}{_attributes(given | place)}>{content}</{tag}>"


def _place(row: dict[str, Any], width: int, height: int) -> tuple[str, dict[str, Any]]:
    """The element's name, and where it is, in pixels."""
    if row["kind"] == "image":
        return "tag", {}
    if row["kind"] == "point":
        return "points", {"points": f"{row['x'] * width:.6f},{row['y'] * height:.6f}", "z_order": 0}
    if row["kind"] == "box":
        left, top = (row["x"] - row["w"] / 2) * width, (row["y"] - row["h"] / 2) * height
        right, bottom = (row["x"] + row["w"] / 2) * width, (row["y"] + row["h"] / 2) * height
        sides = {"xtl": left, "ytl": top, "xbr": right, "ybr": bottom}
        return "box", {name: f"{side:.6f}" for name, side in sides.items()} | {"z_order": 0}
    return "mask", _mask(row, width, height) | {"z_order": 0}


def _mask(row: dict[str, Any], width: int, height: int) -> dict[str, Any]:
    if (row["rle_width"], row["rle_height"]) != (width, height):
        raise DatasetError(
            f"The mask of '{row['label']}' in {row['image']} is {row['rle_width']}×{row['rle_height']}, but the image "
            f"is {width}×{height}; CVAT needs masks of the image's size."
        )
    try:
        pixels = masks.decode(row["rle"], height, width)
    except ValueError as problem:
        raise DatasetError(
            f"The run lengths of the mask of '{row['label']}' in {row['image']} {problem}; drop that row."
        ) from None
    rows, columns = np.flatnonzero(pixels.any(axis=1)), np.flatnonzero(pixels.any(axis=0))
    if not len(rows):
        raise DatasetError(f"The mask of '{row['label']}' in {row['image']} is empty; drop that row.")
    part = pixels[rows[0] : rows[-1] + 1, columns[0] : columns[-1] + 1]
    return {
        "rle": ", ".join(map(str, masks.runs_of(part.T).tolist())),  # CVAT goes along the rows
        "left": int(columns[0]),
        "top": int(rows[0]),
        "width": part.shape[1],
        "height": part.shape[0],
    }


def _attributes(values: dict[str, Any]) -> str:
    return "".join(f" {name}={quoteattr(str(value))}" for name, value in values.items())
