"""Train several methods with several seeds, and rank them.

Example: `tagfill compare scenes-sp --methods ll-r,en+scl,role,se --features scenes-features --seeds 3 --out comparison`

Example: `tagfill compare scenes-sp --methods en+scl,ll-r:boost=5 --grid optimizer.lr=1e-3,1e-4 --out comparison`

Example: `tagfill compare scenes-sp --methods role,se --engine ray --ray-address auto --out comparison`
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from tagfill.cli import flags, terminal
from tagfill.options import parse_settings


def compare(
    dataset: Annotated[Path, typer.Argument(help="A dataset folder.")],
    methods: Annotated[
        str,
        typer.Option(help="Comma-separated names; `an` and, on simulated data, `full` are added, with each inference."),
    ],
    out: Annotated[Path, typer.Option(help="Folder for runs and leaderboard; an interrupted comparison continues.")],
    seeds: Annotated[int, typer.Option(min=1, help="Runs per method.")] = 3,
    epochs: Annotated[int, typer.Option(min=1, help="Epochs per run.")] = 10,
    features: Annotated[Path | None, typer.Option(help="Train on this feature cache instead of images.")] = None,
    cache: flags.Cache = True,
    grid: Annotated[
        list[str] | None,
        typer.Option(metavar="KEY=A,B", help="Values to try on the first seed; the best on validation is used."),
    ] = None,
    setting: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="KEY=VALUE", help="A setting of all runs; repeatable."),
    ] = None,
    split: Annotated[
        str | None,
        typer.Option(
            help="Split to score; by default `test`, else `val`, else training images that each run holds out."
        ),
    ] = None,
    jobs: flags.Jobs = None,
    engine: flags.Engine = "joblib",
    ray_address: flags.RayAddress = None,
    report: Annotated[bool, typer.Option("--report/--no-report", help="Also write report.html and report.md.")] = True,
    quiet: flags.Quiet = False,
    device: flags.Device = "auto",
    as_json: flags.Json = False,
) -> None:
    """Compare."""
    from tagfill import experiments

    board = experiments.compare(
        dataset,
        methods,
        out=out,
        seeds=seeds,
        epochs=epochs,
        features=features,
        cache=cache,
        grid=grid or [],
        overrides=parse_settings(setting or []),
        split=split,
        jobs=jobs,
        device=device,
        engine=engine,
        ray_address=ray_address,
        report=report,
        progress=terminal.progress(quiet),
    )
    if as_json:
        terminal.show_json(board.to_json())
        return
    terminal.show_board(board, f"{board.dataset}, {seeds} seeds")
    if board.note:
        terminal.show(board.note)
    terminal.show(f"Runs and leaderboard: {out.absolute()}")
    if report:
        terminal.show(f"Report: {(out / 'report.html').absolute()}")
    best = next((score for score in board.scores if not score.complete), board.scores[0])
    terminal.next_step(
        f"tagfill predict {out / 'runs' / (best.name.replace(':', '-') + '-s0')} PHOTOS --out predictions.csv",
        quiet=quiet or bool(best.overrides) or board.split == "held-out",
    )
