"""Writing a report: as one self-contained HTML file, and as Markdown with its pictures in a folder beside it.

Names of datasets, classes and files are escaped everywhere; only the charts, which matplotlib makes, are inserted as
markup.
"""

from __future__ import annotations

import base64
import html
import re
from collections.abc import Iterator, Mapping, Sequence
from importlib.resources import files
from pathlib import Path
from typing import Any

from tagfill.experiments.leaderboard import escape_html
from tagfill.experiments.report.section import Figure, Section, Table
from tagfill.io import atomic_write

_HALF_PAGE = 48  # characters of table headings that fit into half of the page


def write(
    sections: Sequence[Section],
    path: str | Path,
    *,
    title: str = "Report",
    summary: str = "",
    facts: Mapping[str, str] | None = None,
) -> Path:
    """Write a report: the page, a `.md` file beside it, and a folder `…-files` with its figures and tables.

    Args:
        sections: in reading order; names that occur twice get a number.
        path: of the page.
        title: its heading.
        summary: a sentence or two below the heading.
        facts: the most important numbers by name, shown large.

    Returns:
        The path of the page.

    Example:
        >>> import tempfile
        >>> folder = tempfile.mkdtemp()
        >>> write([Section("one", "One", ("Text.",))], Path(folder) / "report.html").name
        'report.html'
    """
    path = Path(path)
    named = dict(zip(unique_names([section.name for section in sections]), sections, strict=True))
    folder = path.with_name(f"{path.stem}-files")
    texts = {
        path: to_html(named, title, summary, facts or {}),
        path.with_suffix(".md"): to_markdown(named, title, summary, facts or {}, folder.name),
    }
    for name, section in named.items():
        if section.figures or section.tables:
            section.save(folder / name)
    for file_path, text in texts.items():
        with atomic_write(file_path) as file:
            file.write(text.encode())
    return path


def unique_names(names: Sequence[str]) -> list[str]:
    """Append a number to names that occurred before.

    >>> unique_names(["scores", "groups", "scores"])
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


def to_html(sections: Mapping[str, Section], title: str, summary: str, facts: Mapping[str, str]) -> str:
    """The page as HTML."""
    from jinja2 import Environment, StrictUndefined

    source = files("tagfill.experiments.report").joinpath("template.html").read_text(encoding="utf-8")
    environment = Environment(autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True)
    environment.filters |= {"cell": format_cell, "data_url": data_url, "inline_code": inline_code}
    environment.globals |= {
        "inline_svg": inline_svg,
        "is_numeric": is_numeric,
        "sort_key": sort_key,
        "bar_percent": bar_percent,
        "fits_side_by_side": fits_side_by_side,
    }
    return environment.from_string(source).render(title=title, summary=summary, facts=facts, sections=sections)


def to_markdown(
    sections: Mapping[str, Section], title: str, summary: str, facts: Mapping[str, str], folder: str
) -> str:
    """The report as Markdown.

    Args:
        sections: by name.
        title: its heading.
        summary: below the heading.
        facts: name → value.
        folder: name of the folder that holds the figures.
    """
    parts = [f"# {title}", summary, "\n".join(f"- {name}: {value}" for name, value in facts.items())]
    parts = [escape_html(part) for part in parts]
    for name, section in sections.items():
        parts.extend(escape_html(part) for part in _markdown_section(section, f"{folder}/{name}"))
        parts.extend(_markdown_listings(section))
    return "\n\n".join(part for part in parts if part) + "\n"


def _markdown_section(section: Section, folder: str) -> Iterator[str]:
    yield f"## {section.title}"
    yield from section.text
    for figure in section.figures:
        yield f"![{figure.alt}]({folder}/{figure.name}.png)"
        yield figure.caption
    for table in section.tables:
        yield table.caption
        yield _markdown_table(table)
    yield from section.notes
    for gallery in section.galleries:
        yield f"{gallery.caption} The pictures are on the HTML page."
        if not gallery.columns:
            notes = [picture.note for _, pictures in gallery.rows for picture in pictures]
            yield "\n".join(f"- {note}" for note in notes if note)


def _markdown_listings(section: Section) -> Iterator[str]:
    for listing in section.listings:
        longest = max((len(ticks) for ticks in re.findall("`+", listing.text)), default=0)
        fence = "`" * max(3, longest + 1)
        yield f"{escape_html(listing.title)}:"
        yield f"{fence}yaml\n{listing.text.rstrip()}\n{fence}"


def _markdown_table(table: Table) -> str:
    numeric = [is_numeric(table, column) for column in range(len(table.columns))]
    lines = [list(table.columns), ["---:" if number else "---" for number in numeric]]
    for row in table.rows:
        cells = [format_cell(v, table.formats.get(name, "")) for name, v in zip(table.columns, row, strict=True)]
        lines.append([text.replace("|", "\\|").replace("\n", " ") for text in cells])
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def format_cell(value: Any, form: str = "") -> str:
    """Format a table value.

    >>> format_cell(0.25, ".0%"), format_cell(12000), format_cell(1.23456), format_cell(None), format_cell(True)
    ('25%', '12,000', '1.235', '–', 'yes')
    """
    if value is None or value != value:
        return "–"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int | float):
        return format(value, form or ("," if isinstance(value, int) else ".4g"))
    return str(value)


def is_numeric(table: Table, column: int) -> bool:
    """Whether a column holds only numbers and empty cells."""
    values = [row[column] for row in table.rows if row[column] is not None]
    return bool(values) and all(isinstance(value, int | float) and not isinstance(value, bool) for value in values)


def sort_key(value: Any) -> str:
    """The text that the page sorts a cell by; empty, which sorts last, for None and NaN.

    >>> sort_key(0.5), sort_key("an"), sort_key(None), sort_key(float("nan"))
    ('0.5', 'an', '', '')
    """
    return "" if value is None or value != value else str(value)


def bar_percent(value: Any) -> float:
    """The length of a bar for a share, clipped to 0…100 percent."""
    return 0.0 if value is None or value != value else round(100 * min(max(float(value), 0.0), 1.0), 1)


def fits_side_by_side(section: Section) -> bool:
    """Whether a section consists of one chart and one table small enough to stand beside it."""
    if len(section.tables) != 1 or len(section.figures) != 1 or section.figures[0].svg is None:
        return False
    columns, rows = section.tables[0].columns, section.tables[0].rows
    return len(columns) <= 5 and sum(map(len, columns)) <= _HALF_PAGE and len(rows) <= 16


def data_url(file: bytes) -> str:
    r"""A picture as a `data:` URL.

    >>> data_url(b"\x89PNG...")[:22]
    'data:image/png;base64,'
    """
    kind = "png" if file.startswith(b"\x89PNG") else "jpeg"
    return f"data:image/{kind};base64,{base64.b64encode(file).decode()}"


def inline_code(text: str) -> Any:
    """Escape a paragraph, with `code` in backticks as its only markup.

    >>> str(inline_code("`an` < all"))
    '<code>an</code> &lt; all'
    """
    from markupsafe import Markup

    return Markup(re.sub(r"`([^`]+)`", r"<code>\1</code>", html.escape(text, quote=False)))


def inline_svg(figure: Figure, prefix: str) -> Any:
    """The SVG of a figure with a label for screen readers, and ids that are unique on the page."""
    from markupsafe import Markup

    assert figure.svg is not None
    text = re.sub(r'\bid="([^"]+)"', rf'id="{prefix}-\1"', figure.svg)
    text = re.sub(r'(href="|url\()#', rf"\1#{prefix}-", text)
    text = re.sub(r"<metadata>.*?</metadata>", "", text, flags=re.DOTALL)
    return Markup(text.replace("<svg ", f'<svg role="img" aria-label="{html.escape(figure.alt)}" ', 1))
