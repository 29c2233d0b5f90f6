"""Simulate a partly labelled dataset from a fully labelled one.

Example: `tagfill simulate single-positive scenes --seed 1200 --out scenes-sp`
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from tagfill.cli import options, terminal
from tagfill.errors import unknown_name


def simulate(
    protocol: Annotated[str, typer.Argument(help="See `tagfill list protocols`.")],
    dataset: Annotated[Path, typer.Argument(help="A fully labelled dataset folder.")],
    out: Annotated[Path, typer.Option(help="The dataset folder to make.")],
    seed: options.Seed = 1200,
    force: options.Force = False,
    as_json: options.Json = False,
) -> None:
    """Simulate."""
    from tagfill.annotations import Dataset
    from tagfill.protocols import PROTOCOLS

    if protocol not in PROTOCOLS:
        raise unknown_name("protocol", protocol, PROTOCOLS)
    options.require_empty(out, force)
    part = PROTOCOLS[protocol](Dataset.open(dataset), seed=seed).save(out)
    if as_json:
        terminal.show_json(part.protocol)
        return
    counts = ", ".join(f"{name} {len(rows):,}" for name, rows in part.splits.items())
    terminal.show(f"{out}: {counts} images; {int(part.labels('train').positives.sum()):,} positives kept for training")
