"""Compare image labels, points and boxes at equal annotation cost.

Example: `tagfill budget scenes --budgets 5,10,20 --kinds I,SP,SB --seeds 3 --features scenes-features --out study`

Example: `tagfill budget scenes --budgets 10 --kinds I,SP --seconds image=1,point=3 --out study`

Example: `tagfill budget scenes --budgets 5,10 --kinds I,SP,SP+patchcluster --out study`
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from tagfill.cli import flags, terminal
from tagfill.options import parse_settings


def budget(
    dataset: Annotated[Path, typer.Argument(help="A fully labeled dataset folder with boxes or masks.")],
    out: Annotated[Path, typer.Option(help="Folder for datasets, runs and results; an interrupted study continues.")],
    budgets: Annotated[
        str, typer.Option(help="Percent of the cost of labeling every image for every class, comma-separated.")
    ] = "0.25,0.5,1,2,4",
    kinds: Annotated[
        str,
        typer.Option(
            help="I: image labels; SP, SB: a point or box on one object; AP, AB: on all objects. "
            "SP+patchcluster adds a term to the method."
        ),
    ] = "I,SP,SB,AP,AB",
    seeds: Annotated[int, typer.Option(min=1, help="Draws and runs of each kind and budget.")] = 3,
    seconds: Annotated[
        str, typer.Option(metavar="NAME=SECONDS", help="Cost of annotations; a point or box adds to the image label.")
    ] = "image=1,point=1.4,box=6",
    equal: Annotated[
        bool,
        typer.Option("--equal-annotations", help="Equal numbers of labels instead of equal cost."),
    ] = False,
    located: Annotated[
        float | None,
        typer.Option(
            "--located-per-image",
            min=0,
            help="Present classes per image that SP and SB are charged for.",
            show_default="the dataset's mean",
        ),
    ] = None,
    absent_cells: Annotated[
        bool,
        typer.Option("--absent-cells", help="I also teaches maps that an absent class is absent in all cells."),
    ] = False,
    method: Annotated[str, typer.Option(help="Method to train; see `tagfill list methods`.")] = "patchml",
    epochs: Annotated[int, typer.Option(min=1, help="Epochs per run.")] = 20,
    features: Annotated[Path | None, typer.Option(help="Train on this feature cache instead of images.")] = None,
    cache: flags.Cache = True,
    maps: Annotated[
        str, typer.Option(help="Scaling of class maps for mAP-loc: `minmax`, `sigmoid` or `coupled`.")
    ] = "minmax",
    setting: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="KEY=VALUE", help="A setting of all runs; repeatable."),
    ] = None,
    split: Annotated[str, typer.Option(help="Split to score.")] = "test",
    jobs: flags.Jobs = None,
    engine: flags.Engine = "joblib",
    ray_address: flags.RayAddress = None,
    quiet: flags.Quiet = False,
    device: flags.Device = "auto",
    as_json: flags.Json = False,
) -> None:
    """Study budgets."""
    from tagfill import experiments
    from tagfill.experiments.budget_results import COLUMNS, parse_costs, parse_kinds, parse_percents

    plan = experiments.BudgetPlan(
        parse_kinds(kinds), parse_percents(budgets), seeds, parse_costs(seconds), equal, located, absent_cells
    )
    study = experiments.budget(
        dataset,
        plan,
        out=out,
        method=method,
        epochs=epochs,
        features=features,
        cache=cache,
        localize=maps,
        overrides=parse_settings(setting or []),
        split=split,
        jobs=jobs,
        device=device,
        engine=engine,
        ray_address=ray_address,
        progress=terminal.progress(quiet),
    )
    if as_json:
        terminal.show_json(study.to_json())
        return
    terminal.show_table(f"{study.dataset}, {study.method}, seeds: {seeds}", COLUMNS, study.rows())
    terminal.show(f"Table, figure, maps and runs: {out.absolute()}")
    terminal.next_step(f"tagfill plan {dataset} --hours 8 --run RUN --study {out} --out plan", quiet=quiet)
