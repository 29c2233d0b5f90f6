"""Work with Label Studio.

Example: `tagfill label-studio config my-data --out config.xml`

`tagfill serve RUN --label-studio` is its machine learning backend, `tagfill write --format label-studio` writes tasks,
and `tagfill import label-studio` reads exports.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from tagfill.cli import flags, terminal
from tagfill.errors import TagfillError

app = typer.Typer(no_args_is_help=True, rich_markup_mode=None)


@app.callback()
def main() -> None:
    """Work with Label Studio."""


@app.command("config")
def config(
    dataset: Annotated[Path, typer.Argument(metavar="DATASET", help="A dataset folder.")],
    layout: Annotated[
        str,
        typer.Option(
            help="`list`: checkboxes, and whether the other tags are absent or unknown; `per-class`: each tag is asked."
        ),
    ] = "list",
    boxes: Annotated[bool, typer.Option("--boxes", help="Add boxes.")] = False,
    points: Annotated[bool, typer.Option("--points", help="Add points.")] = False,
    image_key: Annotated[str, typer.Option(help="Key of the image in the data of a task.")] = "image",
    out: Annotated[Path | None, typer.Option(help="File to write; by default standard output.")] = None,
    force: Annotated[bool, typer.Option("--force", help="Overwrite what exists.")] = False,
    quiet: flags.Quiet = False,
) -> None:
    """Write a labeling configuration in which annotators can say present, absent and unknown."""
    from tagfill.dataset import Dataset
    from tagfill.formats.label_studio_config import labeling_config
    from tagfill.io import atomic_write

    text = labeling_config(
        Dataset.open(dataset).classes, layout=layout, boxes=boxes, points=points, image_key=image_key
    )
    if out is None:
        typer.echo(text, nl=False)
        return
    if out.exists() and not force:
        raise TagfillError(f"{out} exists already; choose another --out, or give --force to overwrite it.")
    with atomic_write(out) as file:
        file.write(text.encode())
    terminal.show(f"{out}: paste it into Label Studio, Settings, Labeling Interface, Code")
    terminal.next_step(f"tagfill serve RUN --label-studio --dataset {dataset}", quiet=quiet)
