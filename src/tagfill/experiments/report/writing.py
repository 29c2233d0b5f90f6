"""A report as one HTML file that needs no other, and as Markdown."""

from __future__ import annotations

from importlib.resources import files
from pathlib import Path

from tagfill.experiments.report.contents import Report, Section, Table
from tagfill.files import replacing

PAGE, TEXT = "report.html", "report.md"


def write(report: Report, folder: Path) -> Path:
    """Write both forms into a folder; gives the path of the page."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in ((PAGE, html(report)), (TEXT, markdown(report))):
        with replacing(folder / name) as file:
            file.write(text.encode())
    return folder / PAGE


def html(report: Report) -> str:
    """The page; whatever a dataset or a file is called, it is shown and never interpreted."""
    from jinja2 import Environment, StrictUndefined

    source = files("tagfill.experiments.report").joinpath("template.html").read_text(encoding="utf-8")
    environment = Environment(autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True)
    return environment.from_string(source).render(
        title=report.title, summary=report.summary, facts=report.facts, sections=report.sections
    )


def markdown(report: Report) -> str:
    """Words and tables; drawings and pictures are in the page only."""
    facts = ", ".join(f"{fact.name}: {fact.value}" for fact in report.facts)
    parts = [f"# {report.title}", report.summary, facts, *(_section(section) for section in report.sections)]
    return "\n\n".join(part for part in parts if part) + "\n"


def _section(section: Section) -> str:
    parts = [f"## {section.title}", *section.paragraphs]
    if section.table is not None:
        parts.append(_table(section.table))
    parts.extend(f"{block.title}:\n\n```yaml\n{block.text.rstrip()}\n```" for block in section.blocks)
    if section.drawings or section.pictures or section.picture_rows:
        parts.append(f"Pictures of this section are in {PAGE}.")
    return "\n\n".join(parts)


def _table(table: Table) -> str:
    lines = [[column.name for column in table.columns], ["---:" if c.number else "---" for c in table.columns]]
    lines += [[cell.text.replace("|", "\\|") for cell in row] for row in table.rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)
