"""A report as Markdown: words and tables, with links to the figures beside it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from tagfill.experiments.report.cells import cell, is_number
from tagfill.experiments.report.section import Section, Table


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
