"""Write a dataset, or predictions, in another format.

Example: `tagfill write my-data --format csv --out my-labels.csv`

Example: `tagfill write my-data --format coco --out my-coco -o unknown=absent`

Example: `tagfill write filled --format label-studio --out tasks.json`

Example: `tagfill write predictions.parquet --out predicted-tags.csv`

A format refuses what it cannot express, and names the option that gives it up. Predictions become a table of tags with
one row per image: the labels that are present.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from tagfill.cli import flags, terminal
from tagfill.errors import TagfillError
from tagfill.io import require_unused
from tagfill.options import parse_options


def write(
    source: Annotated[
        Path,
        typer.Argument(
            metavar="SRC", help="A folder of a dataset or of `tagfill fill`, or a file of `tagfill predict`."
        ),
    ],
    out: Annotated[Path, typer.Option(help="File or folder to write.")],
    format_: Annotated[str, typer.Option("--format", metavar="FORMAT", help="See docs/formats.md.")] = "tags",
    given: flags.Options = None,
    force: Annotated[bool, typer.Option("--force", help="Overwrite what exists.")] = False,
    quiet: flags.Quiet = False,
    as_json: flags.Json = False,
) -> None:
    """Write."""
    from tagfill import formats
    from tagfill.dataset import Dataset

    function = formats.get(format_).write
    if source.name == "filled.csv" and flags.filled_folder(source.parent):
        source = source.parent  # whose dataset has the same tags
    predictions = source.is_file()
    if predictions and format_ != "tags":
        raise TagfillError(f"Predictions are written as --format tags, not as {format_}; import them to write others.")
    if predictions:
        function = formats.get("tags").write_cells
    values = parse_options(function, given or [], f"writing '{format_}'")
    if out.is_dir():
        require_unused(out, force)
    elif out.exists() and not force:
        raise TagfillError(f"{out} exists already; choose another --out, or give --force to overwrite it.")
    if predictions:
        from tagfill.inference import read_predicted_tags

        tags = read_predicted_tags(source)
        function(tags, out, **values)
        counts = {"images": len(tags), "tags": sum(map(len, tags.values()))}
    else:
        dataset = Dataset.open(source / "dataset" if flags.filled_folder(source) else source)
        function(dataset, out, progress=terminal.progress(quiet), **values)
        counts = {"images": len(dataset), "classes": len(dataset.classes)}
    if as_json:
        terminal.show_json({"out": str(out), "format": format_, **counts})
    else:
        listed = ", ".join(f"{count:,} {what}" for what, count in counts.items())
        terminal.show(f"{out}: {listed}, written as {format_}")
    if predictions:
        step = f"tagfill review DATASET --suggestions {source}"
    elif format_ == "tags":
        step = f"tagfill fill {out} --photos {dataset.root} --out filled"
    else:
        step = f"tagfill import {format_} {out} --out DIR   (after annotating)"
    terminal.next_step(step, quiet=quiet or as_json)
