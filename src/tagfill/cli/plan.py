"""Plan how to spend annotators' time: which kind of annotation, which images and which labels first.

Example: `tagfill plan photos --hours 40 --run runs/photos-en --out plan`

Example: `tagfill plan photos --hours 8 --run runs/photos-en --study study --goal both --out plan`
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from tagfill.cli import flags, terminal


def plan(
    dataset: Annotated[Path, typer.Argument(help="A dataset folder.")],
    hours: Annotated[float, typer.Option(help="Of annotators' time.")],
    run: Annotated[Path, typer.Option(help="A run on this dataset, whose recipe is trained on folds.")],
    out: Annotated[Path, typer.Option(help="Folder for the plan and the tasks.")],
    study: Annotated[Path | None, typer.Option(help="What `tagfill budget` wrote, to choose the kind by.")] = None,
    goal: Annotated[str, typer.Option(help="What the model is for: `tags`, `places` or `both`.")] = "tags",
    kind: Annotated[str | None, typer.Option(help="I, SP, SB, AP or AB, in place of what the study says.")] = None,
    seconds: Annotated[
        str, typer.Option(help="What annotations cost; a point and a box are on top of the image's label.")
    ] = "image=1,point=1.4,box=6",
    split: Annotated[str, typer.Option(help="Whose images may be annotated.")] = "train",
    folds: Annotated[int, typer.Option(min=0, help="Models to train; 0 asks the run itself.")] = 5,
    features: Annotated[Path | None, typer.Option(help="Use this feature cache instead of images.")] = None,
    jobs: Annotated[int | None, typer.Option(min=1, help="Processes that train at once; one a core.")] = None,
    workers: flags.Workers = 0,
    force: flags.Force = False,
    quiet: flags.Quiet = False,
    as_json: flags.Json = False,
) -> None:
    """Plan."""
    from tagfill.curation.plan import plan as make
    from tagfill.experiments.budget_results import parse_costs

    flags.require_empty(out, force)
    made = make(
        dataset,
        hours,
        run=run,
        study=study,
        goal=goal,
        kind=kind,
        costs=parse_costs(seconds),
        split=split,
        folds=folds,
        features=features,
        models=out / "models",
        jobs=jobs,
        workers=workers,
        progress=terminal.progress(quiet),
    )
    files = made.save(out)
    told = made.to_json()
    if as_json:
        terminal.show_json({**told, "files": [str(file) for file in files]})
        return
    if made.forecasts:
        rows = [[f.kind, f"{f.before:.2f}", f"{f.after:.2f}", f"{f.gain:+.2f}"] for f in made.forecasts]
        terminal.show_table(f"After {hours:g} hours, by the study", ["kind", "now", "then", "gain"], rows)
        if not made.forecasts[0].within:
            terminal.show("The study's budgets do not reach that far; its largest one is shown.")
    terminal.show(
        f"{made.kind}: {told['pairs']:,} questions about {told['images']:,} images in {told['expected_hours']:.1f} "
        f"hours, expected to find {told['expected_labels']:,.0f} labels"
    )
    for file in files:
        terminal.show(str(file))
