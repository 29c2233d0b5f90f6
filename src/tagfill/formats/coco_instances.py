"""The annotations of a COCO-style JSON file: one object each, with a box, polygons or run lengths."""

from __future__ import annotations

from array import array
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from tagfill.errors import DatasetError
from tagfill.formats import masks
from tagfill.formats.coco_tables import Categories, Pictures
from tagfill.formats.collecting import Collector
from tagfill.formats.json_sections import JsonFile, shown
from tagfill.progress import SILENT, Progress

LOCATIONS = ("mask", "box", "none")
IMAGES = ("annotated", "all")
CROWD = {"iscrowd": "crowd"}
_ROUNDING = 1e-6  # boxes may leave the image by this much before they are cut
_FAR = 1e9  # pixels, more than any image has


class Shown:
    """The classes that annotations show in each image: pairs, kept as numbers."""

    def __init__(self, pictures: Pictures, categories: Categories) -> None:
        self._pictures, self._names = pictures, categories.names
        self._keys = array("q")

    def add(self, position: int, code: int) -> None:
        """An image shows a class; saying it twice is fine."""
        self._keys.append(position * len(self._names) + code)

    def per_image(self) -> Iterator[tuple[int, list[str]]]:
        """Each image with the classes that it shows, maybe none."""
        width, size = len(self._names), len(self._pictures.names)
        keys = np.unique(np.frombuffer(self._keys, dtype=np.int64) if self._keys else np.empty(0, np.int64))
        starts = np.searchsorted(keys, np.arange(size + 1) * width).tolist()
        codes = (keys % width).tolist()
        for position in range(size):
            yield position, [self._names[code] for code in codes[starts[position] : starts[position + 1]]]

    def add_rows(self, collector: Collector) -> None:
        """A row for each image and class that it shows."""
        for position, labels in self.per_image():
            for label in labels:
                collector.add(self._pictures.names[position], label, True)


def collect(
    file: JsonFile,
    collector: Collector,
    pictures: Pictures,
    categories: Categories,
    *,
    locations: str = "mask",
    flags: Mapping[str, str] = CROWD,
    progress: Progress = SILENT,
) -> Shown:
    """Add a row for each annotation.

    Args:
        file: to read from.
        collector: gets the rows.
        pictures: the images of the file.
        categories: its classes.
        locations: `mask` keeps masks, and boxes where there is no mask; `box` keeps boxes; `none` keeps one row for
            each image and class.
        flags: the flag that a row gets for each key of an annotation that is 1.
        progress: told about the bytes.

    Returns:
        What the images show.
    """
    shows = Shown(pictures, categories)
    for item in file.items("annotations", f"Annotations of {file.path.name}", progress):
        add_one(file, item, collector, pictures, categories, shows, locations, flags)
    if locations == "none":
        shows.add_rows(collector)
    return shows


def add_one(
    file: JsonFile,
    item: dict[str, Any],
    collector: Collector,
    pictures: Pictures,
    categories: Categories,
    shows: Shown,
    locations: str,
    flags: Mapping[str, str] = CROWD,
) -> None:
    """Note what one annotation shows and, unless `locations` is `none`, add its row."""
    try:
        position, code = _find(item, "image_id", pictures.position), _find(item, "category_id", categories.code)
        shows.add(position, code)
        if locations != "none":
            columns = _location(item, pictures.widths[position], pictures.heights[position], locations)
            said = [flag for key, flag in flags.items() if _is_set(item, key)]
            collector.add(pictures.names[position], categories.names[code], True, flags=said or None, **columns)
    except LookupError as problem:
        raise DatasetError(f"{_where(file, item)} {problem.args[0]}.") from None
    except ValueError as problem:
        raise DatasetError(f"{_where(file, item)}: {problem}.") from None


def add_images(
    collector: Collector, pictures: Pictures, shows: Shown, split: str, *, images: str, exhaustive: bool
) -> None:
    """Add the images of a file in their order, and what they do not show.

    Args:
        collector: gets them.
        pictures: of the file.
        shows: what annotations show of them.
        split: that they belong to.
        images: `annotated` leaves out those without any annotation, `all` does not.
        exhaustive: whether a class without an annotation is verified absent.
    """
    for position, labels in shows.per_image():
        if labels or images == "all":
            collector.add_image(pictures.names[position], split, pictures.widths[position], pictures.heights[position])
            if exhaustive:
                collector.add_absent(pictures.names[position], labels)


def relative(box: Any, width: int | None, height: int | None) -> dict[str, float]:
    """Left, top, width and height in pixels as the centre and size of a row, cut where they leave the image."""
    if width is None or height is None:
        raise ValueError("its image has no width and height, which its location is relative to")
    if not (isinstance(box, list) and len(box) == 4 and all(map(_is_length, box))):
        raise ValueError("its bbox is not a list of left, top, width and height")
    left, top, across, down = box
    if across < 0 or down < 0:
        raise ValueError(f"its bbox is {across:g} × {down:g} pixels, but sizes are not negative")
    x, w = _side(left / width, across / width)
    y, h = _side(top / height, down / height)
    return {"x": x, "y": y, "w": w, "h": h}


def _side(start: float, size: float) -> tuple[float, float]:
    """Centre and size of one side of a box, inside of 0 and 1."""
    end = start + size
    if start < -_ROUNDING or end > 1 + _ROUNDING:
        start, end = min(max(start, 0.0), 1.0), min(max(end, 0.0), 1.0)
        size = end - start
    return start + size / 2, size


def _location(item: dict[str, Any], width: int | None, height: int | None, locations: str) -> dict[str, Any]:
    box, segmentation = item.get("bbox"), item.get("segmentation")
    if locations == "mask" or box is None:
        mask = None
        if segmentation and width is not None and height is not None:
            mask = masks.from_segmentation(segmentation, height, width)
        if mask is not None:
            around = relative(list(mask.box()) if box is None else box, width, height)
            return {**around, **(mask.columns() if locations == "mask" else {"kind": "box"})}
    return {} if box is None else {"kind": "box", **relative(box, width, height)}


def _find(item: dict[str, Any], key: str, known: Mapping[Any, int]) -> int:
    """The position of what an annotation refers to; a LookupError says what is wrong, as half a sentence."""
    if key not in item:
        raise LookupError(f"has no {key}")
    identity = item[key]
    if isinstance(identity, int | float | str) and not isinstance(identity, bool) and identity in known:
        return known[identity]
    what = "belongs to image {}, which is not among the images"
    if key == "category_id":
        what = "is of category {}, which is not among the categories"
    raise LookupError(what.format(shown(identity)))


def _is_set(item: dict[str, Any], key: str) -> bool:
    if item.get(key) not in (None, 0, 1):
        raise ValueError(f"its {key} is {shown(item[key])}, which is neither 0 nor 1")
    return bool(item.get(key))


def _is_length(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and -_FAR < value < _FAR


def _where(file: JsonFile, item: dict[str, Any]) -> str:
    return f"{file.path}, annotation {shown(item['id']) if 'id' in item else 'without an id'}"
