"""Results on disk while the work is under way: one Parquet file for each part of the images, whole or not there.

A row is an image and a label:

| column | type | meaning |
|---|---|---|
| image | text | its name |
| label | text | class name |
| score | float32 | probability that the label is present |
| present | bool | whether the score reaches the threshold of the class |

Images that could not be decoded have no row; their names and problems are in the metadata of the part's file. Whoever
makes parts needs to know nothing of others who do: what is missing is seen from the files.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from tagfill.files import replacing
from tagfill.inference.deciding import Decided

_TEXT = pa.dictionary(pa.int32(), pa.string())
SCHEMA = pa.schema([("image", _TEXT), ("label", _TEXT), ("score", pa.float32()), ("present", pa.bool_())])
_BAD = b"tagfill.bad"

Bad = tuple[str, str]  # name and problem


def table(names: Sequence[str], decided: Decided, classes: Sequence[str]) -> pa.Table:
    """Rows of some images.

    Args:
        names: n.
        decided: about them.
        classes: all names.
    """
    kept = decided.labels.shape[1]
    image = np.repeat(np.arange(len(names), dtype=np.int32), kept)
    columns = [
        pa.DictionaryArray.from_arrays(pa.array(image), pa.array(names, pa.string())),
        pa.DictionaryArray.from_arrays(pa.array(decided.labels.ravel()), pa.array(classes, pa.string())),
        pa.array(decided.scores.ravel()),
        pa.array(decided.present.ravel()),
    ]
    return pa.Table.from_arrays(columns, schema=SCHEMA)


@dataclass(frozen=True)
class Parts:
    """A folder of parts."""

    folder: Path

    @property
    def plan(self) -> Path:
        """What the parts depend on."""
        return self.folder / "plan.json"

    def path(self, number: int) -> Path:
        """Of a part."""
        return self.folder / f"{number:06d}.parquet"

    def missing(self, numbers: Sequence[int]) -> list[int]:
        """Those that are not there yet."""
        return [number for number in numbers if not self.path(number).exists()]

    def write(self, number: int, rows: pa.Table, bad: Sequence[Bad]) -> None:
        """Keep a part, whole or not at all."""
        with replacing(self.path(number)) as file:
            pq.write_table(rows.replace_schema_metadata({_BAD: json.dumps(list(bad))}), file, compression="zstd")

    def bad(self, number: int) -> list[Bad]:
        """Images of a part that could not be decoded."""
        metadata = pq.read_schema(self.path(number)).metadata
        return [(name, problem) for name, problem in json.loads(metadata[_BAD])]

    def rows(self, numbers: Sequence[int]) -> Iterator[pa.Table]:
        """The rows of each part, one part at a time."""
        for number in numbers:
            yield pq.read_table(self.path(number)).replace_schema_metadata(None)
