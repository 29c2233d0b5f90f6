"""Compare methods for partial labels on the embedded dataset.

Example: `tagfill demo --out demo`
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from tagfill.cli import flags, terminal


def demo(
    out: Annotated[Path, typer.Option(help="Folder for the data, the runs and the report.")] = Path("demo"),
    epochs: Annotated[int, typer.Option(min=1, help="Epochs per run.")] = 25,
    seeds: Annotated[int, typer.Option(min=1, help="Runs per method.")] = 1,
    jobs: flags.Jobs = None,
    quiet: flags.Quiet = False,
    as_json: flags.Json = False,
) -> None:
    """Run the demo; a second call only shows the result."""
    from tagfill import experiments

    progress = terminal.progress(quiet)
    board = experiments.demo(out, epochs=epochs, seeds=seeds, jobs=jobs, progress=progress)
    if as_json:
        terminal.show_json(board.to_json())
        return
    terminal.show_board(board, "Leaderboard")
    terminal.show("gap: recovered share of the difference between an (unknown means absent) and full (all labels).")
    terminal.show("annotation: cost of the training labels at 1 s per label and 1.4 s per point.")
    terminal.show(f"Runs:   {(out / 'runs').absolute()}")
    terminal.show(f"Report: {(out / 'report.html').absolute()}")
