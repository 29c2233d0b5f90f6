"""The rows of a table of tags: what each says about its photo, and what they say together."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from tagfill.errors import DatasetError, unknown_name
from tagfill.formats import image_files
from tagfill.formats.tag_columns import JSON, NONE, STATE_WORDS, TableCells, TagColumns, parse_list, split_cell
from tagfill.formats.wide_csv import CODINGS
from tagfill.labels import NEGATIVE, POSITIVE

Given = list[dict[str, bool | None]]  # what each row says


@dataclass(frozen=True)
class TaggedPhoto:
    """What a table says about one photo.

    Attributes:
        image: path below the image root.
        split: of the photo.
        states: tags that are given: present, absent, or None for "cannot tell".
        complete: whether all tags that are not given are absent.
    """

    image: str
    split: str
    states: dict[str, bool | None]
    complete: bool = False


# Columns of tags


def read_tag_columns(cells: TableCells, columns: TagColumns, separator: str) -> Given:
    """What the rows of columns of tags say."""
    values: list[bool | None] = [True] * len(cells.numbers)
    if columns.value is not None:
        values = [_truth(cells, row, columns.value) for row in range(len(cells.numbers))]
    given: Given = [{} for _ in cells.numbers]
    for name in columns.tags:
        for row, cell in enumerate(cells.columns[name]):
            tags = _tags_of(cell, separator)
            if tags is None:
                raise cells.error(row, f"'{cell[:80]}' in column '{name}'", "it is no JSON list of names")
            given[row] |= dict.fromkeys(filter(None, tags), values[row])
    for row, its in enumerate(given):
        if not its and values[row] is not None and columns.value is not None:
            raise cells.error(row, f"a {columns.value} without a tag", "name the tag")
    return given


def _tags_of(cell: Any, separator: str) -> list[str] | None:
    if isinstance(cell, list):
        return cell
    if not cell:
        return []
    if separator == JSON:
        return parse_list(cell)
    return [cell] if separator == NONE else split_cell(cell, separator)


def _truth(cells: TableCells, row: int, column: str) -> bool | None:
    cell = str(cells.columns[column][row])
    state = STATE_WORDS.get(cell.lower())
    if state not in ("1", "0", ""):
        raise cells.error(row, f"'{cell[:40]}' in column '{column}'", "1, 0 or blank is expected")
    return None if state == "" else state == "1"


# Columns of classes


def find_coding(
    cells: TableCells, classes: Sequence[str], coding: str | None, absent_means: str | None
) -> tuple[dict[str, int], bool]:
    """Return what the cells mean, and whether 0 had to be read as unknown."""
    if coding is not None:
        if coding not in CODINGS:
            raise unknown_name("coding", coding, CODINGS)
        return CODINGS[coding], False
    seen = {cell.lower() for name in classes for cell in cells.texts(name)}
    kinds = {STATE_WORDS[cell] for cell in seen if cell in STATE_WORDS}
    if "-1" in kinds:
        raise DatasetError(
            f"{cells.where} holds -1, which is unknown in some tables and absent in others; give coding='canonical' "
            "(0 absent, -1 unknown) or coding='observed' (-1 absent, 0 unknown)."
        )
    if absent_means == "absent" or (absent_means is None and "" in kinds):
        return CODINGS["blank"], False
    unknown_zero = {cell: state for cell, state in CODINGS["blank"].items() if cell != "0"}
    return unknown_zero | {"0": -1}, absent_means is None and "0" in kinds


def read_class_columns(cells: TableCells, classes: Sequence[str], states: Mapping[str, int]) -> Given:
    """What the rows of columns of classes say."""
    given: Given = [{} for _ in cells.numbers]
    for name in classes:
        for row, cell in enumerate(cells.texts(name)):
            word = STATE_WORDS.get(cell.lower())
            if word is None or word not in states:
                raise cells.error(row, f"'{cell[:40]}' in column '{name}'", "1, 0 or blank is expected")
            if states[word] in (POSITIVE, NEGATIVE):
                given[row][name] = states[word] == POSITIVE
    return given


# Photos


def found_classes(given: Given, columns: tuple[str, ...]) -> list[str]:
    """The classes of a table: its columns of classes, else all tags, sorted."""
    if columns:
        return list(columns)
    return sorted({tag for its in given for tag in its})


def order_classes(cells: TableCells, found: list[str], classes: Sequence[str] | None) -> tuple[str, ...]:
    """The classes that were given, which must contain all that were found; else those that were found."""
    if classes is None:
        if not found:
            raise DatasetError(f"{cells.where} has no tag in any row; there is nothing to learn from.")
        return tuple(found)
    listed = frozenset(classes)
    if unlisted := [tag for tag in found if tag not in listed]:
        raise DatasetError(
            f"{cells.where} has tag '{unlisted[0][:60]}', which is not among the classes given; add it to them."
        )
    return tuple(classes)


def collect_photos(
    cells: TableCells, columns: TagColumns, given: Given, split: str, absent_means: str | None
) -> tuple[TaggedPhoto, ...]:
    """Return one entry per photo; rows of the same photo add up, and may not contradict each other."""
    photos: dict[str, TaggedPhoto] = {}
    names = cells.texts(columns.image)
    parts = None if columns.split is None else cells.texts(columns.split)
    zeros_are_absent = absent_means == "absent"
    for row, its in enumerate(given):
        name = names[row].replace("\\", "/").removeprefix("./")
        if not name or "\0" in name:
            raise cells.error(row, f"no photo in column '{columns.image}'", "name it or drop the row")
        part = image_files.split_for_folder(parts[row]) if parts is not None and parts[row] else split
        complete = zeros_are_absent or (columns.complete is not None and bool(_truth(cells, row, columns.complete)))
        photo = photos.setdefault(name, TaggedPhoto(name, part, {}, complete))
        if photo.split != part:
            found = f"photo '{name[:200]}' in split '{part[:60]}', but it was in '{photo.split[:60]}' before"
            raise cells.error(row, found, "a photo belongs to one split")
        for tag, present in its.items():
            if photo.states.setdefault(tag, present) != present:
                found = f"tag '{tag[:60]}' of photo '{name[:200]}' in another state than before"
                raise cells.error(row, found, "correct one of the two rows")
        if complete and not photo.complete:
            photos[name] = replace(photo, complete=True)
    return tuple(photos.values())
