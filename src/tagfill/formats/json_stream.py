"""Large JSON files of the form `{"images": […], "annotations": […], …}`, read item by item.

A quick scan of the bytes finds where each list begins and ends; a list is then streamed on its own, in whatever
order it is needed, so that a file of gigabytes is parsed once and never held in memory.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import ijson
import numpy as np

from tagfill.errors import DatasetError
from tagfill.io import atomic_write
from tagfill.progress import SILENT, Bar, Progress

_CHUNK = 1 << 20
_BEGINNING = 1 << 10
_BYTE_ORDER_MARK = b"\xef\xbb\xbf"
_LONGEST_SHOWN = 60
_DEEPEST = 100  # lists and objects within one another; ijson's memory grows with the square
_ESCAPED = re.compile(rb"\\.", re.DOTALL)
_QUOTE, _OPENING, _CLOSING = ord('"'), ord("{"), ord("}")  # brackets differ from braces in one bit only
_BRACE_BIT = 32


@dataclass(frozen=True)
class JsonFile:
    """A JSON object, with the bytes that each of its lists and objects takes up.

    Attributes:
        path: of the file.
        sections: first byte and end of each value that is a list or an object, by its key.
    """

    path: Path
    sections: dict[str, tuple[int, int]]

    @classmethod
    def open(cls, path: Path) -> JsonFile:
        """Find the sections of a file.

        Raises:
            DatasetError: there is no such file, or it is not a complete JSON object.
        """
        if not path.is_file():
            raise DatasetError(f"There is no file {path}.")
        with path.open("rb") as file:
            if not file.read(_BEGINNING).removeprefix(_BYTE_ORDER_MARK).lstrip().startswith(b"{"):
                raise DatasetError(f"{path} is not a JSON object with lists of images and annotations.")
            places = list(_containers(path))
            outline = _outline(file, places)
        try:
            pairs = json.loads(outline, object_pairs_hook=tuple)
        except (ValueError, RecursionError) as error:
            problem = error.msg if isinstance(error, json.JSONDecodeError) else str(error)
            raise DatasetError(f"{path} is not valid JSON between its lists: {problem}.") from None
        keys = [key for key, _ in pairs]
        if repeated := next((key for key in keys if keys.count(key) > 1), None):
            raise DatasetError(f"{path} has {shown(repeated)} twice; keep one of them.")
        return cls(path, {key: places[value[0]] for key, value in pairs if isinstance(value, list)})

    def items(self, key: str, title: str = "", progress: Progress = SILENT) -> Iterator[dict[str, Any]]:
        """The objects of a list, one at a time.

        Args:
            key: of the list.
            title: shown beside the bar that counts the bytes.
            progress: told about them.
        """
        if key not in self.sections:
            raise DatasetError(
                f"{self.path} has no list '{key}'; it has {', '.join(self.sections) or 'no list at all'}."
            )
        start, end = self.sections[key]
        with self.path.open("rb") as file, progress.bar(title or f"Reading {key}", end - start, "B") as bar:
            file.seek(start)
            if file.read(1) != b"[":
                raise DatasetError(f"{self.path}: '{key}' is not a list.")
            file.seek(start)
            number = -1
            try:
                for number, item in enumerate(ijson.items(_Part(file, end - start, bar), "item", use_float=True)):
                    if not isinstance(item, dict):
                        raise DatasetError(f"{self.path}, {key}[{number}] is not an object but {shown(item)}.")
                    yield item
            except (ijson.JSONError, UnicodeDecodeError) as error:
                problem = str(error).strip().splitlines()[0].removeprefix("parse error: ")
                raise DatasetError(f"{self.path} is not valid JSON at {key}[{number + 1}]: {problem}.") from None


def require_whole(path: Path) -> None:
    """Refuse a JSON file that is cut off, or nested so deeply that parsing it would take all memory."""
    for _ in _containers(path):
        pass


def shown(value: Any) -> str:
    """A value as it stands in a JSON file, short enough for a message.

    >>> shown({"id": [1, None]})
    '{"id": [1, null]}'
    """
    try:
        text = json.dumps(value, ensure_ascii=False)
    except (ValueError, RecursionError):  # a number of very many digits, or very many lists within lists
        return f"a very long {type(value).__name__}"
    return text if len(text) <= _LONGEST_SHOWN else f"{text[:_LONGEST_SHOWN]}…"


class _Part:
    """So many bytes of a file from where it stands, counted by a bar."""

    def __init__(self, file: IO[bytes], size: int, bar: Bar) -> None:
        self._file, self._left, self._bar = file, size, bar

    def read(self, size: int) -> bytes:
        content = self._file.read(min(size, self._left))
        self._left -= len(content)
        self._bar.advance(len(content))
        return content


def _outline(file: IO[bytes], places: list[tuple[int, int]]) -> bytes:
    """The outermost object, with the number of each place in a list in place of what stands there."""
    parts, before = [], 0
    for number, (start, end) in enumerate(places):
        file.seek(before)
        parts += [file.read(start - before), b"[%d]" % number]
        before = end
    file.seek(before)
    return b"".join([*parts, file.read()]).removeprefix(_BYTE_ORDER_MARK)


def _containers(path: Path) -> Iterator[tuple[int, int]]:
    """First byte and end of each list and object that is a value of the outermost object."""
    offset, depth, inside, escaped, start = 0, 0, False, False, 0
    with path.open("rb") as file:
        while content := file.read(_CHUNK):
            size = len(content)
            if escaped:
                content = b" " + content[1:]
            if escaped := b"\\" in content:
                content = _ESCAPED.sub(b"  ", content)
                escaped = content.endswith(b"\\")
            text = np.frombuffer(content, dtype=np.uint8)
            within = np.bitwise_xor.accumulate(text == _QUOTE) ^ inside  # whether a byte is part of a string
            inside = bool(within[-1])
            braces = text | _BRACE_BIT
            at = np.flatnonzero(((braces == _OPENING) | (braces == _CLOSING)) & ~within)
            opens = braces[at] == _OPENING
            depths = depth + np.cumsum(np.where(opens, 1, -1))
            for place in np.flatnonzero((opens & (depths == 2)) | (~opens & (depths == 1))):
                if opens[place]:
                    start = offset + int(at[place])
                else:
                    yield start, offset + int(at[place]) + 1
            if depths.max(initial=0) > _DEEPEST:
                raise DatasetError(f"{path} has lists within lists, more than {_DEEPEST} deep; it is not read.")
            depth = int(depths[-1]) if len(depths) else depth
            offset += size
    if depth or inside:
        raise DatasetError(f"{path} ends in the middle of its JSON; it may be an incomplete download.")


def write(path: Path, sections: Mapping[str, Iterable[Any] | dict[str, Any]]) -> None:
    """Write a JSON object whose lists are streamed, an item a line; whole or not at all."""
    with atomic_write(path) as file:
        file.write(b"{")
        for number, (key, content) in enumerate(sections.items()):
            file.write(b"," * (number > 0) + b"\n" + json.dumps(key).encode() + b": ")
            if isinstance(content, dict):
                file.write(json.dumps(content, ensure_ascii=False).encode())
                continue
            file.write(b"[")
            for position, item in enumerate(content):
                file.write(b"," * (position > 0) + b"\n" + json.dumps(item, ensure_ascii=False).encode())
            file.write(b"]")
        file.write(b"\n}\n")
