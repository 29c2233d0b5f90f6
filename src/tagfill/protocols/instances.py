"""Located instances of (image, label) pairs, and the points that an annotator would put on them.

Instances are the points, boxes and masks of a dataset, found in one pass. A crowd counts only if a pair has nothing
else. The instances of a pair are sorted by position and size, so that the order of rows does not matter.

Points are placed in one of these ways:

- `mask`: on a uniformly random pixel of the mask, at the center of the pixel.
- `box`: uniformly in the box.
- `center`: N(center of the box, 0.02) on each axis, relative to the image and clipped to it.
- `auto`: `mask` if there is a mask, otherwise `center`. An instance that is a point already is unchanged.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from tagfill.dataset import Dataset, masks
from tagfill.dataset.lookup import Lookup
from tagfill.dataset.tables import CROWD, has_flag
from tagfill.errors import DatasetError
from tagfill.labels import in_sorted

_WITH_EXTENT = ("box", "mask")
_WITH_PLACE = ("point", "box", "mask")
_COLUMNS = ["image", "label", "present", "kind", "x", "y", "w", "h", "flags"]
_MASKS = ["rle", "rle_height", "rle_width"]


@dataclass(frozen=True)
class Instances:
    """Located instances, grouped by pair.

    Attributes:
        pairs: keys, image·L + label, of the pairs with instances, ascending.
        starts: where the instances of each pair start in `rows`, and the end.
        rows: kind, x, y, w, h, and the masks if requested.
    """

    pairs: NDArray[np.int64]
    starts: NDArray[np.int64]
    rows: pa.Table

    def counts(self, keys: NDArray[np.int64]) -> NDArray[np.int64]:
        """The number of instances of each pair."""
        if not len(self.pairs):
            return np.zeros(len(keys), dtype=np.int64)
        at = np.minimum(np.searchsorted(self.pairs, keys), len(self.pairs) - 1)
        return np.where(self.pairs[at] == keys, self.starts[at + 1] - self.starts[at], 0)


def find_instances(
    data: Dataset, images: NDArray[np.integer], *, boxes: bool, wanted: NDArray[np.int64], masks: bool = False
) -> Instances:
    """Find the instances of some images.

    Args:
        data: its rows are read once.
        images: rows of the image table; image i of a key is the i-th of them.
        boxes: only instances with a size.
        wanted: keys of present pairs, ascending; others may have outdated locations.
        masks: also read the run lengths of masks.
    """
    width = len(data.classes)
    names, classes = Lookup(data.images["image"]), Lookup(pa.array(data.classes, pa.string()))
    position = np.full(len(data) + 1, -1, dtype=np.int64)
    position[images] = np.arange(len(images))
    kinds = Lookup(pa.array(_WITH_EXTENT if boxes else _WITH_PLACE))
    found: list[pa.RecordBatch] = []
    keys, crowds = [np.empty(0, np.int64)], [np.empty(0, np.bool_)]
    for batch in data.scan(_COLUMNS + (_MASKS if masks else [])):
        located = (kinds.codes(batch["kind"]) >= 0) & _true(batch["present"])
        at = np.flatnonzero(located)
        image = position[names.codes(batch["image"].take(pa.array(at)))]
        key = image * width + classes.codes(batch["label"].take(pa.array(at)))
        use = (image >= 0) & in_sorted(wanted, key)
        at, key = at[use], key[use]
        if len(at):
            rows = batch.take(pa.array(at))
            keys.append(key)
            crowds.append(has_flag(rows["flags"], CROWD))
            schema = _schema(masks)
            found.append(rows.select(schema.names).cast(schema))
    return _ordered(np.concatenate(keys), np.concatenate(crowds), pa.Table.from_batches(found, _schema(masks)))


def _ordered(keys: NDArray[np.int64], crowd: NDArray[np.bool_], rows: pa.Table) -> Instances:
    """Sort instances by pair; drop crowds of pairs that have other instances."""
    single = np.unique(keys[~crowd])
    use = np.flatnonzero(~crowd | ~np.isin(keys, single))
    rows, keys = rows.take(pa.array(use)), keys[use]
    extent = [pc.fill_null(rows[name], 0).to_numpy() for name in ("h", "w", "y", "x")]
    detail = [pc.fill_null(pc.binary_length(rows["rle"]), 0).to_numpy()] if "rle" in rows.column_names else []
    order = np.lexsort((*detail, *extent, keys))
    pairs, starts = np.unique(keys[order], return_index=True)
    return Instances(pairs, np.append(starts, len(order)).astype(np.int64), rows.take(pa.array(order)))


def _schema(masks: bool) -> pa.Schema:
    place = [("kind", pa.string()), *((name, pa.float32()) for name in ("x", "y", "w", "h"))]
    return pa.schema(place + ([("rle", pa.binary()), ("rle_height", pa.int32()), ("rle_width", pa.int32())] * masks))


def _true(column: pa.Array) -> NDArray[np.bool_]:
    values: NDArray[np.bool_] = pc.fill_null(column, False).to_numpy(zero_copy_only=False)
    return values


POINTS = ("auto", "mask", "box", "center")
_SPREAD = 0.02


def place_points(
    rows: pa.Table, first: NDArray[np.float64], second: NDArray[np.float64], point: str
) -> NDArray[np.float64]:
    """Place a point on each instance.

    Args:
        rows: instances: kind, x, y, w, h, and the masks for `auto` and `mask`.
        first: a uniform number for each instance.
        second: another uniform number for each instance.
        point: one of `POINTS`.

    Returns:
        x and y of each instance, relative to the image.
    """
    kind = np.array(rows["kind"].to_pylist(), dtype=object)
    x, y, w, h = (pc.fill_null(rows[name], 0).to_numpy().astype(np.float64) for name in ("x", "y", "w", "h"))
    if point == "box":
        across, down = x + (first - 0.5) * w, y + (second - 0.5) * h
    else:
        radius = _SPREAD * np.sqrt(-2 * np.log1p(-first))  # Box–Muller: two normal numbers from two uniform ones
        across, down = x + radius * np.cos(2 * np.pi * second), y + radius * np.sin(2 * np.pi * second)
    points: NDArray[np.float64] = np.clip(np.stack([across, down], axis=1), 0.0, 1.0)
    exact = kind == "point"
    points[exact] = np.stack([x, y], axis=1)[exact]
    if point in ("auto", "mask"):
        for at in np.flatnonzero(kind == "mask").tolist():
            rle, height, width = (rows[name][at].as_py() for name in ("rle", "rle_height", "rle_width"))
            chosen = random_pixel(rle, height, float(first[at]))
            if chosen is not None:
                points[at] = (chosen[1] + 0.5) / width, (chosen[0] + 0.5) / height
    if point == "mask" and not np.isin(kind, ["mask", "point"]).all():
        raise DatasetError(
            "Points are to be placed on masks, but some instances have only a box; "
            "choose point 'auto', 'box' or 'center'."
        )
    return points


def random_pixel(rle: bytes, height: int, uniform: float) -> tuple[int, int] | None:
    """Row and column of the pixel of a mask that a uniform number selects; None if the mask is empty.

    >>> random_pixel(b"22", 2, 0.0), random_pixel(b"22", 2, 0.99)
    ((0, 1), (1, 1))
    """
    try:
        lengths = masks.runs(rle)
    except ValueError as problem:
        raise DatasetError(f"The run lengths of a mask {problem}; 'tagfill inspect' names the row.") from None
    painted = np.cumsum(lengths[1::2])
    if not len(painted) or painted[-1] <= 0:
        return None
    chosen = int(uniform * painted[-1])
    run = int(np.searchsorted(painted, chosen, side="right"))
    within = chosen - (int(painted[run - 1]) if run else 0)
    at = int(lengths[: 2 * run + 1].sum()) + within
    return at % height, at // height
