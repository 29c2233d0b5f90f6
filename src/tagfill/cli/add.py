"""Add photos to a dataset, without labels.

Example: `tagfill add my-data photos/new --split train`

Photos are files or folders below the image root of the dataset; without any, all of the root is looked through. Photos
that the dataset has already are skipped, and new ones are appended.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from tagfill.cli import flags, terminal
from tagfill.errors import TagfillError


def add(
    folder: Annotated[Path, typer.Argument(metavar="DATASET", help="A dataset folder.")],
    photos: Annotated[
        list[Path] | None, typer.Argument(metavar="[PHOTOS]…", help="Files or folders; all photos by default.")
    ] = None,
    split: Annotated[str, typer.Option(help="Split of the new photos.")] = "train",
    as_json: flags.Json = False,
) -> None:
    """Add; the table of images is replaced in one step."""
    from tagfill import images
    from tagfill.dataset import Dataset
    from tagfill.dataset.dataset import add_images, local_root

    if not split.strip():
        raise TagfillError("--split is blank; name it, such as train, val or test.")
    dataset = Dataset.open(folder)
    available = images.open_root(dataset.root).names()
    if photos:
        root = local_root(dataset.root, "Adding files and folders").resolve()
        available = [name for path in photos for name in _names_below(path, root, available)]
    before = len(dataset)
    grown = add_images(folder, available, split=split)
    counts = {"added": len(grown) - before, "skipped": len(set(available)) - (len(grown) - before)}
    if as_json:
        terminal.show_json({"dataset": str(folder), "split": split, **counts, "images": len(grown)})
        return
    terminal.show(
        f"{counts['added']:,} photos added to split {split} of {folder}, {counts['skipped']:,} were there already; it "
        f"has {len(grown):,} images"
    )
    terminal.next_step(f"tagfill fill {folder} --out filled", f"tagfill train {folder}", quiet=not counts["added"])


def _names_below(path: Path, root: Path, available: list[str]) -> list[str]:
    """Names of the photos that a file or folder stands for."""
    real = path.resolve()
    if not real.exists():
        raise TagfillError(f"There is no file or folder {path}.")
    if not real.is_relative_to(root):
        raise TagfillError(f"{path} is not below {root}, the image root of the dataset; move or link the photos there.")
    name = real.relative_to(root).as_posix()
    found = [other for other in available if name in (".", other) or other.startswith(f"{name}/")]
    if not found:
        raise TagfillError(f"{path} has no photo; JPEG, PNG and WebP files are read.")
    return found
