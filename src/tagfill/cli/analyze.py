"""Analyze runs: figures and tables as in the papers.

Example: `tagfill analyze convergence runs/an runs/role full=runs/bce --out curves`

Example: `tagfill analyze groups runs/an runs/en-scl --option split=val`
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from tagfill.cli import flags, terminal
from tagfill.errors import TagfillError, unknown_name
from tagfill.io import require_unused
from tagfill.options import parse_options


def analyze(
    name: Annotated[str, typer.Argument(help="See `tagfill list analyses`.")],
    runs: Annotated[
        list[str],
        typer.Argument(metavar="RUN...", help="Run folders; NAME=RUN sets a name, equal names are seeds."),
    ],
    out: Annotated[Path | None, typer.Option(help="Folder for the results; analyses/NAME by default.")] = None,
    option: flags.Options = None,
    setting: Annotated[
        list[str] | None, typer.Option("--set", metavar="KEY=A,B", help="For `sweep`: values of a setting to try.")
    ] = None,
    force: flags.Force = False,
    quiet: flags.Quiet = False,
    as_json: flags.Json = False,
) -> None:
    """Analyze."""
    from tagfill.experiments.analyses import ANALYSES
    from tagfill.experiments.analyses import analyze as run_analysis
    from tagfill.experiments.report.section import SECTION_FILE

    if name not in ANALYSES:
        raise unknown_name("analysis", name, ANALYSES)
    if setting and name != "sweep":
        raise TagfillError(f"--set is an option of the analysis sweep; {name} does not train, so leave it out.")
    options = parse_options(ANALYSES[name], option or [], f"analysis '{name}'")
    folder = Path("analyses") / name if out is None else out
    require_unused(folder, force or (folder / SECTION_FILE).exists() or name == "sweep")
    section = run_analysis(name, runs, out=folder, settings=setting or [], progress=terminal.progress(quiet), **options)
    if as_json:
        terminal.show_json({"analysis": name, "folder": str(folder.absolute()), **section.facts})
        return
    for paragraph in section.text:
        terminal.show(paragraph)
    for table in section.tables:
        terminal.show_table(table.caption, table.columns, [[_cell(value) for value in row] for row in table.rows])
    terminal.show(f"Figures and numbers: {folder.absolute()}")
    given = " ".join(run.rpartition("=")[2] for run in runs)
    terminal.next_step(f"tagfill report {given} --analysis {folder} --out report.html", quiet=quiet)


def _cell(value: object) -> str:
    return "–" if value is None else f"{value:g}" if isinstance(value, float) else str(value)
