"""The table of annotations: what somebody looked at, one row each.

| column | meaning |
|---|---|
| image | path below the image root, also the image's identity |
| label | class name |
| present | verified present, verified absent, or null: looked at, cannot tell |
| kind | what was drawn: `image` (nothing), `point`, `box` or `mask` |
| x y w h | relative to the image; point: x, y; box and mask: centre and size |
| rle, rle_height, rle_width | a mask's COCO run lengths and the raster that they belong to |
| flags | crowd, difficult, group, observed… |
| source | who or what said so |
| time | when, in UTC |
| seconds | what it cost |
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from tagfill.errors import DatasetError, unknown_name

KINDS = ("image", "point", "box", "mask")
REQUIRED = frozenset({"image", "label", "present", "split"})  # of the columns of either table

SCHEMA = pa.schema(
    [
        pa.field("image", pa.string(), nullable=False),
        pa.field("label", pa.string(), nullable=False),
        pa.field("present", pa.bool_()),
        pa.field("kind", pa.string(), nullable=False),
        pa.field("x", pa.float32()),
        pa.field("y", pa.float32()),
        pa.field("w", pa.float32()),
        pa.field("h", pa.float32()),
        pa.field("rle", pa.binary()),
        pa.field("rle_height", pa.int32()),
        pa.field("rle_width", pa.int32()),
        pa.field("flags", pa.list_(pa.string())),
        pa.field("source", pa.string()),
        pa.field("time", pa.timestamp("us", tz="UTC")),
        pa.field("seconds", pa.float32()),
    ]
)

IMAGES_SCHEMA = pa.schema(
    [
        pa.field("image", pa.string(), nullable=False),
        pa.field("split", pa.string(), nullable=False),
        pa.field("width", pa.int32()),
        pa.field("height", pa.int32()),
    ]
)


def table(columns: Mapping[str, Any], schema: pa.Schema = SCHEMA) -> pa.Table:
    """A table in `schema` from some of its columns; the others are null, and `kind` is `image`.

    >>> table({"image": ["a.jpg"], "label": ["cat"], "present": [True]}).num_rows
    1
    """
    size = len(next(iter(columns.values())))
    arrays = []
    for field in schema:
        values = columns.get(field.name)
        if values is None and field.name == "kind":
            values = pa.array(["image"], pa.string()).take(pa.array(np.zeros(size, dtype=np.int64)))
        if values is None:
            arrays.append(pa.nulls(size, field.type))
        elif isinstance(values, pa.Array | pa.ChunkedArray):
            arrays.append(values.cast(field.type))
        else:
            arrays.append(pa.array(values, type=field.type))
    return pa.Table.from_arrays(arrays, schema=schema)


def from_records(records: Sequence[Mapping[str, Any]], schema: pa.Schema = SCHEMA) -> pa.Table:
    """A table in `schema` from one mapping a row, for tables that fit into memory twice.

    Raises:
        DatasetError: if a record has a column that the schema does not know, or lacks one that has to be there.

    >>> from_records([{"image": "a.jpg", "label": "cat", "presnt": True}])
    Traceback (most recent call last):
    tagfill.errors.TagfillError: There is no column 'presnt'; did you mean 'present'? Known: ...
    """
    known = set(schema.names)
    for number, record in enumerate(records):
        if strange := record.keys() - known:
            raise unknown_name("column", min(strange), schema.names)
        if lacking := REQUIRED.intersection(known).difference(record):
            raise DatasetError(f"Record {number} has no '{min(lacking)}', which every record needs.")
    return table({name: [record.get(name, _default(name)) for record in records] for name in schema.names}, schema)


def _default(column: str) -> str | None:
    return "image" if column == "kind" else None
