"""CVAT for images 1.1: one XML file with tags, boxes, points, polygons and masks.

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
"""

from __future__ import annotations

import math
import os
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from tagfill.annotations import Dataset
from tagfill.annotations.image_root import image_root
from tagfill.errors import DatasetError, one_of
from tagfill.formats import image_files, masks, unsaid
from tagfill.formats.collecting import Collector
from tagfill.formats.cvat_elements import Image, Shape, Target, images
from tagfill.formats.cvat_writing import PRESENT, STATES, write
from tagfill.progress import SILENT, Progress

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
        absent_means = unsaid.reading(
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
        mask = masks.from_segmentation([flat], image.height, image.width) if polygons == "mask" else None
        yield box if mask is None else box | mask.columns()
    else:
        x, y, width, height = (int(given[side]) for side in ("left", "top", "width", "height"))
        pixels = _pixels(given["rle"], x, y, width, height, image)
        yield _box(x, y, x + width, y + height, image) | masks.from_pixels(pixels).columns()


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
    masks.require_raster(image.height, image.width)
    runs = [int(run) for run in text.split(",")]
    inside = left >= 0 and top >= 0 and left + width <= image.width and top + height <= image.height
    if not inside or min(runs) < 0 or sum(runs) != width * height:
        raise ValueError("its run lengths do not fill a rectangle within the image")
    pixels = np.zeros((image.height, image.width), dtype=bool)
    values = np.repeat(np.arange(len(runs)) % 2 == 1, runs)
    pixels[top : top + height, left : left + width] = values.reshape(height, width)
    return pixels
