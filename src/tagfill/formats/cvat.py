"""CVAT for images 1.1: one XML file with tags, boxes, points, polygons and masks.

| in CVAT | here |
|---|---|
| tag | a label of the image |
| box, points | boxes, one point each |
| polygon, mask | masks |
| occluded="1", attributes that are `true` | flags |
| source | source, as `cvat:manual` |
| subset | split |

A tag with the attribute `present` says its state: `true`, `false`, or `unsure` for "cannot tell"; that is how absent
labels are written. Files without it do not say whether the other labels of an image are absent, so they require
`absent_means`. An image without any annotation counts as not annotated, because CVAT also lists the images of
unfinished jobs; `empty="absent"` reads it as showing nothing. Polylines, cuboids, ellipses and skeletons are left out,
with a message that counts them.
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
from numpy.typing import NDArray

from tagfill.dataset import Dataset, masks
from tagfill.dataset.dataset import image_root
from tagfill.deprecation import warn_renamed
from tagfill.errors import DatasetError, one_of
from tagfill.formats import image_files, rasterize, text_files
from tagfill.formats.dataset_builder import DatasetBuilder, resolve_absent_means
from tagfill.formats.writer import ImageRows, iter_images
from tagfill.io import atomic_write
from tagfill.progress import SILENT, Progress

TITLE = "CVAT for images 1.1: XML with tags, boxes, points, polygons and masks"

_PRESENT = "present"  # the attribute of a tag that holds its state
_STATES = {"true": True, "false": False, "unsure": None}
_WORDS = {state: word for word, state in _STATES.items()}
_SHAPES = ("tag", "box", "points", "polygon", "mask")
_SKIPPED_SHAPES = ("polyline", "cuboid", "ellipse", "skeleton")
_CHUNK = 1 << 18
_LONGEST_SIDE = 2**31 - 1


def read(
    source: str | os.PathLike[str],
    *,
    root: str | os.PathLike[str] | None = None,
    absent_means: str | None = None,
    empty: str = "unlabeled",
    polygons: str = "mask",
    split: str = "train",
    progress: Progress = SILENT,
) -> Dataset:
    """Read an XML file of CVAT.

    Args:
        source: `annotations.xml`, or the folder that holds it.
        root: where the images are, a folder or a URL; by default the folder `images` beside the file if there is one,
            else the folder of the file.
        absent_means: what the other labels of an annotated image are, `unknown` or `absent`; required unless the file
            says itself what is absent.
        empty: images without any annotation are `unlabeled`, or show nothing with `absent`.
        polygons: turn them into a `mask` or its `box`, or `refuse` them.
        split: of images without a subset.
        progress: told about the bytes read.

    Raises:
        DatasetError: `absent_means` is missing, or the file is damaged.
    """
    path = Path(source)
    path = path / "annotations.xml" if path.is_dir() else path
    if empty == "unlabelled":
        warn_renamed("empty='unlabelled'", "empty='unlabeled'")
        empty = "unlabeled"
    one_of("empty", empty, ["unlabeled", "absent"])
    one_of("polygons", polygons, ["mask", "box", "refuse"])
    summary = _summarize(path, progress)
    if absent_means is not None or not summary.states_absences:
        absent_means = resolve_absent_means(
            absent_means, path, images=summary.images, classes=len(summary.classes), present=summary.present
        )
    if root is None:
        root = path.parent / "images" if (path.parent / "images").is_dir() else path.parent
    builder = DatasetBuilder(path.parent.absolute().name, image_root(root), summary.classes, source="cvat")
    for image in _iter_images(path, _Parser(path), progress):
        builder.add_image(image.name, image_files.split_for_folder(image.subset or split), image.width, image.height)
        for shape in image.shapes:
            for columns in _shape_rows(shape, image, polygons, path):
                builder.add_row(image.name, **columns)
        exhaustive = absent_means == "absent" if image.shapes else empty == "absent"
        if exhaustive:
            builder.mark_rest_absent(image.name, {shape.label for shape in image.shapes})
    for kind, count in sorted(summary.skipped.items()):
        progress.say(f"{path.name}: {count:,} {kind} shapes were left out; they have no counterpart here.")
    return builder.build()


@dataclass
class _Shape:
    """An annotation: kind and XML attributes of its element, and the attributes that its label has in CVAT."""

    kind: str
    attributes: dict[str, str]
    label_attributes: dict[str, str] = field(default_factory=dict)

    @property
    def label(self) -> str:
        return self.attributes["label"]


@dataclass
class _Image:
    """An image and everything drawn in it."""

    name: str
    subset: str | None
    width: int
    height: int
    shapes: list[_Shape] = field(default_factory=list)


@dataclass
class _Summary:
    """Classes and counts, from a first pass over a file."""

    classes: list[str]
    images: int
    present: int
    states_absences: bool
    skipped: Counter[str]


def _summarize(path: Path, progress: Progress) -> _Summary:
    images = present = 0
    states_absences = False
    parser = _Parser(path)
    seen: dict[str, None] = {}
    for image in _iter_images(path, parser, progress):
        images += 1
        present += len({shape.label for shape in image.shapes if _state(shape, image, path)})
        seen |= dict.fromkeys(shape.label for shape in image.shapes)
        states_absences |= any(_PRESENT in shape.label_attributes for shape in image.shapes)
    classes = list(dict.fromkeys([*parser.labels, *sorted(seen)]))
    return _Summary(classes, images, present, states_absences, parser.skipped)


def _iter_images(path: Path, parser: _Parser, progress: Progress) -> Iterator[_Image]:
    """Iterate over the images of a file of any size; the parser gathers what else it says."""
    xml = ElementTree.XMLParser(target=parser)
    size = text_files.require_file(path, "annotations of CVAT").stat().st_size
    try:
        with path.open("rb") as file, progress.bar(f"Reading {path.name}", size, "B") as bar:
            while chunk := file.read(_CHUNK):
                xml.feed(chunk)
                yield from parser.images
                parser.images.clear()
                bar.advance(len(chunk))
            xml.close()
    except (ElementTree.ParseError, LookupError, ValueError) as error:  # the latter two for encodings
        raise DatasetError(f"{path} is not valid XML ({error}); export it again.") from None


class _Parser:
    """Receives the elements of a file from ElementTree; finished images wait in `images`."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.images: list[_Image] = []
        self.labels: list[str] = []
        self.skipped: Counter[str] = Counter()
        self._open: list[str] = []
        self._image: _Image | None = None
        self._shape: _Shape | None = None
        self._attribute = ""
        self._text: list[str] = []

    def start(self, tag: str, attributes: dict[str, str]) -> None:
        """An element begins."""
        if not self._open and tag != "annotations":
            raise DatasetError(f"{self.path} begins with <{tag}>, not with <annotations>; it is not a file of CVAT.")
        if tag == "track":
            raise DatasetError(f"{self.path} is of a video; export the task as 'CVAT for images 1.1'.")
        if tag == "image":
            self._image = self._start_image(attributes)
        elif self._image is not None and tag in _SHAPES and self._shape is None:
            if "label" not in attributes:
                raise DatasetError(f"{self.path}, image {self._image.name}: a {tag} has no label; add one.")
            self._shape = _Shape(tag, attributes)
        elif self._image is not None and tag in _SKIPPED_SHAPES:
            self.skipped[tag] += 1
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
            self._shape.label_attributes[self._attribute] = text
        elif self._shape is not None and self._image is not None and tag == self._shape.kind:
            self._image.shapes.append(self._shape)
            self._shape = None
        elif tag == "name" and self._open[-1:] == ["label"]:
            self.labels.append(text)
        self._text = []

    def data(self, text: str) -> None:
        """Text inside an element, perhaps not all of it."""
        self._text.append(text)

    def doctype(self, name: str, public: str | None, system: str | None) -> None:
        """Refuse document types, which can define entities that grow without bounds."""
        raise DatasetError(f"{self.path} declares a document type, which files of CVAT never do; it is not read.")

    def close(self) -> None:
        """Do nothing at the end of the file."""

    def _start_image(self, attributes: dict[str, str]) -> _Image:
        name = attributes.get("name", "")
        image_files.check_image_path(name, str(self.path))
        try:
            width, height = int(attributes["width"]), int(attributes["height"])
        except (KeyError, ValueError):
            width = height = 0
        if not (0 < width <= _LONGEST_SIDE and 0 < height <= _LONGEST_SIDE):
            raise DatasetError(f"{self.path}, image {name}: its width and height are not whole numbers above 0.")
        return _Image(name, attributes.get("subset"), width, height)


def _state(shape: _Shape, image: _Image, path: Path) -> bool | None:
    """Return the state of a shape; only tags can be anything but present."""
    word = shape.label_attributes.get(_PRESENT, "true")
    if word not in _STATES or (shape.kind != "tag" and word != "true"):
        raise DatasetError(
            f"{path}, image {image.name}: a {shape.kind} of '{shape.label}' has {_PRESENT}='{word}'; tags can have "
            f"{', '.join(_STATES)}, and shapes true only."
        )
    return _STATES[word]


def _shape_rows(shape: _Shape, image: _Image, polygons: str, path: Path) -> Iterator[dict[str, Any]]:
    """Iterate over the rows of a shape: one, or one for each of its points."""
    occluded = shape.attributes.get("occluded", "0")
    if occluded not in ("0", "1"):
        where = f"{path}, image {image.name}"
        raise DatasetError(f"{where}: a {shape.kind} has occluded='{occluded[:40]}'; 0 or 1 is expected.")
    flags = ["occluded"] if occluded == "1" else []
    flags += [name for name, value in shape.label_attributes.items() if value == "true" and name != _PRESENT]
    row: dict[str, Any] = {
        "label": shape.label,
        "present": _state(shape, image, path),
        "flags": flags or None,
        "source": f"cvat:{shape.attributes['source']}" if "source" in shape.attributes else "cvat",
    }
    where = f"{path}, image {image.name}, {shape.kind} of '{shape.label}'"
    if shape.kind == "polygon" and polygons == "refuse":
        raise DatasetError(f"{where}: polygons are refused; polygons='mask' or 'box' reads them.")
    try:
        for columns in _location_columns(shape, image, polygons):
            yield {**row, **columns}
    except (KeyError, ValueError) as error:
        problem = f"{type(error).__name__}: {error}"[:200]
        raise DatasetError(f"{where} cannot be read ({problem}); correct it.") from None


def _location_columns(shape: _Shape, image: _Image, polygons: str) -> Iterator[dict[str, Any]]:
    given = shape.attributes
    if shape.kind == "tag":
        yield {}
    elif shape.kind == "box":
        left, top, right, bottom = (_parse_length(given[side]) for side in ("xtl", "ytl", "xbr", "ybr"))
        yield _box_columns(left, top, right, bottom, image)
    elif shape.kind == "points":
        for x, y in _parse_points(given["points"]):
            yield {"kind": "point", "x": x / image.width, "y": y / image.height}
    elif shape.kind == "polygon":
        corners = _parse_points(given["points"])
        xs, ys = zip(*corners, strict=True)
        box = _box_columns(min(xs), min(ys), max(xs), max(ys), image)
        flat = [side for corner in corners for side in corner]
        mask = rasterize.from_segmentation([flat], image.height, image.width) if polygons == "mask" else None
        yield box if mask is None else box | mask.columns()
    else:
        x, y, width, height = (int(given[side]) for side in ("left", "top", "width", "height"))
        pixels = _decode_mask(given["rle"], x, y, width, height, image)
        yield _box_columns(x, y, x + width, y + height, image) | rasterize.from_pixels(pixels).columns()


def _box_columns(left: float, top: float, right: float, bottom: float, image: _Image) -> dict[str, Any]:
    return {
        "kind": "box",
        "x": (left + right) / 2 / image.width,
        "y": (top + bottom) / 2 / image.height,
        "w": (right - left) / image.width,
        "h": (bottom - top) / image.height,
    }


def _parse_points(text: str) -> list[tuple[float, float]]:
    pairs = [pair.split(",") for pair in text.split(";")]
    return [(_parse_length(x), _parse_length(y)) for x, y in pairs]


def _parse_length(text: str) -> float:
    number = float(text)
    if not math.isfinite(number):
        raise ValueError(f"'{text[:40]}' is not a length")
    return number


def _decode_mask(text: str, left: int, top: int, width: int, height: int, image: _Image) -> NDArray[np.bool_]:
    """Return the pixels of a mask: run lengths along the rows of its own rectangle, background first."""
    rasterize.check_raster_size(image.height, image.width)
    runs = [int(run) for run in text.split(",")]
    inside = left >= 0 and top >= 0 and left + width <= image.width and top + height <= image.height
    if not inside or min(runs) < 0 or sum(runs) != width * height:
        raise ValueError("its run lengths do not fill a rectangle within the image")
    pixels = np.zeros((image.height, image.width), dtype=bool)
    values = np.repeat(np.arange(len(runs)) % 2 == 1, runs)
    pixels[top : top + height, left : left + width] = values.reshape(height, width)
    return pixels


def write(dataset: Dataset, target: str | os.PathLike[str], *, progress: Progress = SILENT) -> None:
    """Write `annotations.xml` as "CVAT for images 1.1" imports it.

    Labels are defined with a select attribute `present`, so that tags can be absent or "cannot tell". Times and costs
    are not written. Rows that newer ones overrule are left out.

    Args:
        dataset: to be written; the sizes of images that it does not know are read from their files.
        target: the XML file.
        progress: told about each image.

    Raises:
        DatasetError: the format cannot express what the dataset holds; nothing is written.
    """
    path = Path(target)
    flags = _list_flags(dataset)
    with atomic_write(path) as file, progress.bar(f"Writing {path.name}", len(dataset), "images") as bar:
        file.write(_head(dataset, flags).encode())
        for number, entry in enumerate(iter_images(dataset)):
            width, height = entry.size or image_files.read_size(dataset.root, entry.image)
            head = {"id": number, "name": entry.image, "subset": entry.split, "width": width, "height": height}
            file.write(f"  <image{_xml_attributes(head)}>\n".encode())
            for line in _shape_elements(entry, width, height):
                file.write(f"    {line}\n".encode())
            file.write(b"  </image>\n")
            bar.advance()
        file.write(b"</annotations>\n")


def _list_flags(dataset: Dataset) -> list[str]:
    """Return all flags except `occluded`, which CVAT has itself."""
    found: set[str] = set()
    for batch in dataset.scan(["flags"]):
        found.update(flag for flags in batch["flags"].to_pylist() for flag in flags or [])
    if _PRESENT in found:
        raise DatasetError(f"A flag is called '{_PRESENT}', which CVAT files need for the state of tags; rename it.")
    return sorted(found - {"occluded"})


def _head(dataset: Dataset, flags: Sequence[str]) -> str:
    """Return everything before the images: the task and its labels."""
    present = _attribute_definition(_PRESENT, "select", "true", list(_STATES))
    attributes = present + "".join(_attribute_definition(flag, "checkbox", "false", ["false"]) for flag in flags)
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


def _attribute_definition(name: str, kind: str, default: str, values: list[str]) -> str:
    indent = " " * 12
    return (
        f"{indent}<attribute>\n{indent}  <name>{escape(name)}</name>\n{indent}  <mutable>False</mutable>\n"
        f"{indent}  <input_type>{kind}</input_type>\n{indent}  <default_value>{default}</default_value>\n"
        f"{indent}  <values>{chr(10).join(values)}</values>\n{indent}</attribute>\n"
    )


def _shape_elements(entry: ImageRows, width: int, height: int) -> Iterator[str]:
    """Iterate over the elements of an image."""
    for row in entry.rows:
        state = row["present"]
        if row["kind"] != "image" and not state:
            raise DatasetError(
                f"CVAT cannot express that a region does not show a label, but a {row['kind']} of {entry.image} says "
                f"so about '{row['label']}'; drop that row."
            )
        if entry.states.get(row["label"]) is not state:
            continue
        label_attributes = {flag: "true" for flag in row["flags"] or [] if flag != "occluded"}
        if row["kind"] == "image":
            label_attributes = {_PRESENT: _WORDS[state], **label_attributes}
        tag, location = _location_attributes(row, width, height)
        source = (row["source"] or "").removeprefix("cvat:")
        given = {"label": row["label"], "source": source if source in ("manual", "auto", "semi-auto") else "manual"}
        if row["kind"] != "image" or "occluded" in (row["flags"] or []):
            given["occluded"] = str(int("occluded" in (row["flags"] or [])))
        content = "".join(
            f"<attribute name={quoteattr(name)}>{escape(value)}</attribute>" for name, value in label_attributes.items()
        )
        yield f"<{tag}{_xml_attributes(given | location)}>{content}</{tag}>"


def _location_attributes(row: dict[str, Any], width: int, height: int) -> tuple[str, dict[str, Any]]:
    """Return the name of the element and its location in pixels."""
    if row["kind"] == "image":
        return "tag", {}
    if row["kind"] == "point":
        return "points", {"points": f"{row['x'] * width:.6f},{row['y'] * height:.6f}", "z_order": 0}
    if row["kind"] == "box":
        left, top = (row["x"] - row["w"] / 2) * width, (row["y"] - row["h"] / 2) * height
        right, bottom = (row["x"] + row["w"] / 2) * width, (row["y"] + row["h"] / 2) * height
        sides = {"xtl": left, "ytl": top, "xbr": right, "ybr": bottom}
        return "box", {name: f"{side:.6f}" for name, side in sides.items()} | {"z_order": 0}
    return "mask", _mask_attributes(row, width, height) | {"z_order": 0}


def _mask_attributes(row: dict[str, Any], width: int, height: int) -> dict[str, Any]:
    where = f"The mask of '{row['label']}' in {row['image']}"
    if (row["rle_width"], row["rle_height"]) != (width, height):
        raise DatasetError(
            f"{where} is {row['rle_width']}×{row['rle_height']}, but the image is {width}×{height}; CVAT needs masks "
            "of the image's size."
        )
    try:
        pixels = masks.decode(row["rle"], height, width)
    except ValueError as problem:
        raise DatasetError(f"{where} has run lengths that {problem}; drop that row.") from None
    rows, columns = np.flatnonzero(pixels.any(axis=1)), np.flatnonzero(pixels.any(axis=0))
    if not len(rows):
        raise DatasetError(f"{where} is empty; drop that row.")
    part = pixels[rows[0] : rows[-1] + 1, columns[0] : columns[-1] + 1]
    return {
        "rle": ", ".join(map(str, masks.runs_of(part.T).tolist())),  # CVAT goes along the rows
        "left": int(columns[0]),
        "top": int(rows[0]),
        "width": part.shape[1],
        "height": part.shape[0],
    }


def _xml_attributes(values: dict[str, Any]) -> str:
    return "".join(f" {name}={quoteattr(str(value))}" for name, value in values.items())
