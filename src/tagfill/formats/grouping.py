"""A dataset image by image: its record, what is decided about it, and its rows."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tagfill.annotations import NEGATIVE, POSITIVE, Dataset
from tagfill.formats.image_files import check_name

_IMAGES_AT_ONCE = 4096


@dataclass(frozen=True)
class ImageRows:
    """One image of a dataset.

    Attributes:
        image: its identity.
        split: that it belongs to.
        size: width and height, if the dataset knows them.
        states: what is decided about each label that somebody looked at; None is "cannot tell".
        rows: its annotation rows, in the order of the dataset.
    """

    image: str
    split: str
    size: tuple[int, int] | None
    states: dict[str, bool | None]
    rows: list[dict[str, Any]]

    @property
    def present(self) -> list[str]:
        """Labels that it shows, in the order of the classes."""
        return [label for label, state in self.states.items() if state]

    def locations(self, *kinds: str) -> list[dict[str, Any]]:
        """Rows of these kinds that show a label where it is; those that a newer row overruled are left out."""
        return [row for row in self.rows if row["kind"] in kinds and row["present"] and self.states.get(row["label"])]


def by_image(dataset: Dataset, *, with_rows: bool = True) -> Iterator[ImageRows]:
    """Every image in the order of the dataset; without rows it is quicker and needs less memory."""
    labels = dataset.labels()
    words = {POSITIVE: True, NEGATIVE: False}
    rows = _rows_by_image(dataset) if with_rows else iter([[]] * len(dataset))
    for at, (record, its_rows) in enumerate(zip(dataset.images.to_pylist(), rows, strict=True)):
        check_name(record["image"], dataset.name)
        entries = slice(int(labels.starts[at]), int(labels.starts[at + 1]))
        known = zip(labels.classes[entries].tolist(), labels.values[entries].tolist(), strict=True)
        yield ImageRows(
            image=record["image"],
            split=record["split"],
            size=(record["width"], record["height"]) if record["width"] and record["height"] else None,
            states={dataset.classes[label]: words.get(value) for label, value in known},
            rows=its_rows,
        )


def _rows_by_image(dataset: Dataset) -> Iterator[list[dict[str, Any]]]:
    """The rows of each image, some thousand images at a time."""
    rows = dataset.rows()
    codes = pc.index_in(rows["image"], value_set=dataset.images["image"]).to_numpy(zero_copy_only=False)
    order = np.argsort(codes, kind="stable")
    starts = np.searchsorted(codes[order], np.arange(len(dataset) + 1)).tolist()
    for first in range(0, len(dataset), _IMAGES_AT_ONCE):
        bounds = starts[first : first + _IMAGES_AT_ONCE + 1]
        block = rows.take(pa.array(order[bounds[0] : bounds[-1]])).to_pylist()
        for start, stop in pairwise(bounds):
            yield block[start - bounds[0] : stop - bounds[0]]
