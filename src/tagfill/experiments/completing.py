"""The ceiling of a comparison: the same images in the same splits, with all their labels."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc

from tagfill.annotations import Dataset
from tagfill.errors import TagfillError


def complete(part: Dataset, folder: Path) -> Path:
    """Save a simulated dataset with the labels that it was simulated from; one that exists already is kept.

    Args:
        part: the simulated dataset, whose splits hold: a protocol may have split validation from training.
        folder: to save it in.

    Returns:
        The folder.
    """
    if not (folder / "dataset.yaml").exists():
        completed(part).save(folder)
    return folder


def completed(part: Dataset) -> Dataset:
    """A simulated dataset with the labels that it was simulated from: the same images in the same splits."""
    assert part.truth is not None
    whole = Dataset.open(part.truth)
    if whole.classes != part.classes:
        raise TagfillError(f"The truth of {part.name}, {part.truth}, has other classes.")
    names = pa.array(part.names())
    rows = pa.Table.from_batches(
        [batch.filter(pc.is_in(batch["image"], value_set=names)) for batch in whole.rows().to_batches()],
        schema=whole.rows().schema,
    )
    return part.replace(name=f"{part.name}-complete", annotations=rows, folder=None, truth=None, protocol=None)
