"""Ways in which a file can be changed or damaged, each with the promise that still holds.

A mutation takes the bytes of a file and a random generator, and returns other bytes with a promise. Which mutations
apply depends on the kind of the file. On top of any mutation, text may begin with a byte order mark and end its lines
in any way: that never changes its meaning.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from random import Random

from fuzz import json_mutations, line_mutations, table_mutations, xml_mutations
from fuzz.promises import Promise

Mutation = Callable[[bytes, Random], tuple[bytes, Promise]]
TEXT = ("json", "lines", "csv", "xml", "yaml")
_WHOLE = ("json", "xml", "binary", "archive")  # a cut-off file is recognized
_LINE_ENDS = (b"\n", b"\r\n", b"\r")


@dataclass(frozen=True)
class File:
    """A file of a source.

    Attributes:
        path: below the source's folder.
        kind: `json`, `csv` (with a header), `lines`, `xml`, `yaml` or `binary`.
        unordered: whether its lines may stand in any order.
        counted: whether another file says how many lines it has.
    """

    path: str
    kind: str
    unordered: bool = False
    counted: bool = False


def mutations(file: File) -> list[Mutation]:
    """Return the mutations that apply to a file."""
    found: list[Mutation] = [unchanged, noise, emptied, _truncation(file)]
    if file.kind == "json":
        found += json_mutations.ALL
    elif file.kind == "xml":
        found += xml_mutations.ALL
    elif file.kind == "csv":
        found += table_mutations.ALL
    elif file.kind in ("lines", "yaml"):
        found += line_mutations.ALL if file.kind == "lines" else line_mutations.YAML
        found += [line_mutations.reordered] if file.unordered else []
        found += [line_mutations.lost(counted=file.counted)]
    if file.kind in TEXT:
        found.append(twice)
    return found


def unchanged(content: bytes, rng: Random) -> tuple[bytes, Promise]:
    return content, Promise.EXACTLY


def emptied(content: bytes, rng: Random) -> tuple[bytes, Promise]:
    return b"", Promise.NO_CRASH


def twice(content: bytes, rng: Random) -> tuple[bytes, Promise]:
    """The whole file, and again."""
    return content + content, Promise.SAME_OR_REFUSED


def noise(content: bytes, rng: Random) -> tuple[bytes, Promise]:
    """Some bytes lost, overwritten, or added."""
    at, size = rng.randrange(len(content) + 1), rng.choice((0, 1, 1, 3, 20))
    added = rng.choice((b"", b"\0", b"\xff", b'"', b",", b"\n", b"<", b"-", b"9" * 30, rng.randbytes(3)))
    return content[:at] + added + content[at + size :], Promise.NO_CRASH


def encoded(content: bytes, rng: Random) -> bytes:
    """Text with a byte order mark or not, and its lines ended in one way or in several."""
    ends = rng.choice([[end] for end in _LINE_ENDS] + [list(_LINE_ENDS)])
    lines = content.split(b"\n")
    text = b"".join(line + rng.choice(ends) for line in lines[:-1]) + lines[-1]
    return b"\xef\xbb\xbf" * rng.randrange(2) + text


def _truncation(file: File) -> Mutation:
    promise = Promise.SAME_OR_REFUSED if file.kind in _WHOLE or file.counted else Promise.NO_CRASH

    def truncated(content: bytes, rng: Random) -> tuple[bytes, Promise]:
        return content[: rng.randrange(len(content))] if content else content, promise

    return truncated
