"""The categories and images of a COCO-style JSON file."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Any

from tagfill.errors import DatasetError
from tagfill.formats.json_sections import JsonFile, shown
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
