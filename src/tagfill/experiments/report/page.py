"""A report as Markdown: words and tables, with links to the figures beside it.

A report as one HTML file that needs no other, and as Markdown with its pictures beside it.

Whatever a dataset, a class or a file is called is shown and never interpreted: the template escapes everything but the
drawings, which are made by matplotlib.
"""

from __future__ import annotations

import base64
import html
import re
from collections.abc import Iterator, Mapping, Sequence
from importlib.resources import files
from pathlib import Path
from typing import Any

from tagfill.experiments.report.section import Figure, Section, Table, cell, is_number, key, percent
from tagfill.io import atomic_write


def markdown(sections: Mapping[str, Section], title: str, summary: str, facts: Mapping[str, str], beside: str) -> str:
    """The report as text.

    Args:
        sections: by name.
        title: its heading.
        summary: below it.
        facts: name → value.
        beside: the folder of the figures.
    """
    parts = [f"# {title}", summary, *([_facts(facts)] if facts else [])]
    for name, section in sections.items():
        parts.extend(_section(section, f"{beside}/{name}"))
    return "\n\n".join(part for part in parts if part) + "\n"


def _facts(facts: Mapping[str, str]) -> str:
    return "\n".join(f"- {name}: {value}" for name, value in facts.items())


def _section(section: Section, folder: str) -> Iterator[str]:
    yield f"## {section.title}"
    yield from section.text
    for figure in section.figures:
        yield f"![{figure.alt}]({folder}/{figure.name}.png)"
        yield figure.caption
    for table in section.tables:
        yield table.caption
        yield _table(table)
    yield from section.notes
    for gallery in section.galleries:
        yield f"{gallery.caption} The pictures are in the page."
        if not gallery.columns:
            notes = [picture.note for _, pictures in gallery.rows for picture in pictures]
            yield "\n".join(f"- {note}" for note in notes if note)
    for listing in section.listings:
        yield f"{listing.title}:"
        yield f"```yaml\n{listing.text.rstrip()}\n```"


def _table(table: Table) -> str:
    numbers = [is_number(table, column) for column in range(len(table.columns))]
    lines = [list(table.columns), ["---:" if number else "---" for number in numbers]]
    for row in table.rows:
        shown = [cell(value, table.formats.get(name, "")) for name, value in zip(table.columns, row, strict=True)]
        lines.append([text.replace("|", "\\|").replace("\n", " ") for text in shown])
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


HEADINGS = 48
"""Letters of a table's headings that fit into half of the page; they stand in one line."""


def write(
    sections: Sequence[Section],
    path: str | Path,
    *,
    title: str = "Report",
    summary: str = "",
    facts: Mapping[str, str] | None = None,
) -> Path:
    """Write a report: the page, `.md` beside it, and a folder `…-files` with the figures and numbers of the latter.

    Args:
        sections: in the order of reading; names that occur twice get a number.
        path: of the page.
        title: its heading.
        summary: a sentence or two below the heading.
        facts: the few numbers that matter most, name → value, shown large.

    Returns:
        The path of the page.

    Example:
        >>> import tempfile
        >>> folder = tempfile.mkdtemp()
        >>> write([Section("one", "One", ("Words.",))], Path(folder) / "report.html").name
        'report.html'
    """
    path = Path(path)
    named = dict(zip(unique([section.name for section in sections]), sections, strict=True))
    beside = path.with_name(f"{path.stem}-files")
    texts = {
        path: page(named, title, summary, facts or {}),
        path.with_suffix(".md"): markdown(named, title, summary, facts or {}, beside.name),
    }
    for name, section in named.items():
        if section.figures or section.tables:
            section.save(beside / name)
    for place, text in texts.items():
        with atomic_write(place) as file:
            file.write(text.encode())
    return path


def page(sections: Mapping[str, Section], title: str, summary: str, facts: Mapping[str, str]) -> str:
    """The page as HTML."""
    from jinja2 import Environment, StrictUndefined

    source = files("tagfill.experiments.report").joinpath("template.html").read_text(encoding="utf-8")
    environment = Environment(autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True)
    environment.filters |= {"cell": cell, "address": address, "sentence": sentence}
    environment.globals |= {
        "drawing": drawing,
        "is_number": is_number,
        "key": key,
        "percent": percent,
        "beside": beside,
    }
    return environment.from_string(source).render(title=title, summary=summary, facts=facts, sections=sections)


def unique(names: Sequence[str]) -> list[str]:
    """Names with a number behind those that were there before.

    >>> unique(["scores", "groups", "scores"])
    ['scores', 'groups', 'scores-2']
    """
    found: list[str] = []
    for name in names:
        number, candidate = 1, name
        while candidate in found:
            number += 1
            candidate = f"{name}-{number}"
        found.append(candidate)
    return found


def beside(section: Section) -> bool:
    """Whether a figure and a small table have room side by side."""
    if len(section.tables) != 1 or len(section.figures) != 1 or section.figures[0].svg is None:
        return False
    columns, rows = section.tables[0].columns, section.tables[0].rows
    return len(columns) <= 5 and sum(map(len, columns)) <= HEADINGS and len(rows) <= 16


def address(file: bytes) -> str:
    r"""A picture as the address of itself.

    >>> address(b"\x89PNG...")[:22]
    'data:image/png;base64,'
    """
    kind = "png" if file.startswith(b"\x89PNG") else "jpeg"
    return f"data:image/{kind};base64,{base64.b64encode(file).decode()}"


def sentence(text: str) -> Any:
    """Words with `code` in them, which is all that a paragraph of ours may mark.

    >>> str(sentence("`an` < all"))
    '<code>an</code> &lt; all'
    """
    from markupsafe import Markup

    return Markup(re.sub(r"`([^`]+)`", r"<code>\1</code>", html.escape(text, quote=False)))


def drawing(figure: Figure, prefix: str) -> Any:
    """The SVG of a figure, named for readers of screens, with names that no other drawing of the page has."""
    from markupsafe import Markup

    assert figure.svg is not None
    text = re.sub(r'\bid="([^"]+)"', rf'id="{prefix}-\1"', figure.svg)
    text = re.sub(r'(href="|url\()#', rf"\1#{prefix}-", text)
    text = re.sub(r"<metadata>.*?</metadata>", "", text, flags=re.DOTALL)
    return Markup(text.replace("<svg ", f'<svg role="img" aria-label="{html.escape(figure.alt)}" ', 1))
