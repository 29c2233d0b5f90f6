"""Simulate a partly labeled dataset from a fully labeled one.

Example: `tagfill simulate single-positive scenes --seed 1200 --out scenes-sp`
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from tagfill.cli import flags, terminal
from tagfill.errors import unknown_name
from tagfill.io import new_folder
from tagfill.options import parse_options, require_options


def simulate(
    protocol: Annotated[str, typer.Argument(help="See `tagfill list protocols`.")],
    dataset: Annotated[Path, typer.Argument(help="A fully labeled dataset folder.")],
    out: Annotated[Path, typer.Option(help="Dataset folder to create.")],
    given: flags.Options = None,
    seed: Annotated[int | None, typer.Option(min=0, help="Seed of the draw; by default that of the protocol.")] = None,
    force: flags.Force = False,
    as_json: flags.Json = False,
) -> None:
    """Simulate."""
    from tagfill.dataset import Dataset
    from tagfill.protocols import PROTOCOLS, describe, summary

    if protocol not in PROTOCOLS:
        raise unknown_name("protocol", protocol, PROTOCOLS)
    function, what = PROTOCOLS[protocol], f"protocol '{protocol}'"
    values = parse_options(function, given or [], what)
    require_options(function, values, what)
    data = Dataset.open(dataset)
    if seed is not None:
        values["seed"] = seed
    with new_folder(out, "is simulating a dataset", force=force, task=flags.task()):
        part = function(data, **values).save(out)
        if as_json:
            terminal.show_json(summary(part))
        else:
            terminal.show(describe(part))
            terminal.next_step(f"tagfill train {out}", f"tagfill compare {out} --methods role,en+scl --out comparison")
