"""Rank the unknown labels that are most likely present, and the annotations that are most likely wrong.

Example: `tagfill suggest runs/photos-en photos --out suggestions.parquet`

Example: `tagfill suggest runs/photos-en photos --split new --order value --per-class 200 --out suggestions.csv`
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from tagfill.cli import flags, terminal


def suggest(
    run: Annotated[Path, typer.Argument(help="A run folder, or for images that it has not seen a model folder.")],
    dataset: Annotated[Path, typer.Argument(help="A dataset folder.")],
    out: Annotated[Path, typer.Option(help="A .parquet or .csv file.")],
    split: Annotated[str, typer.Option(help="Whose images to look at.")] = "train",
    folds: Annotated[
        int | None,
        typer.Option(min=0, help="Models to train so that none is asked about what it learned from; 5 for `train`."),
    ] = None,
    missing: Annotated[int, typer.Option(min=0, help="Unknown labels to suggest at most.")] = 10_000,
    wrong: Annotated[int, typer.Option(min=0, help="Annotations to doubt at most.")] = 1_000,
    per_class: Annotated[int | None, typer.Option(min=1, help="Of one class at most.")] = None,
    minimum: Annotated[float, typer.Option(min=0, max=1, help="Leave out what is less probable.")] = 0.1,
    order: Annotated[str, typer.Option(help="`probability`, or `value` (uncertain and rare first).")] = "probability",
    features: Annotated[Path | None, typer.Option(help="Use this feature cache instead of images.")] = None,
    models: Annotated[Path | None, typer.Option(help="Keep the models of the folds here, to use them again.")] = None,
    seconds: Annotated[
        float, typer.Option(min=0.01, help="A reviewer's time for one, to report labels an hour.")
    ] = 2.0,
    jobs: Annotated[int | None, typer.Option(min=1, help="Processes that train at once; one a core.")] = None,
    workers: flags.Workers = 0,
    quiet: flags.Quiet = False,
    as_json: flags.Json = False,
) -> None:
    """Suggest."""
    from tagfill.curation.suggest import suggest as make

    found = make(
        run,
        dataset,
        split=split,
        folds=folds,
        missing=missing,
        wrong=wrong,
        per_class=per_class,
        minimum=minimum,
        order=order,
        features=features,
        out=models,
        jobs=jobs,
        workers=workers,
        seconds=seconds,
        progress=terminal.progress(quiet),
    )
    found.suggestions.save(out)
    told = found.to_json()
    if as_json:
        terminal.show_json({"file": str(out), **told})
        return
    terminal.show(
        f"{told['missing']:,} labels that are probably missing, {told['wrong']:,} that are probably wrong: {out}"
    )
    if found.calibration is not None:
        before, after = found.calibration
        terminal.show(f"Calibration error on validation: {100 * before:.1f} % before, {100 * after:.1f} % after")
    if found.measured is not None and told["measured"]["recovered"] is None:
        terminal.show("By the complete labels, nothing is missing")
    elif found.measured is not None:
        firsts = ", ".join(f"{share:.0%} of the first {k:,}" for k, share in found.measured.precision.items())
        terminal.show(f"By the complete labels, {firsts or 'nothing'} are there")
        terminal.show(
            f"An hour of review finds {found.measured.per_hour:,.0f} labels "
            f"({found.measured.per_hour_random:,.0f} in random order)"
        )
