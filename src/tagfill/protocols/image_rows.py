"""Image-level rows from a label matrix."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from tagfill.annotations import POSITIVE, SCHEMA, Dataset, LabelMatrix
from tagfill.protocols.pairs import Pairs, known

_BLOCK_ROWS = 1 << 18


def image_rows(
    data: Dataset, kept: LabelMatrix, training: NDArray[np.bool_], source: str, seconds: float | None = None
) -> Iterator[pa.RecordBatch]:
    """A row for each kept label of a training image, in batches.

    Args:
        data: the dataset whose images and classes `kept` is about.
        kept: labels over all images of `data`.
        training: which images count.
        source: who says so.
        seconds: what each row cost.
    """
    for pairs in known(kept, _BLOCK_ROWS):
        yield rows_of(data, pairs.take(training[pairs.image]), source, seconds)


def rows_of(data: Dataset, pairs: Pairs, source: str, seconds: float | NDArray[np.floating] | None) -> pa.RecordBatch:
    """A row for each pair, with text coded as dictionaries."""
    columns: dict[str, pa.Array] = {
        **names_of(data, pairs),
        "present": pa.array(pairs.value == POSITIVE),
        "kind": constant("image", len(pairs)),
        "source": constant(source, len(pairs)),
    }
    if seconds is not None:
        columns["seconds"] = pa.array(np.broadcast_to(np.asarray(seconds, dtype=np.float32), len(pairs)))
    return batch(columns, len(pairs))


def names_of(data: Dataset, pairs: Pairs) -> dict[str, pa.Array]:
    """The columns `image` and `label` of pairs."""
    first = int(pairs.image.min(initial=len(data)))
    names = data.images["image"].slice(first, int(pairs.image.max(initial=first)) - first + 1).combine_chunks()
    return {
        "image": pa.DictionaryArray.from_arrays((pairs.image - first).astype(np.int32), names),
        "label": pa.DictionaryArray.from_arrays(pairs.label.astype(np.int32), pa.array(data.classes, pa.string())),
    }


def constant(text: str, size: int) -> pa.DictionaryArray:
    """The same text `size` times."""
    return pa.DictionaryArray.from_arrays(np.zeros(size, dtype=np.int32), pa.array([text]))


def batch(columns: dict[str, pa.Array], size: int) -> pa.RecordBatch:
    """A batch with every column of the schema; those not given are null."""
    arrays = [columns[field.name] if field.name in columns else pa.nulls(size, field.type) for field in SCHEMA]
    return pa.RecordBatch.from_arrays(arrays, names=SCHEMA.names)
