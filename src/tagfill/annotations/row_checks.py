"""What can be wrong with annotation rows, one at a time."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from tagfill.annotations import run_lengths
from tagfill.annotations.lookup import Lookup
from tagfill.annotations.problems import Severity
from tagfill.annotations.rows import KINDS

_EDGE = 1e-3  # by how much a box may stick out of its image, for coordinates that were rounded to pixels
_PLACE, _SIZE = ("x", "y"), ("w", "h")
_RASTER = ("rle", "rle_height", "rle_width")
NEEDS = {"image": (), "point": _PLACE, "box": _PLACE + _SIZE, "mask": _PLACE + _SIZE + _RASTER}

Mask = NDArray[np.bool_]


class Columns:
    """The columns of a batch as arrays, with the positions of its images, labels and kinds."""

    def __init__(self, batch: pa.RecordBatch, images: Lookup, classes: Lookup, sizes: NDArray[np.float64]) -> None:
        self.batch = batch
        self.image, self.label = images.codes(batch["image"]), classes.codes(batch["label"])
        self.kind = Lookup(pa.array(KINDS, pa.string())).codes(batch["kind"])
        names = (*_PLACE, *_SIZE, *_RASTER)
        self.given: dict[str, Mask] = {
            name: batch[name].is_valid().to_numpy(zero_copy_only=False).astype(bool) for name in names
        }
        self.number: dict[str, NDArray[np.float64]] = {
            name: batch[name].cast(pa.float64()).to_numpy(zero_copy_only=False)  # null becomes NaN
            for name in names
            if name != "rle"
        }
        self.size = sizes[self.image]  # width and height of the image, NaN where it is not known

    def is_kind(self, name: str) -> Mask:
        """Which rows are of this kind."""
        return np.equal(self.kind, KINDS.index(name))

    def of_kind(self, lists: dict[str, tuple[str, ...]], column: str) -> Mask:
        """Which rows are of a kind whose list has the column."""
        return np.isin(self.kind, [code for code, name in enumerate(KINDS) if column in lists[name]])


@dataclass(frozen=True)
class Check:
    """A sort of problem that a row can have.

    Attributes:
        kind: its name.
        find: which rows of a batch have it.
        what: the problem of a row, in words.
        remedy: what to do.
        severity: error or warning.
    """

    kind: str
    find: Callable[[Columns], Mask]
    what: Callable[[dict[str, Any]], str]
    remedy: str
    severity: Severity = "error"


def _missing(columns: Columns) -> Mask:
    return _any(columns.of_kind(NEEDS, name) & ~columns.given[name] for name in columns.given)


def _superfluous(columns: Columns) -> Mask:
    known = columns.kind >= 0
    return _any(known & ~columns.of_kind(NEEDS, name) & columns.given[name] for name in columns.given)


def _not_finite(columns: Columns) -> Mask:
    return _any(columns.given[name] & ~np.isfinite(columns.number[name]) for name in (*_PLACE, *_SIZE))


def _outside(columns: Columns) -> Mask:
    numbers = [columns.number[name] for name in (*_PLACE, *_SIZE)]
    return _any(np.isfinite(number) & ((number < 0) | (number > 1)) for number in numbers)


def _empty(columns: Columns) -> Mask:
    return _any(columns.number[name] == 0 for name in _SIZE)


def _sticks_out(columns: Columns) -> Mask:
    edges = []
    for place, size in zip(_PLACE, _SIZE, strict=True):
        middle, half = columns.number[place], columns.number[size] / 2
        with np.errstate(invalid="ignore"):
            edges += [middle - half < -_EDGE, middle + half > 1 + _EDGE]
    return _any(edges) & ~_outside(columns) & ~_not_finite(columns)


def _bad_runs(columns: Columns) -> Mask:
    """Masks whose run lengths do not fill their raster."""
    bad = np.zeros(columns.batch.num_rows, dtype=bool)
    whole = columns.is_kind("mask") & columns.given["rle"] & columns.given["rle_height"] & columns.given["rle_width"]
    rows = np.flatnonzero(whole)
    for row, rle in zip(rows, columns.batch["rle"].take(pa.array(rows)).to_pylist(), strict=True):
        height, width = columns.number["rle_height"][row], columns.number["rle_width"][row]
        bad[row] = height <= 0 or width <= 0 or _covered(rle) != height * width
    return bad


def _other_shape(columns: Columns) -> Mask:
    """Masks whose raster cannot be the image at another scale; each side may have been rounded to a whole pixel."""
    width, height = columns.size.T
    with np.errstate(invalid="ignore"):
        difference = columns.number["rle_width"] * height - columns.number["rle_height"] * width
        different: Mask = np.abs(difference) > width + height
    return columns.is_kind("mask") & different


def _any(masks: Any) -> Mask:
    found: Mask = np.logical_or.reduce(list(masks))
    return found


def _named(record: dict[str, Any], column: str) -> str:
    value = record[column]
    return f"there is no {column}" if value is None else f"{column} '{value}'"


def _numbers(record: dict[str, Any]) -> str:
    return ", ".join(f"{name} = {record[name]:.6g}" for name in (*_PLACE, *_SIZE) if record[name] is not None)


def _lacks(record: dict[str, Any]) -> str:
    names = [name for name in NEEDS[record["kind"]] if record[name] is None]
    return f"a row of kind {record['kind']} lacks {', '.join(names)}"


def _has_too_much(record: dict[str, Any]) -> str:
    allowed = NEEDS[record["kind"]]
    names = [name for name in (*_PLACE, *_SIZE, *_RASTER) if record[name] is not None and name not in allowed]
    return f"a row of kind {record['kind']} has {', '.join(names)}"


def _covered(rle: bytes) -> int | None:
    """How many pixels run lengths cover, zeros and ones; None where they cannot be read."""
    try:
        return int(run_lengths.runs(rle).sum()) if rle else None
    except ValueError:
        return None


def _raster(record: dict[str, Any]) -> str:
    filled = _covered(record["rle"])
    runs = "the run lengths cannot be read" if filled is None else f"the run lengths cover {filled:,} pixels"
    return f"{runs}, and the raster is {record['rle_width']} × {record['rle_height']}"


CHECKS = (
    Check(
        "unknown-label",
        lambda columns: columns.label < 0,
        lambda record: f"{_named(record, 'label')} is not in the class list" if record["label"] else "label is empty",
        "correct it, add it to the classes, or drop the row",
    ),
    Check(
        "unknown-image",
        lambda columns: columns.image < 0,
        lambda record: f"{_named(record, 'image')} is not in the image table" if record["image"] else "image is empty",
        "correct it, add it to the images, or drop the row",
    ),
    Check(
        "unknown-kind",
        lambda columns: columns.kind < 0,
        lambda record: f"kind is '{record['kind']}'" if record["kind"] else "kind is empty",
        f"use one of {', '.join(KINDS)}",
    ),
    Check("missing-coordinates", _missing, _lacks, "give them, or make it a row of another kind"),
    Check("superfluous-coordinates", _superfluous, _has_too_much, "leave them empty, or make it a row of another kind"),
    Check("coordinates-not-finite", _not_finite, _numbers, "give finite numbers, or drop the row"),
    Check(
        "coordinates-outside",
        _outside,
        lambda record: f"{_numbers(record)}, outside of 0 to 1",
        "divide coordinates by the width and height of the image",
    ),
    Check(
        "empty-box",
        _empty,
        lambda record: f"a {record['kind']} without area, {_numbers(record)}",
        "give it a size, make it a point, or drop the row",
    ),
    Check(
        "box-sticks-out",
        _sticks_out,
        lambda record: f"a {record['kind']} that reaches beyond the image, {_numbers(record)}",
        "check that x and y are its centre, and clip it",
        "warning",
    ),
    Check("mask-raster", _bad_runs, _raster, "encode the mask again with its own height and width"),
    Check(
        "mask-shape",
        _other_shape,
        lambda record: (
            f"a raster of {record['rle_width']} × {record['rle_height']} that is not in proportion to the image"
        ),
        "check that height and width are not swapped, in the mask or in the image table",
        "warning",
    ),
)
