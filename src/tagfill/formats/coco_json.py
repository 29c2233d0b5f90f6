"""The categories and images of a COCO-style JSON file.

The annotations of a COCO-style JSON file: one object each, with a box, polygons or run lengths.
"""

from __future__ import annotations

from array import array
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Any

import numpy as np

from tagfill.errors import DatasetError
from tagfill.formats import rasterize
from tagfill.formats.json_stream import JsonFile, shown
from tagfill.formats.reader import Collector
from tagfill.progress import SILENT, Progress

_LONGEST_SIDE = 2**31 - 1


@dataclass(frozen=True)
class Categories:
    """The classes of a file, in its order.

    Attributes:
        names: distinct; where two categories share a name, their ids follow in brackets.
        code: position of each category id, which may have gaps.
        parents: `supercategory` of each, if there is one.
    """

    names: tuple[str, ...]
    code: dict[Any, int]
    parents: tuple[str | None, ...]


@dataclass(frozen=True)
class Pictures:
    """The images of a file, ids sorted as strings: the order of published partial-label splits.

    Attributes:
        names: path of each below the image root.
        widths: in pixels, None where the file does not say.
        heights: likewise.
        position: of each image id.
    """

    names: list[str]
    widths: list[int | None]
    heights: list[int | None]
    position: dict[Any, int]


def read_categories(file: JsonFile) -> Categories:
    """All categories."""
    ids, names, parents = [], [], []
    for number, item in enumerate(file.items("categories")):
        where = f"{file.path}, categories[{number}]"
        ids.append(_required(item, "id", where))
        names.append(str(_required(item, "name", where)))
        parents.append(None if item.get("supercategory") is None else text_of(item, "supercategory", where))
    if not ids:
        raise DatasetError(f"{file.path} lists no categories.")
    _refuse_repeats(ids, f"{file.path}: category id")
    code = {identity: position for position, identity in enumerate(ids)}
    return Categories(distinct(names, ids), code, tuple(parents))


def agreed_categories(files: Sequence[JsonFile]) -> Categories:
    """The categories of several files, which must be the same."""
    first, *others = [read_categories(file) for file in files]
    for file, other in zip(files[1:], others, strict=True):
        if other.names != first.names:
            raise DatasetError(
                f"{files[0].path} and {file.path} list different categories; import them as two datasets."
            )
        if other.code != first.code:
            raise DatasetError(
                f"{files[0].path} and {file.path} give the same categories different ids; import them as two datasets."
            )
    return first


def read_pictures(
    file: JsonFile,
    name_of: Callable[[dict[str, Any], str], str],
    progress: Progress = SILENT,
    *,
    visit: Callable[[Any, dict[str, Any]], None] | None = None,
) -> Pictures:
    """All images.

    Args:
        file: to read from.
        name_of: an image's path below the image root, from what the file says and the place where it does.
        progress: told about the bytes.
        visit: called with the id of each image and what else the file says about it.
    """
    found: list[tuple[Any, str, int | None, int | None]] = []
    for number, item in enumerate(file.items("images", f"Images of {file.path.name}", progress)):
        where = f"{file.path}, images[{number}]"
        identity = _required(item, "id", where)
        try:
            name = _below_root(name_of(item, where), where)
        except KeyError as missing:
            raise DatasetError(f"{where} has no {missing}.") from None
        width, height = (_side(item, key, f"{file.path}, image {shown(identity)}") for key in ("width", "height"))
        found.append((identity, name, width, height))
        if visit:
            visit(identity, item)
    if not found:
        raise DatasetError(f"{file.path} lists no images.")
    found.sort(key=lambda image: str(image[0]))
    ids, names, widths, heights = (list(column) for column in zip(*found, strict=True))
    _refuse_repeats(ids, f"{file.path}: image id")
    return Pictures(names, widths, heights, {identity: position for position, identity in enumerate(ids)})


def in_folder(folder: str) -> Callable[[dict[str, Any], str], str]:
    """How to find an image's path below the root: its file name, in this folder unless it names one itself."""

    def name_of(item: dict[str, Any], where: str) -> str:
        name = text_of(item, "file_name", where)
        return f"{folder}/{name}" if folder and "/" not in name else name

    return name_of


def text_of(item: dict[str, Any], key: str, where: str) -> str:
    """A value that has to be text; it is a KeyError if there is none."""
    text = item[key]
    if not isinstance(text, str):
        raise DatasetError(f"{where} has a {key} of {shown(text)}, which is not text.")
    return text


def distinct(names: Sequence[str], ids: Sequence[Any]) -> tuple[str, ...]:
    """The names, with the id in brackets behind those that occur more than once.

    >>> distinct(["bat", "cat", "bat"], [1, 2, 7])
    ('bat (1)', 'cat', 'bat (7)')
    """
    counts = Counter(names)
    return tuple(
        f"{name} ({identity})" if counts[name] > 1 else name for name, identity in zip(names, ids, strict=True)
    )


def _below_root(name: str, where: str) -> str:
    path = PurePosixPath(name)
    if not path.parts or path.is_absolute() or ".." in path.parts:
        raise DatasetError(f"{where}: {shown(name)} is not the path of an image below the image root.")
    return path.as_posix()


def _required(item: dict[str, Any], key: str, where: str) -> Any:
    value = item.get(key)
    if not isinstance(value, int | str) or isinstance(value, bool):
        found = f" but {shown(value)}" if key in item else ""
        raise DatasetError(f"{where} has no {key}{found}.")
    return value


def _side(item: dict[str, Any], key: str, where: str) -> int | None:
    side = item.get(key)
    if side is None:
        return None
    if not isinstance(side, int | float) or isinstance(side, bool) or not 1 <= side <= _LONGEST_SIDE or side % 1:
        raise DatasetError(f"{where} has a {key} of {shown(side)}; it must be a whole number of pixels, at least one.")
    return int(side)


def _refuse_repeats(ids: Sequence[Any], what: str) -> None:
    if len(set(ids)) < len(ids):
        repeated = next(identity for identity, count in Counter(ids).items() if count > 1)
        raise DatasetError(f"{what} {shown(repeated)} occurs twice; ids must be distinct.")


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
    x, w = _box_side(left / width, across / width)
    y, h = _box_side(top / height, down / height)
    return {"x": x, "y": y, "w": w, "h": h}


def _box_side(start: float, size: float) -> tuple[float, float]:
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
            mask = rasterize.from_segmentation(segmentation, height, width)
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
