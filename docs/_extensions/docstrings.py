"""Docstrings of Tagfill as reStructuredText, which is what autodoc reads.

They are plain text with code in single backticks and with equations and programs set in. Here code stays code, what is
set in, tables too, becomes a literal block, and signs that mean something to reStructuredText alone are escaped.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

SECTION = re.compile(r"^\s*(Args|Arguments|Attributes|Returns|Yields|Raises|Example|Examples|Note|Notes):\s*$")
CODE = re.compile(r"(``.+?``|`[^`]+`)")
EMPHASIS = re.compile(r"(?<!\w)\*[^\s*](?:[^*]*[^\s*])?\*(?!\w)")
ARRAY = re.compile(r"~?numpy\.ndarray\[tuple\[~?typing\.Any, \.\.\.\], ~?numpy\.dtype\[(~?[\w.]+)\]\]")
LITERAL_SIGN = re.compile(r"\*|\||_(?=\W|$)|\\")


def converted(lines: list[str]) -> list[str]:
    r"""The lines of a docstring.

    >>> converted(["|T| of `a`s:", "", "    x = *y*", "", "Args:", "    x: an x."])
    ['\\|T\\| of ``a``\\ s:', '', '::', '', '    x = *y*', '', 'Args:', '    x: an x.']
    """
    return list(_converted(lines))


def _converted(lines: list[str]) -> Iterator[str]:
    literal, sections = False, False
    lines = [f"    {line}" if line.startswith("|") and line.endswith("|") else line for line in lines]  # of a table
    for number, line in enumerate(lines):
        sections = sections or bool(SECTION.match(line))
        indented = line.startswith("    ") and not sections
        if indented and not literal and (number == 0 or not lines[number - 1].strip()):
            yield from ("::", "")
            literal = True
        elif line.strip() and not indented:
            literal = False
        yield line if literal or _shown_as_is(lines, number) else _escaped(line)


def _shown_as_is(lines: list[str], number: int) -> bool:
    """Whether a line belongs to a doctest: it begins with a prompt, or follows one without an empty line between."""
    while number >= 0 and lines[number].strip():
        if lines[number].lstrip().startswith(">>>"):
            return True
        number -= 1
    return False


def _escaped(line: str) -> str:
    parts = CODE.split(line)
    for place, part in enumerate(parts):
        if place % 2:
            code = part.strip("`")
            after = parts[place + 1][:1]
            before = parts[place - 1][-1:]
            parts[place] = ("\\ " if before.isalnum() else "") + f"``{code}``" + ("\\ " if after.isalnum() else "")
        else:
            parts[place] = _without_signs(part)
    return "".join(parts)


def _without_signs(text: str) -> str:
    kept = EMPHASIS.findall(text)
    plain = [LITERAL_SIGN.sub(r"\\\g<0>", piece) for piece in EMPHASIS.split(text)]
    return "".join(piece + emphasis for piece, emphasis in zip(plain, [*kept, ""], strict=True))


def shortened(signature: str) -> str:
    """A signature that Sphinx can take apart, with arrays as the code writes them.

    >>> shortened("(known: ~numpy.ndarray[tuple[~typing.Any, ...], ~numpy.dtype[~numpy.int64]] = <factory>)")
    '(known: ~numpy.typing.NDArray[~numpy.int64] = ...)'
    """
    return ARRAY.sub(r"~numpy.typing.NDArray[\1]", signature).replace("<factory>", "...")


def setup(app: Any) -> dict[str, bool]:
    """Called by Sphinx; before napoleon, which reads the sections."""

    def process(app: Any, what: str, name: str, obj: object, options: object, lines: list[str]) -> None:
        lines[:] = converted(lines)

    def sign(
        app: Any, what: str, name: str, obj: object, options: object, signature: str | None, returned: str | None
    ) -> tuple[str | None, str | None]:
        return (signature and shortened(signature)), (returned and shortened(returned))

    app.connect("autodoc-process-docstring", process, priority=100)
    app.connect("autodoc-process-signature", sign)
    return {"parallel_read_safe": True}
