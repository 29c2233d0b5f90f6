"""Large JSON files of the form `{"images": […], "annotations": […], …}`, read item by item.

A scan of the bytes finds where each list begins and ends. A list is then streamed on its own, in whatever order it is
needed, so a file of gigabytes is parsed once and never held in memory.

Three passes of ijson, one for each list, would do without the scan. They are not used, for three reasons
(benchmarks/json_files/run.py, results in docs/benchmarks/json_files.md):

- They take twice as long, because every pass parses the whole file: 20.7 against 10.3 CPU seconds on 500 MB. Peak
  memory is 1 against 9 MB.
- Their memory grows with the square of the nesting: a file of 40 kB with 20,000 lists inside one another takes 1 GB.
  The scan refuses such files.
- A list that occurs twice would be read as one. The scan finds both.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import ijson
import numpy as np

from tagfill.errors import DatasetError
from tagfill.progress import SILENT, Bar, Progress

_CHUNK = 1 << 20
_BEGINNING = 1 << 10
_BYTE_ORDER_MARK = b"\xef\xbb\xbf"
_MOST_CHARACTERS = 60  # of a value in a message
_DEEPEST = 100  # lists and objects inside one another
_ESCAPE = re.compile(rb"\\.", re.DOTALL)
_QUOTE, _OPENING, _CLOSING = ord('"'), ord("{"), ord("}")
_BRACE_BIT = 32  # [ and ] become { and } when this bit is set


@dataclass(frozen=True)
class JsonFile:
    """A JSON object, with the position of each of its lists and objects.

    Attributes:
        path: of the file.
        sections: first byte and end of each value that is a list or an object, by key.
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
            places = list(_scan(path))
            outline = _outline(file, places)
        try:
            pairs = json.loads(outline, object_pairs_hook=tuple)
        except (ValueError, RecursionError) as error:
            problem = error.msg if isinstance(error, json.JSONDecodeError) else str(error)
            raise DatasetError(f"{path} is not valid JSON between its lists: {problem}.") from None
        keys = [key for key, _ in pairs]
        if repeated := next((key for key in keys if keys.count(key) > 1), None):
            raise DatasetError(f"{path} has {short_json(repeated)} twice; keep one of them.")
        return cls(path, {key: places[value[0]] for key, value in pairs if isinstance(value, list)})

    def items(self, key: str, title: str = "", progress: Progress = SILENT) -> Iterator[dict[str, Any]]:
        """Iterate over the objects of a list.

        Args:
            key: of the list.
            title: of the progress bar, which counts bytes.
            progress: told about the bytes read.
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
                for number, item in enumerate(ijson.items(_Section(file, end - start, bar), "item", use_float=True)):
                    if not isinstance(item, dict):
                        raise DatasetError(f"{self.path}, {key}[{number}] is not an object but {short_json(item)}.")
                    yield item
            except (ijson.JSONError, UnicodeDecodeError) as error:
                problem = str(error).strip().splitlines()[0].removeprefix("parse error: ")
                raise DatasetError(f"{self.path} is not valid JSON at {key}[{number + 1}]: {problem}.") from None


def check_structure(path: Path) -> None:
    """Raise if a JSON file is cut off, or nested so deeply that parsing it would take all memory."""
    for _ in _scan(path):
        pass


def short_json(value: Any) -> str:
    """Return a value as JSON, short enough for a message.

    >>> short_json({"id": [1, None]})
    '{"id": [1, null]}'
    """
    try:
        text = json.dumps(value, ensure_ascii=False)
    except (ValueError, RecursionError):  # too many digits, or too many lists inside one another
        return f"a very long {type(value).__name__}"
    return text if len(text) <= _MOST_CHARACTERS else f"{text[:_MOST_CHARACTERS]}…"


class _Section:
    """The next `size` bytes of a file as a file, counted by a progress bar."""

    def __init__(self, file: IO[bytes], size: int, bar: Bar) -> None:
        self._file, self._left, self._bar = file, size, bar

    def read(self, size: int) -> bytes:
        content = self._file.read(min(size, self._left))
        self._left -= len(content)
        self._bar.advance(len(content))
        return content


def _scan(path: Path) -> Iterator[tuple[int, int]]:
    """Iterate over first byte and end of each list and object that is a value of the outermost object.

    A chunk at a time: mask escaped characters, find out which bytes lie inside strings, and count the brackets outside
    of them.

    Raises:
        DatasetError: brackets or a string are not closed, or brackets are nested too deeply.
    """
    offset, depth, in_string, in_escape, start = 0, 0, False, False, 0
    with path.open("rb") as file:
        while content := file.read(_CHUNK):
            size = len(content)
            if in_escape:
                content = b" " + content[1:]
            if in_escape := b"\\" in content:
                content = _ESCAPE.sub(b"  ", content)
                in_escape = content.endswith(b"\\")  # the escaped character is in the next chunk
            text = np.frombuffer(content, dtype=np.uint8)
            quoted = np.bitwise_xor.accumulate(text == _QUOTE) ^ in_string
            in_string = bool(quoted[-1])
            braces = text | _BRACE_BIT
            at = np.flatnonzero(((braces == _OPENING) | (braces == _CLOSING)) & ~quoted)
            opens = braces[at] == _OPENING
            depths = depth + np.cumsum(np.where(opens, 1, -1))
            for place in np.flatnonzero((opens & (depths == 2)) | (~opens & (depths == 1))):
                if opens[place]:
                    start = offset + int(at[place])
                else:
                    yield start, offset + int(at[place]) + 1
            if depths.max(initial=0) > _DEEPEST:
                raise DatasetError(f"{path} has lists inside lists, more than {_DEEPEST} deep; it is not read.")
            depth = int(depths[-1]) if len(depths) else depth
            offset += size
    if depth or in_string:
        raise DatasetError(f"{path} ends in the middle of its JSON; it may be an incomplete download.")


def _outline(file: IO[bytes], places: list[tuple[int, int]]) -> bytes:
    """Return the outermost object with `[number]` in place of each list and object that the scan found."""
    parts, before = [], 0
    for number, (start, end) in enumerate(places):
        file.seek(before)
        parts += [file.read(start - before), b"[%d]" % number]
        before = end
    file.seek(before)
    return b"".join([*parts, file.read()]).removeprefix(_BYTE_ORDER_MARK)
