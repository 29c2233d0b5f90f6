"""Score a trained model on a split.

Example: `tagfill evaluate runs/en-scl scenes --split test`
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from tagfill.cli import options, terminal


def evaluate(
    run: Annotated[Path, typer.Argument(help="A run or model folder.")],
    dataset: Annotated[Path, typer.Argument(help="A dataset folder with the same classes.")],
    split: Annotated[str, typer.Option(help="The split to score.")] = "test",
    features: Annotated[Path | None, typer.Option(help="Use this feature cache instead of images.")] = None,
    workers: options.Workers = 0,
    as_json: options.Json = False,
) -> None:
    """Evaluate."""
    import numpy as np

    from tagfill import training
    from tagfill.annotations import Dataset

    result = training.evaluate(run, Dataset.open(dataset), split=split, features=features, workers=workers)
    if as_json:
        terminal.show_json(result.to_json())
        return
    order = np.argsort(result.average_precision)
    rows = [
        [result.classes[c], f"{100 * result.average_precision[c]:.2f}", f"{result.known[c]:,}"]
        for c in order
        if not np.isnan(result.average_precision[c])
    ]
    terminal.show_table(f"{split}: {result.images:,} images", ["class", "AP", "known labels"], rows)
    terminal.show(f"mAP {100 * result.mean:.2f}")
