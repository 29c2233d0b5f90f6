"""Show what partial labels cost and what each method wins back, on the embedded dataset.

Example: `tagfill demo --out demo`
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from tagfill.cli import flags, terminal


def demo(
    out: Annotated[Path, typer.Option(help="Folder for the data, the runs and the report.")] = Path("demo"),
    epochs: Annotated[int, typer.Option(min=1, help="Epochs of each method.")] = 25,
    seeds: Annotated[int, typer.Option(min=1, help="Runs of each method.")] = 1,
    jobs: Annotated[int | None, typer.Option(min=1, help="Processes at once; one a core by default.")] = None,
    quiet: flags.Quiet = False,
    as_json: flags.Json = False,
) -> None:
    """Run it; a second time it only shows the result."""
    from tagfill import experiments

    progress = terminal.progress(quiet)
    board = experiments.demo(out, epochs=epochs, seeds=seeds, jobs=jobs, progress=progress)
    if as_json:
        terminal.show_json(board.to_json())
        return
    terminal.show_board(board, "Leaderboard")
    terminal.show("The gap is that between an (unknown means absent) and full (all labels); annotation is what the")
    terminal.show("training labels would cost at 1 s a label and 1.4 s a point.")
    terminal.show(f"Runs:   {(out / 'runs').absolute()}")
    terminal.show(f"Report: {(out / 'report.html').absolute()}")
