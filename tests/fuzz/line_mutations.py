"""Text with one entry per line: words changed, lines lost, repeated and moved."""

from __future__ import annotations

import re
from collections.abc import Callable
from random import Random

from fuzz.promises import Promise

STRANGE = (
    *("", "x", "-1", "0.5", "nan", "inf", "1e999", "9" * 30, "9" * 5000, "²", "..", "/", "../../x", "\0", "\ufeff"),
    *("a b", "a\tb", '"', "\x0b", "\x85", "\u2028"),
)
_STRANGE_YAML = (
    *("2001-99-99", "0b_", "[", "{a: b}", "[[a]]", "{1: a, 2: b}", "&a [*a]", "!!python/object:os.system x", "5"),
    *("~", "1e999", '"\\0"', "'", "- x", "? [a]", "[" * 3000, "9" * 5000, "yes"),
)
_UNQUOTED_SPACE = r' (?=(?:[^"]*"[^"]*")*[^"]*$)'


def reordered(content: bytes, rng: Random) -> tuple[bytes, Promise]:
    lines = _lines(content)
    return _joined(rng.sample(lines, len(lines))), Promise.SAME


def repeated(content: bytes, rng: Random) -> tuple[bytes, Promise]:
    """A line that follows a second time, next to itself or later."""
    lines = _lines(content)
    if lines:
        at = rng.randrange(len(lines))
        lines.insert(rng.choice((at, len(lines))), lines[at])
    return _joined(lines), Promise.SAME_OR_REFUSED


def spaced(content: bytes, rng: Random) -> tuple[bytes, Promise]:
    """Other white space between words, before the first and after the last; not inside quotes, where it has meaning."""
    lines = _lines(content)
    if lines:
        at = rng.randrange(len(lines))
        between = rng.choice(("  ", "\t", " \t "))
        around = rng.choice(("", " ", "\t"))
        lines[at] = around + re.sub(_UNQUOTED_SPACE, lambda _: between, lines[at]) + around
    return _joined(lines), Promise.SAME_OR_REFUSED


def blank_lines(content: bytes, rng: Random) -> tuple[bytes, Promise]:
    """Empty lines, of which one may be the last, and maybe no end of the last line."""
    lines = _lines(content)
    for _ in range(rng.randrange(3)):
        lines.insert(rng.randrange(len(lines) + 1), "")
    text = _joined(lines)
    return text[:-1] if rng.random() < 0.5 else text, Promise.EXACTLY


def replaced(content: bytes, rng: Random) -> tuple[bytes, Promise]:
    return _with_word(content, rng, STRANGE), Promise.NO_CRASH


def replaced_yaml(content: bytes, rng: Random) -> tuple[bytes, Promise]:
    return _with_word(content, rng, STRANGE + _STRANGE_YAML), Promise.NO_CRASH


def lost(*, counted: bool) -> Callable[[bytes, Random], tuple[bytes, Promise]]:
    """A line that is missing, from a file whose lines are counted elsewhere or not."""

    def lost_line(content: bytes, rng: Random) -> tuple[bytes, Promise]:
        lines = _lines(content)
        if lines:
            del lines[rng.randrange(len(lines))]
        return _joined(lines), Promise.SAME_OR_REFUSED if counted else Promise.NO_CRASH

    return lost_line


ALL = [repeated, spaced, blank_lines, replaced]
YAML = [repeated, blank_lines, replaced_yaml]


def _with_word(content: bytes, rng: Random, words: tuple[str, ...]) -> bytes:
    parts = re.split(r"([\s,]+)", content.decode())
    parts[2 * rng.randrange(len(parts) // 2 + 1)] = rng.choice(words)
    return "".join(parts).encode()


def _lines(content: bytes) -> list[str]:
    return content.decode().splitlines()


def _joined(lines: list[str]) -> bytes:
    return "".join(f"{line}\n" for line in lines).encode()
