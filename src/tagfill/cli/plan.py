"""Plan annotation: which kind, which images and which labels first.

Example: `tagfill plan photos --hours 40 --run runs/photos-en --out plan`

Example: `tagfill plan photos --hours 8 --run runs/photos-en --study study --goal both --out plan`
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from tagfill.cli import flags, terminal
from tagfill.io import new_folder


def plan(
    dataset: Annotated[Path, typer.Argument(help="A dataset folder.")],
    hours: Annotated[float, typer.Option(help="Hours of annotation.")],
    out: Annotated[Path, typer.Option(help="Folder for the plan and the tasks.")],
    run_folder: flags.RunArgument = None,
    run: Annotated[Path | None, typer.Option(help="A run on this dataset; its recipe is trained on folds.")] = None,
    study: Annotated[Path | None, typer.Option(help="Result of `tagfill budget`, to choose the kind.")] = None,
    goal: Annotated[str, typer.Option(help="Purpose of the model: `tags`, `places` or `both`.")] = "tags",
    kind: Annotated[str | None, typer.Option(help="I, SP, SB, AP or AB, instead of the best one of the study.")] = None,
    seconds: Annotated[
        str, typer.Option(help="Cost of annotations; a point or box adds to the image label.")
    ] = "image=1,point=1.4,box=6",
    split: Annotated[str, typer.Option(help="Split of the images to annotate.")] = "train",
    folds: Annotated[int, typer.Option(min=0, help="Models to train; 0 uses the run itself.")] = 5,
    features: Annotated[Path | None, typer.Option(help="Use this feature cache instead of images.")] = None,
    evidence: flags.Evidence = None,
    no_evidence: flags.NoEvidence = False,
    spreadsheet: flags.Spreadsheet = False,
    jobs: flags.Jobs = None,
    workers: flags.Workers = 0,
    force: flags.Force = False,
    quiet: flags.Quiet = False,
    device: flags.Device = "auto",
    as_json: flags.Json = False,
) -> None:
    """Plan."""
    from tagfill.curation.plan import plan as make_plan
    from tagfill.experiments.budget_results import parse_costs

    dataset, run = flags.dataset_and_run("plan", dataset, run_folder, run)
    with new_folder(out, "is planning", force=force, task=flags.task()):
        made = make_plan(
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
            evidence=flags.chosen_evidence(evidence, no_evidence),
            models=out / "models",
            jobs=jobs,
            device=device,
            workers=workers,
            progress=terminal.progress(quiet),
        )
        files = made.save(out, spreadsheet=spreadsheet)
    summary = made.to_json()
    if as_json:
        terminal.show_json({**summary, "files": [str(file) for file in files]})
        return
    if made.forecasts:
        rows = [[f.kind, f"{f.before:.2f}", f"{f.after:.2f}", f"{f.gain:+.2f}"] for f in made.forecasts]
        terminal.show_table(f"Expected mAP after {hours:g} hours", ["kind", "now", "then", "gain"], rows)
        if not made.forecasts[0].within:
            terminal.show("The study does not cover this budget; scores are those of its largest budget.")
    terminal.show(
        f"{made.kind}: {summary['pairs']:,} pairs of {summary['images']:,} images in {summary['expected_hours']:.1f} "
        f"hours, expected to find {summary['expected_labels']:,.0f} labels"
    )
    terminal.show(str(made.estimates))
    for file in files:
        terminal.show(str(file))
    terminal.next_step(
        f"tagfill import label-studio EXPORT.json --out DIR   (after annotating {files[2]})", quiet=quiet
    )
