"""Suggest missing labels, and annotations that may be wrong.

Example: `tagfill suggest photos --run runs/photos-en --out suggestions.parquet`

Example: `tagfill suggest photos runs/photos-en --split new --order value --per-class 200 --out suggestions.csv`

Example: `tagfill suggest photos --predictions 1.parquet --predictions 2.parquet --per-class 100 --out s.parquet`
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from tagfill.cli import flags, terminal
from tagfill.errors import TagfillError


def suggest(
    dataset: Annotated[Path, typer.Argument(help="A dataset folder.")],
    out: Annotated[Path, typer.Option(help="The .parquet or .csv file to write.")],
    run_folder: flags.RunArgument = None,
    run: Annotated[Path | None, typer.Option(help="A run folder; with --folds 0 also a model folder.")] = None,
    predictions: Annotated[
        list[Path] | None,
        typer.Option(metavar="FILE", help="Take the top of this Parquet file of `predict` instead; repeatable."),
    ] = None,
    split: Annotated[str, typer.Option(help="Split of the images.")] = "train",
    folds: Annotated[
        int | None,
        typer.Option(min=0, help="Models to train, so that none scores its own training images; 5 for `train`."),
    ] = None,
    missing: Annotated[int, typer.Option(min=0, help="Maximum number of missing labels.")] = 10_000,
    wrong: Annotated[int, typer.Option(min=0, help="Maximum number of wrong annotations.")] = 1_000,
    per_class: Annotated[int | None, typer.Option(min=1, help="Maximum number per class.")] = None,
    minimum: Annotated[float, typer.Option(min=0, max=1, help="Lowest probability.")] = 0.1,
    order: Annotated[str, typer.Option(help="`probability`, or `value` (uncertain and rare first).")] = "probability",
    features: Annotated[Path | None, typer.Option(help="Use this feature cache instead of images.")] = None,
    evidence: flags.Evidence = None,
    no_evidence: flags.NoEvidence = False,
    models: Annotated[Path | None, typer.Option(help="Folder to keep the fold models in for reuse.")] = None,
    seconds: Annotated[
        float, typer.Option(min=0.01, help="A reviewer's time per suggestion, to report labels per hour.")
    ] = 2.0,
    spreadsheet: flags.Spreadsheet = False,
    jobs: flags.Jobs = None,
    workers: flags.Workers = 0,
    quiet: flags.Quiet = False,
    device: flags.Device = "auto",
    as_json: flags.Json = False,
) -> None:
    """Suggest."""
    from tagfill.curation import Suggestions
    from tagfill.curation.from_predictions import suggest_from_predictions
    from tagfill.curation.suggest import describe_weights
    from tagfill.curation.suggest import suggest as make_suggestions
    from tagfill.dataset import Dataset

    if predictions:
        if run is not None or run_folder is not None:
            raise TagfillError("Suggestions come from a run or from predictions; leave out --run or --predictions.")
        Suggestions.check_path(out, spreadsheet=spreadsheet)
        taken = suggest_from_predictions(
            Dataset.open(dataset),
            predictions,
            per_class=per_class,
            missing=missing if per_class is None else None,
            minimum=minimum,
            progress=terminal.progress(quiet),
        )
        taken.save(out, spreadsheet=spreadsheet)
        if as_json:
            terminal.show_json({"file": str(out), "suggestions": len(taken), "missing": len(taken)})
            return
        terminal.show(f"{len(taken):,} probably missing labels: {out}")
        terminal.next_step(f"tagfill review {dataset} --suggestions {out}", quiet=quiet)
        return
    dataset, run = flags.dataset_and_run("suggest", dataset, run_folder, run)
    Suggestions.check_path(out, spreadsheet=spreadsheet)
    found = make_suggestions(
        dataset,
        run,
        split=split,
        folds=folds,
        missing=missing,
        wrong=wrong,
        per_class=per_class,
        minimum=minimum,
        order=order,
        features=features,
        evidence=flags.chosen_evidence(evidence, no_evidence),
        out=models,
        jobs=jobs,
        device=device,
        workers=workers,
        seconds=seconds,
        progress=terminal.progress(quiet),
    )
    found.suggestions.save(out, spreadsheet=spreadsheet)
    summary = found.to_json()
    if as_json:
        terminal.show_json({"file": str(out), **summary})
        return
    terminal.show(
        f"{summary['missing']:,} probably missing labels, {summary['wrong']:,} probably wrong annotations: {out}"
    )
    terminal.show(str(found.estimates))
    if found.weights:
        terminal.show(describe_weights(found.weights))
    terminal.show(str(found.label_errors))
    if found.calibration is not None:
        before, after = found.calibration
        terminal.show(f"Calibration error on validation: {100 * before:.1f} % before, {100 * after:.1f} % after")
    if found.measured is not None and summary["measured"]["recovered"] is None:
        terminal.show("According to the complete labels, nothing is missing")
    elif found.measured is not None:
        firsts = ", ".join(f"{share:.0%} of the first {k:,}" for k, share in found.measured.precision.items())
        terminal.show(f"According to the complete labels, {firsts or 'none'} are correct")
        terminal.show(
            f"An hour of review finds {found.measured.per_hour:,.0f} labels "
            f"({found.measured.per_hour_random:,.0f} in random order)"
        )
    terminal.next_step(f"tagfill review {dataset} --suggestions {out} --run {run}", quiet=quiet)
