"""Import a dataset from another format.

Example: `tagfill import scenes --out scenes`

Example: `tagfill import voc VOCdevkit --out voc`

The format `scenes` renders the embedded dataset and reads nothing.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from tagfill.cli import flags, inspect, terminal
from tagfill.errors import TagfillError
from tagfill.options import parse_options, require_options


def import_(
    format_: Annotated[str, typer.Argument(metavar="FORMAT", help="See `tagfill list formats`.")],
    sources: Annotated[list[Path] | None, typer.Argument(metavar="[SRC]…", help="Files or folders to read.")] = None,
    out: Annotated[Path, typer.Option(help="Dataset folder to create.")] = ...,  # type: ignore[assignment]
    absent_means: Annotated[
        str | None, typer.Option(help="Meaning of labels that are not marked present: `unknown` or `absent`.")
    ] = None,
    given: flags.Options = None,
    seed: flags.Seed = 0,
    force: flags.Force = False,
    quiet: flags.Quiet = False,
    as_json: flags.Json = False,
) -> None:
    """Import."""
    from tagfill import formats, scenes
    from tagfill.dataset import Dataset

    texts = [*(given or []), *([f"absent_means={absent_means}"] if absent_means else [])]
    progress = terminal.progress(quiet)
    flags.require_empty(out, force)
    if format_ == "scenes":
        if sources:
            raise TagfillError("`tagfill import scenes` renders its own images; leave out the source.")
        scenes.make(out, seed=seed, progress=progress, **parse_options(scenes.make, texts, "format 'scenes'"))
    else:
        what = f"format '{format_}'"
        read = formats.get(format_).read
        values = parse_options(read, texts, what)
        if not sources:
            raise TagfillError(f"There is nothing to read; give a source: tagfill import {format_} SRC --out DIR.")
        require_options(read, values, what)
        read(*sources, progress=progress, **values).save(out)
    inspect.show(Dataset.open(out), [], as_json=as_json)
