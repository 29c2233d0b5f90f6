"""Write a page about finished runs: leaderboard, curves, classes, scores, class maps, missing labels, settings.

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
    out: Annotated[Path, typer.Option(help="The page; a .md twin and its figures go beside it.")] = Path("report.html"),
    dataset: Annotated[
        Path | None, typer.Option(help="The dataset folder, if it is not where the runs found it.")
    ] = None,
    split: Annotated[str, typer.Option(help="The split that gives the scores.")] = "test",
    title: Annotated[str | None, typer.Option(help="The heading.")] = None,
    analysis: Annotated[
        list[Path] | None, typer.Option(help="A folder that `tagfill analyse` wrote, as another section; repeatable.")
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Write over a page that is there.")] = False,
    as_json: flags.Json = False,
    quiet: flags.Quiet = False,
) -> None:
    """Report."""
    from tagfill import experiments

    if out.suffix != ".html":
        raise TagfillError(f"--out {out} is not the name of a page; end it with .html.")
    if out.exists() and not force:
        raise TagfillError(f"{out} is there already; choose another --out, or give --force to write over it.")
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
