"""Which labels validation is measured against."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from tagfill.annotations import NEGATIVE, POSITIVE, SCHEMA, Dataset
from tagfill.annotations.flags import OBSERVED
from tagfill.errors import DatasetError


def can_validate(dataset: Dataset, val_labels: str) -> bool:
    """Whether a validation split has a class that is known to be present somewhere and absent elsewhere.

    Tags alone, with nothing known as absent, leave nothing to rank the tagged images above.

    Args:
        dataset: the data.
        val_labels: `clean`, or `observed`, which reads the rest as absent.
    """
    if "val" not in dataset.splits:
        return False
    if val_labels == "observed":
        return True
    labels = dataset.labels("val")
    present, absent = (np.unique(labels.classes[labels.values == state]) for state in (POSITIVE, NEGATIVE))
    return len(np.intersect1d(present, absent)) > 0


def observed_labels(dataset: Dataset, split: str) -> NDArray[np.int8]:
    """The labels of a split as a protocol would have left them, everything else read as absent: N×L.

    This is how a model is chosen by somebody who has partial labels only.
    """
    rows = pa.Table.from_batches([_flagged(batch) for batch in dataset.scan()], schema=SCHEMA)
    if rows.num_rows == 0:
        raise DatasetError(
            f"val_labels: observed needs a simulated dataset, but no row of {dataset.name} is flagged as observed."
        )
    labels = dataset.replace(annotations=rows, folder=None).labels(split).dense()
    return np.where(labels == POSITIVE, POSITIVE, NEGATIVE).astype(np.int8)


def _flagged(batch: pa.RecordBatch) -> pa.RecordBatch:
    flags = batch["flags"]
    found = pc.list_parent_indices(flags).filter(pc.equal(pc.list_flatten(flags), OBSERVED))
    return batch.take(found.unique()).cast(SCHEMA)
