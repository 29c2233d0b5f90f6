"""Rows of images that keep all their labels, with a flag on those that the draw would have kept."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from tagfill.annotations import SCHEMA, UNKNOWN, Dataset, LabelMatrix
from tagfill.annotations.flags import OBSERVED
from tagfill.annotations.keys import contains
from tagfill.annotations.lookup import Lookup


def rows_of_others(data: Dataset, kept: LabelMatrix, splits: NDArray[np.object_]) -> Iterator[pa.RecordBatch]:
    """The rows of `data` about images outside the training split, in batches.

    Args:
        data: the source.
        kept: what the draw keeps, over all images of `data`.
        splits: the split of each image; rows of `val` that say what the draw keeps get the flag `observed`.
    """
    training, validation = splits == "train", splits == "val"
    width = kept.width
    marked = validation[kept.images()] & (kept.values != UNKNOWN)
    wanted = _statement(kept.images()[marked] * width + kept.classes[marked], kept.values[marked])
    images, classes = Lookup(data.images["image"]), Lookup(pa.array(data.classes, pa.string()))
    column = SCHEMA.get_field_index("flags")
    for batch in data.scan():
        image = images.codes(batch["image"]).astype(np.int64)
        others = np.flatnonzero(~training[image])
        if not len(others):
            continue
        rows, image = batch.take(pa.array(others)), image[others]
        key = image * width + classes.codes(rows["label"])
        present = pc.fill_null(rows["present"].cast(pa.int8()), UNKNOWN).to_numpy(zero_copy_only=False)
        chosen = validation[image] & (present != UNKNOWN) & contains(wanted, _statement(key, present))
        if chosen.any():
            rows = rows.set_column(column, rows.schema.field(column), flagged(rows["flags"], chosen))
        yield rows


def flagged(flags: pa.ListArray, chosen: NDArray[np.bool_], flag: str = OBSERVED) -> pa.ListArray:
    """The flags of each row, with one more at the end of those of chosen rows.

    >>> flagged(pa.array([None, ["crowd"], None], pa.list_(pa.string())), np.array([True, True, False])).to_pylist()
    [['observed'], ['crowd', 'observed'], None]
    """
    lengths = pc.fill_null(pc.list_value_length(flags), 0).to_numpy(zero_copy_only=False)
    old = flags.flatten()
    ends = np.cumsum(lengths + chosen)
    take = np.empty(int(ends[-1]) if len(ends) else 0, dtype=np.int64)
    added = np.zeros(len(take), dtype=bool)
    added[ends[chosen] - 1] = True
    take[added] = len(old)
    take[~added] = np.arange(len(old))
    values = pa.concat_arrays([old.cast(pa.string()), pa.array([flag])]).take(pa.array(take))
    offsets = pa.array(np.concatenate([[0], ends]).astype(np.int32))
    missing = flags.is_null().to_numpy(zero_copy_only=False) & ~chosen
    return pa.ListArray.from_arrays(offsets, values, type=flags.type, mask=pa.array(missing))


def _statement(keys: NDArray[np.int64], present: NDArray[np.int8]) -> NDArray[np.int64]:
    """A pair and whether it is present, as one number."""
    return keys * 2 + present
