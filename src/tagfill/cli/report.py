"""Write an HTML report about finished runs.

Example: `tagfill report runs/an runs/en-scl --out report.html`

Example: `tagfill report runs/an runs/en-scl --analysis analyses/convergence --analysis analyses/groups`
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from tagfill.cli import flags, terminal
from tagfill.errors import TagfillError


def report(
    runs: Annotated[list[Path], typer.Argument(help="Run folders of one dataset.")],
    out: Annotated[Path, typer.Option(help="HTML file; .md and figures go beside it.")] = Path("report.html"),
    dataset: Annotated[Path | None, typer.Option(help="Dataset folder, if it has moved since the runs.")] = None,
    split: Annotated[str, typer.Option(help="Split to score.")] = "test",
    title: Annotated[str | None, typer.Option(help="Title of the page.")] = None,
    analysis: Annotated[
        list[Path] | None, typer.Option(help="Folder from `tagfill analyze`, added as a section. Repeatable.")
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Replace an existing page.")] = False,
    as_json: flags.Json = False,
    quiet: flags.Quiet = False,
) -> None:
    """Report."""
    from tagfill import experiments

    if out.suffix != ".html":
        raise TagfillError(f"--out {out} must end in .html.")
    if out.exists() and not force:
        raise TagfillError(f"{out} already exists; choose another --out, or give --force to replace it.")
    page = experiments.report_runs(
        runs,
        out=out,
        dataset=dataset,
        split=split,
        title=title,
        analyses=analysis or [],
        progress=terminal.progress(quiet),
    )
    if as_json:
        terminal.show_json({"page": str(page.absolute()), "markdown": str(page.with_suffix(".md").absolute())})
        return
    terminal.show(str(page))
    terminal.next_step(f"tagfill predict {runs[0]} PHOTOS --out predictions.csv", quiet=quiet)
