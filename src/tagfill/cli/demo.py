"""Compare methods for partial labels on the embedded dataset, and fill in its missing tags.

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
    images: Annotated[int, typer.Option(min=60, help="Training scenes; as many others are rendered.")] = 600,
    jobs: flags.Jobs = None,
    quiet: flags.Quiet = False,
    as_json: flags.Json = False,
) -> None:
    """Run the demo; a second call only shows the result."""
    from tagfill import experiments
    from tagfill.filling.demonstration import demonstrate

    progress = terminal.progress(quiet)
    sizes = images, images // 3, images - images // 3
    board = experiments.demo(out, epochs=epochs, seeds=seeds, sizes=sizes, jobs=jobs, progress=progress)
    progress.say("Filling in the missing tags of the scenes, as `tagfill fill` does for photos.")
    filled = demonstrate(out, sizes=sizes, jobs=jobs, progress=progress)
    if as_json:
        terminal.show_json(board.to_json() | {"fill": filled.to_json()})
        return
    terminal.show_board(board, "Leaderboard")
    terminal.show(
        "gap: recovered share of the difference between an (unknown means absent) and the best with all labels."
    )
    terminal.show("annotation: cost of the training labels at 1 s per label and 1.4 s per point.")
    terminal.show(f"Runs:   {(out / 'runs').absolute()}")
    terminal.show(f"Report: {(out / 'report.html').absolute()}")
    terminal.show("")
    terminal.show(filled.sentence())
    terminal.show(f"Report: {filled.result.report.absolute()}")
    terminal.next_step("tagfill fill TAGS.csv --photos PHOTOS --out filled   (with your own photos)", quiet=quiet)
