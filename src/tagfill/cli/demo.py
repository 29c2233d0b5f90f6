"""Show what partial labels cost and what each method wins back, on the embedded dataset.

Example: `tagfill demo --out demo`
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from tagfill.cli import options, terminal


def demo(
    out: Annotated[Path, typer.Option(help="Folder for the simulated dataset and the runs.")] = Path("demo"),
    epochs: Annotated[int, typer.Option(min=1, help="Epochs of each method.")] = 25,
    seed: options.Seed = 0,
    quiet: options.Quiet = False,
    as_json: options.Json = False,
) -> None:
    """Run it; a second time it only shows the result."""
    from tagfill import experiments

    progress = terminal.progress(quiet)
    progress.say("Scenes with one known label an image, against the same scenes with all labels.")
    rows = experiments.demo(out, epochs=epochs, seed=seed, progress=progress)
    if as_json:
        terminal.show_json(
            [
                {"method": row.method, "test_mAP": row.mean, "gap_closed": row.gap_closed, "run": str(row.run.folder)}
                for row in rows
            ]
        )
        return
    terminal.show_table(
        "Leaderboard",
        ["method", "test mAP", "gap closed", "best epoch"],
        [[row.method, f"{row.mean:.2f}", f"{row.gap_closed:.0%}", str(row.run.best["epoch"])] for row in rows],
    )
    terminal.show("The gap is that between an (unknown means absent) and full labels.")
    terminal.show(f"Runs:   {(out / 'runs').absolute()}")
    terminal.show(f"Report: {(out / experiments.REPORT).absolute()}")
