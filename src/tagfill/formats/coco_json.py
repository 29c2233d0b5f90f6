"""What readers of COCO-style JSON files share: categories, images, and annotations with boxes, polygons or run lengths.

COCO, COCO panoptic, LVIS and Objects365 are such files. A reader opens them, calls `read_shared_categories`, and then
lets a `CocoFileReader` per file add images and rows to a dataset builder.
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
from tagfill.formats.dataset_builder import DatasetBuilder
from tagfill.formats.json_stream import JsonFile, short_json
from tagfill.progress import SILENT, Progress

LOCATIONS = ("mask", "box", "none")
IMAGES = ("annotated", "all")
CROWD = {"iscrowd": "crowd"}

_LONGEST_SIDE = 2**31 - 1
_ROUNDING = 1e-6  # boxes may leave the image by this much before they are cut
_FAR = 1e9  # pixels, more than any image has


@dataclass(frozen=True)
class Categories:
    """The classes of a file, in its order.

    Attributes:
        names: distinct; where two categories share a name, their ids follow in parentheses.
        code: position of each category id; ids may have gaps.
        parents: `supercategory` of each, if there is one.
    """

    names: tuple[str, ...]
    code: dict[Any, int]
    parents: tuple[str | None, ...]


@dataclass(frozen=True)
class CocoImages:
    """The images of a file, sorted by their ids as strings: the order of published partial-label splits.

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


def read_shared_categories(files: Sequence[JsonFile]) -> Categories:
    """Read the categories of several files, which must be the same."""
    first, *others = [_read_categories(file) for file in files]
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


class CocoFileReader:
    """Reads one file into a dataset builder: its images on construction, then its annotations.

    Args:
        file: to read.
        builder: gets images and rows.
        categories: of the file.
        path_of: returns the path of an image below the root, given its entry and where it stands.
        locations: `mask` keeps masks, and boxes where there is no mask; `box` keeps boxes; `none` keeps one row per
            image and class.
        flags: the flag that a row gets for each key of an annotation that is 1.
        visit: called with the id and the entry of each image.
        progress: told about the bytes read.
    """

    def __init__(
        self,
        file: JsonFile,
        builder: DatasetBuilder,
        categories: Categories,
        path_of: Callable[[dict[str, Any], str], str],
        *,
        locations: str,
        flags: Mapping[str, str] = CROWD,
        visit: Callable[[Any, dict[str, Any]], None] | None = None,
        progress: Progress = SILENT,
    ) -> None:
        self._file, self._builder, self._categories, self._progress = file, builder, categories, progress
        self._locations, self._flags = locations, flags
        self._present = array("q")  # image × L + class of each annotation, with repetitions
        self.images = _read_images(file, path_of, visit, progress)

    def add_annotations(self) -> None:
        """Add a row per annotation, or per image and class if `locations` is `none`."""
        for item in self._file.items("annotations", f"Annotations of {self._file.path.name}", self._progress):
            self.add_annotation(item)
        self.add_present_labels()

    def add_annotation(self, item: dict[str, Any]) -> None:
        """Note which label an annotation makes present and, unless `locations` is `none`, add its row."""
        images, categories = self.images, self._categories
        try:
            position, code = _find(item, "image_id", images.position), _find(item, "category_id", categories.code)
            self._present.append(position * len(categories.names) + code)
            if self._locations != "none":
                columns = _location(item, images.widths[position], images.heights[position], self._locations)
                flags = [flag for key, flag in self._flags.items() if _is_set(item, key)]
                self._builder.add_row(
                    images.names[position], categories.names[code], True, flags=flags or None, **columns
                )
        except LookupError as problem:
            raise DatasetError(f"{self._where(item)} {problem.args[0]}.") from None
        except ValueError as problem:
            raise DatasetError(f"{self._where(item)}: {problem}.") from None

    def add_present_labels(self) -> None:
        """Add a row per image and present class if `locations` is `none`; otherwise annotations have rows already."""
        if self._locations == "none":
            for position, labels in self.present_labels():
                for label in labels:
                    self._builder.add_row(self.images.names[position], label, True)

    def present_labels(self) -> Iterator[tuple[int, list[str]]]:
        """Iterate over the position of each image and the classes that annotations make present in it."""
        names, size = self._categories.names, len(self.images.names)
        keys = np.unique(np.frombuffer(self._present, dtype=np.int64) if self._present else np.empty(0, np.int64))
        starts = np.searchsorted(keys, np.arange(size + 1) * len(names)).tolist()
        codes = (keys % len(names)).tolist()
        for position in range(size):
            yield position, [names[code] for code in codes[starts[position] : starts[position + 1]]]

    def add_images(self, split: str, *, images: str, exhaustive: bool) -> None:
        """Add the images in their order, and their absent labels.

        Args:
            split: that they belong to.
            images: `annotated` leaves out images without any annotation, `all` does not.
            exhaustive: whether a class without an annotation is verified absent.
        """
        for position, labels in self.present_labels():
            if labels or images == "all":
                name = self.images.names[position]
                self._builder.add_image(name, split, self.images.widths[position], self.images.heights[position])
                if exhaustive:
                    self._builder.mark_rest_absent(name, labels)

    def _where(self, item: dict[str, Any]) -> str:
        return f"{self._file.path}, annotation {short_json(item['id']) if 'id' in item else 'without an id'}"


def path_in_folder(folder: str) -> Callable[[dict[str, Any], str], str]:
    """Return a `path_of` that puts an image into this folder, unless its file name has a folder itself."""

    def path_of(item: dict[str, Any], where: str) -> str:
        name = require_text(item, "file_name", where)
        return f"{folder}/{name}" if folder and "/" not in name else name

    return path_of


def require_text(item: dict[str, Any], key: str, where: str) -> str:
    """Return a value that has to be text; a KeyError if there is none."""
    text = item[key]
    if not isinstance(text, str):
        raise DatasetError(f"{where} has a {key} of {short_json(text)}, which is not text.")
    return text


def unique_names(names: Sequence[str], ids: Sequence[Any]) -> tuple[str, ...]:
    """Return the names, with the id in parentheses after those that occur more than once.

    >>> unique_names(["bat", "cat", "bat"], [1, 2, 7])
    ('bat (1)', 'cat', 'bat (7)')
    """
    counts = Counter(names)
    return tuple(
        f"{name} ({identity})" if counts[name] > 1 else name for name, identity in zip(names, ids, strict=True)
    )


def _read_categories(file: JsonFile) -> Categories:
    ids, names, parents = [], [], []
    for number, item in enumerate(file.items("categories")):
        where = f"{file.path}, categories[{number}]"
        ids.append(_require_id(item, "id", where))
        names.append(str(_require_id(item, "name", where)))
        parents.append(None if item.get("supercategory") is None else require_text(item, "supercategory", where))
    if not ids:
        raise DatasetError(f"{file.path} lists no categories.")
    _refuse_repeats(ids, f"{file.path}: category id")
    code = {identity: position for position, identity in enumerate(ids)}
    return Categories(unique_names(names, ids), code, tuple(parents))


def _read_images(
    file: JsonFile,
    path_of: Callable[[dict[str, Any], str], str],
    visit: Callable[[Any, dict[str, Any]], None] | None,
    progress: Progress,
) -> CocoImages:
    found: list[tuple[Any, str, int | None, int | None]] = []
    for number, item in enumerate(file.items("images", f"Images of {file.path.name}", progress)):
        where = f"{file.path}, images[{number}]"
        identity = _require_id(item, "id", where)
        try:
            name = _check_path(path_of(item, where), where)
        except KeyError as missing:
            raise DatasetError(f"{where} has no {missing}.") from None
        width, height = (
            _image_side(item, key, f"{file.path}, image {short_json(identity)}") for key in ("width", "height")
        )
        found.append((identity, name, width, height))
        if visit:
            visit(identity, item)
    if not found:
        raise DatasetError(f"{file.path} lists no images.")
    found.sort(key=lambda image: str(image[0]))
    ids, names, widths, heights = (list(column) for column in zip(*found, strict=True))
    _refuse_repeats(ids, f"{file.path}: image id")
    return CocoImages(names, widths, heights, {identity: position for position, identity in enumerate(ids)})


def _require_id(item: dict[str, Any], key: str, where: str) -> Any:
    value = item.get(key)
    if not isinstance(value, int | str) or isinstance(value, bool):
        found = f" but {short_json(value)}" if key in item else ""
        raise DatasetError(f"{where} has no {key}{found}.")
    return value


def _refuse_repeats(ids: Sequence[Any], what: str) -> None:
    if len(set(ids)) < len(ids):
        repeated = next(identity for identity, count in Counter(ids).items() if count > 1)
        raise DatasetError(f"{what} {short_json(repeated)} occurs twice; ids must be distinct.")


def _check_path(name: str, where: str) -> str:
    path = PurePosixPath(name)
    if not path.parts or path.is_absolute() or ".." in path.parts:
        raise DatasetError(f"{where}: {short_json(name)} is not the path of an image below the image root.")
    return path.as_posix()


def _image_side(item: dict[str, Any], key: str, where: str) -> int | None:
    side = item.get(key)
    if side is None:
        return None
    if not isinstance(side, int | float) or isinstance(side, bool) or not 1 <= side <= _LONGEST_SIDE or side % 1:
        raise DatasetError(
            f"{where} has a {key} of {short_json(side)}; it must be a whole number of pixels, at least one."
        )
    return int(side)


def _find(item: dict[str, Any], key: str, known: Mapping[Any, int]) -> int:
    """Return the position of what an annotation refers to; the message of a LookupError continues a sentence."""
    if key not in item:
        raise LookupError(f"has no {key}")
    identity = item[key]
    if isinstance(identity, int | float | str) and not isinstance(identity, bool) and identity in known:
        return known[identity]
    what = "belongs to image {}, which is not among the images"
    if key == "category_id":
        what = "is of category {}, which is not among the categories"
    raise LookupError(what.format(short_json(identity)))


def _is_set(item: dict[str, Any], key: str) -> bool:
    if item.get(key) not in (None, 0, 1):
        raise ValueError(f"its {key} is {short_json(item[key])}, which is neither 0 nor 1")
    return bool(item.get(key))


def _location(item: dict[str, Any], width: int | None, height: int | None, locations: str) -> dict[str, Any]:
    """Return the location columns of an annotation; the message of a ValueError continues a sentence."""
    box, segmentation = item.get("bbox"), item.get("segmentation")
    if locations == "mask" or box is None:
        mask = None
        if segmentation and width is not None and height is not None:
            mask = rasterize.from_segmentation(segmentation, height, width)
        if mask is not None:
            around = _relative_box(list(mask.box()) if box is None else box, width, height)
            return {**around, **(mask.columns() if locations == "mask" else {"kind": "box"})}
    return {} if box is None else {"kind": "box", **_relative_box(box, width, height)}


def _relative_box(box: Any, width: int | None, height: int | None) -> dict[str, float]:
    """Turn left, top, width and height in pixels into the center and size of a row, cut where they leave the image."""
    if width is None or height is None:
        raise ValueError("its image has no width and height, which its location is relative to")
    if not (isinstance(box, list) and len(box) == 4 and all(map(_is_length, box))):
        raise ValueError("its bbox is not a list of left, top, width and height")
    left, top, across, down = box
    if across < 0 or down < 0:
        raise ValueError(f"its bbox is {across:g} × {down:g} pixels, but sizes are not negative")
    x, w = _center_and_size(left / width, across / width)
    y, h = _center_and_size(top / height, down / height)
    return {"x": x, "y": y, "w": w, "h": h}


def _center_and_size(start: float, size: float) -> tuple[float, float]:
    end = start + size
    if start < -_ROUNDING or end > 1 + _ROUNDING:
        start, end = min(max(start, 0.0), 1.0), min(max(end, 0.0), 1.0)
        size = end - start
    return start + size / 2, size


def _is_length(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and -_FAR < value < _FAR
