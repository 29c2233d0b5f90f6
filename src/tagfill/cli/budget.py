"""Find out what annotators' time buys: image labels, points or boxes, at several budgets.

Example: `tagfill budget scenes --budgets 5,10,20 --kinds I,SP,SB --seeds 3 --features scenes-features --out study`

Example: `tagfill budget scenes --budgets 10 --kinds I,SP --seconds image=1,point=3 --out study`
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from tagfill.cli import flags, terminal
from tagfill.options import parse_settings


def budget(
    dataset: Annotated[Path, typer.Argument(help="A fully labelled dataset folder, with boxes or masks.")],
    out: Annotated[Path, typer.Option(help="Folder for datasets, runs and results; goes on where it stopped.")],
    budgets: Annotated[
        str, typer.Option(help="Percent of what it costs to label every image for every class, joined by commas.")
    ] = "0.25,0.5,1,2,4",
    kinds: Annotated[
        str, typer.Option(help="I: image labels; SP, SB: a point or box on one instance; AP, AB: on all of them.")
    ] = "I,SP,SB,AP,AB",
    seeds: Annotated[int, typer.Option(min=1, help="Draws and runs of each.")] = 3,
    seconds: Annotated[
        str, typer.Option(metavar="NAME=SECONDS", help="What annotations cost; a point and a box on top of an image's.")
    ] = "image=1,point=1.4,box=6",
    equal: Annotated[
        bool, typer.Option("--equal-annotations", help="As many labels of each kind, whatever they cost.")
    ] = False,
    method: Annotated[str, typer.Option(help="What trains, see `tagfill list methods`.")] = "patchml",
    epochs: Annotated[int, typer.Option(min=1)] = 20,
    features: Annotated[Path | None, typer.Option(help="Train on this feature cache instead of images.")] = None,
    maps: Annotated[
        str, typer.Option(help="For mAP-loc: class maps scaled by `minmax`, by `sigmoid`, or `coupled`.")
    ] = ("minmax"),
    setting: Annotated[
        list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="Any setting of a recipe, for all runs.")
    ] = None,
    split: Annotated[str, typer.Option(help="The split that gives the scores.")] = "test",
    jobs: flags.Jobs = None,
    engine: flags.Engine = "joblib",
    ray_address: flags.RayAddress = None,
    quiet: flags.Quiet = False,
    as_json: flags.Json = False,
) -> None:
    """Study budgets."""
    from tagfill import experiments
    from tagfill.experiments.budget_results import COLUMNS, parse_costs, parse_kinds, parse_percents

    plan = experiments.BudgetPlan(parse_kinds(kinds), parse_percents(budgets), seeds, parse_costs(seconds), equal)
    study = experiments.budget(
        dataset,
        plan,
        out=out,
        method=method,
        epochs=epochs,
        features=features,
        localize=maps,
        overrides=parse_settings(setting or []),
        split=split,
        jobs=jobs,
        engine=engine,
        ray_address=ray_address,
        progress=terminal.progress(quiet),
    )
    if as_json:
        terminal.show_json(study.to_json())
        return
    terminal.show_table(f"{study.dataset}, {study.method}, seeds: {seeds}", COLUMNS, study.rows())
    terminal.show(f"Table, figure, maps and runs: {out.absolute()}")
