"""Make a dataset folder from another format; `scenes` renders the embedded dataset.

Example: `tagfill import scenes --out scenes`
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from tagfill.cli import options, terminal
from tagfill.errors import unknown_name


def import_(
    format_: Annotated[str, typer.Argument(metavar="FORMAT", help="`scenes` is the only one so far.")],
    out: Annotated[Path, typer.Option(help="The dataset folder to make.")],
    seed: options.Seed = 0,
    force: options.Force = False,
    quiet: options.Quiet = False,
) -> None:
    """Import."""
    from tagfill import scenes

    if format_ != "scenes":
        raise unknown_name("format", format_, ["scenes"])
    options.require_empty(out, force)
    data = scenes.make(out, seed=seed, progress=terminal.progress(quiet))
    terminal.show(f"{out}: {len(data):,} images, {len(data.classes)} classes")
