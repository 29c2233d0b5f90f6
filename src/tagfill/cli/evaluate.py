"""Score a trained model on a split.

Example: `tagfill evaluate runs/en-scl scenes --split test`

Example: `tagfill evaluate runs/points scenes --localise --json`

Example: `tagfill evaluate runs/an scenes --boost 5`
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from tagfill.cli import options, terminal
from tagfill.errors import TagfillError


def evaluate(
    run: Annotated[Path, typer.Argument(help="A run or model folder.")],
    dataset: Annotated[Path, typer.Argument(help="A dataset folder with the same classes.")],
    split: Annotated[str, typer.Option(help="The split to score.")] = "test",
    features: Annotated[Path | None, typer.Option(help="Use this feature cache instead of images.")] = None,
    localise: Annotated[
        bool, typer.Option("--localise", help="Also score class maps against masks and boxes (mAP-loc).")
    ] = False,
    maps: Annotated[
        str, typer.Option(help="For --localise: class maps scaled by `minmax`, by `sigmoid`, or `coupled`.")
    ] = "minmax",
    boost: options.Boost = None,
    no_boost: Annotated[bool, typer.Option("--no-boost", help="Evaluate without the boost of the model.")] = False,
    workers: options.Workers = 0,
    as_json: options.Json = False,
) -> None:
    """Evaluate."""
    import numpy as np

    from tagfill import training
    from tagfill.annotations import Dataset

    if boost and no_boost:
        raise TagfillError("--boost and --no-boost exclude each other; give one of them.")
    boosting = {"boost": 1.0} if no_boost else options.boost(boost) if boost else {}
    result = training.evaluate(
        run,
        Dataset.open(dataset),
        split=split,
        features=features,
        workers=workers,
        localise=maps if localise else None,
        **boosting,
    )
    if as_json:
        terminal.show_json(result.to_json())
        return
    order = np.argsort(result.average_precision)
    rows = [
        [result.classes[c], f"{100 * result.average_precision[c]:.2f}", f"{result.known[c]:,}"]
        for c in order
        if not np.isnan(result.average_precision[c])
    ]
    columns = ["class", "AP", "known labels"]
    if result.localised is not None:
        columns.insert(2, "AP-loc")
        placed = dict(zip(result.classes, result.localised.average_precision.mean(1), strict=True))
        for row in rows:
            row.insert(2, "–" if np.isnan(placed[row[0]]) else f"{100 * placed[row[0]]:.2f}")
    terminal.show_table(f"{split}: {result.images:,} images", columns, rows)
    terminal.show(f"mAP {100 * result.mean:.2f}")
    if result.localised is not None:
        terminal.show(f"mAP-loc {100 * result.localised.mean:.2f}")
