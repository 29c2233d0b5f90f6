"""From the log of a review to rows of the dataset.

Each decision that holds becomes a row with `source` review, the time of the decision and what it cost. Folding compares
what the log says with what the rows say, so doing it twice, or after a crash in between, changes nothing; a decision
that was undone after it had become a row loses its row.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tagfill.annotations import Dataset, tables
from tagfill.annotations.rows import SCHEMA, from_records
from tagfill.curation.decisions import DECIDE, Entry
from tagfill.files import replacing

SOURCE = "review"


def fold(dataset: Dataset, entries: Sequence[Entry], live: Sequence[Entry]) -> int:
    """Make the rows of a dataset folder agree with a log.

    Args:
        dataset: opened from a folder; open it again afterwards to see the rows.
        entries: the whole log.
        live: the decisions that hold.

    Returns:
        How many rows were added or taken away; if none, no file is touched.
    """
    if not isinstance(dataset.annotations, Path):
        raise ValueError("only a dataset on disk has rows to add to")
    wanted = {(*entry.pair, entry.moment): entry for entry in live}
    known = {(*entry.pair, entry.moment) for entry in entries if entry.action == DECIDE}
    there: set[tuple[str, str, datetime]] = set()
    stale = 0
    for batch in dataset.scan(["image", "label", "source", "time"]):
        keys = _reviewed(batch, known)
        there.update(key for _, key in keys if key in wanted)
        stale += sum(key not in wanted for _, key in keys)
    fresh = [entry for key, entry in wanted.items() if key not in there]
    if not fresh and not stale:
        return 0
    with replacing(dataset.annotations) as file:
        write = tables.writer(dataset.annotations.suffix.removeprefix("."))
        write(file, _rows(dataset, known, set(wanted), fresh), SCHEMA)
    return len(fresh) + stale


def _rows(
    dataset: Dataset,
    known: set[tuple[str, str, datetime]],
    wanted: set[tuple[str, str, datetime]],
    fresh: Sequence[Entry],
) -> Iterator[pa.RecordBatch]:
    """The rows as they will be: without those of decisions that no longer hold, then the new ones."""
    for batch in dataset.scan():
        stale = [row for row, key in _reviewed(batch, known) if key not in wanted]
        yield batch.take(pa.array(np.delete(np.arange(batch.num_rows), stale))) if stale else batch
    yield from _as_rows(fresh).to_batches()


def _as_rows(entries: Sequence[Entry]) -> pa.Table:
    return from_records(
        [
            {
                "image": entry.image,
                "label": entry.label,
                "present": entry.present,
                "source": SOURCE,
                "time": entry.moment,
                "seconds": entry.seconds,
            }
            for entry in entries
        ]
    )


def _reviewed(
    batch: pa.RecordBatch, known: set[tuple[str, str, datetime]]
) -> list[tuple[int, tuple[str, str, datetime]]]:
    """Positions and keys of the rows that come from this log."""
    rows = np.flatnonzero(
        pc.fill_null(pc.equal(batch["source"], SOURCE), False).to_numpy(zero_copy_only=False)
        & batch["time"].is_valid().to_numpy(zero_copy_only=False)
    )
    few = batch.select(["image", "label", "time"]).take(pa.array(rows)).to_pylist()
    keys = [(one["image"], one["label"], one["time"]) for one in few]
    return [(int(row), key) for row, key in zip(rows, keys, strict=True) if key in known]
