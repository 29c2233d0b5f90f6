"""Rows for the pairs that a budget bought: image labels, and points or boxes on what is present."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from tagfill.annotations import POSITIVE, Dataset
from tagfill.errors import DatasetError
from tagfill.protocols import instances, points
from tagfill.protocols.costs import all_instances
from tagfill.protocols.image_rows import batch, constant, names_of, rows_of
from tagfill.protocols.pair_numbers import PairNumbers
from tagfill.protocols.pairs import Pairs

SOURCE = "budget"
_BLOCK_ROWS = 1 << 18
_INSTANCE_STEP, _POINT_STEP = 1, 2  # which of a pair's numbers choose its instance and, from there on, its points


def rows(
    data: Dataset,
    bought: Pairs,
    numbers: PairNumbers,
    seconds: NDArray[np.float64],
    kind: str,
    point: str,
    source: str = SOURCE,
) -> tuple[Iterator[pa.RecordBatch], int]:
    """Rows of the training images, and how many of them are locations.

    Args:
        data: the source.
        bought: pairs, whose images are positions in the training split.
        numbers: of the training images and the classes.
        seconds: what each pair is charged; several locations of a pair share it evenly.
        kind: I, SP, SB, AP or AB.
        point: how points are placed.
        source: who says so.
    """
    training = data.split("train")
    keys = bought.image * len(data.classes) + bought.label
    order = np.argsort(keys)
    bought, keys, seconds = bought.take(order), keys[order], seconds[order]
    located, plain = [], np.ones(len(bought), dtype=bool)
    count = 0
    if kind != "I":
        pair, things = _chosen(data, bought, keys, numbers, kind, masks=point in ("auto", "mask"))
        plain[pair] = False
        count = len(pair)
        located.append(_located(data, bought.take(pair), pair, seconds, things, numbers, kind, point, source))
    image_level = Pairs(training[bought.image], bought.label, bought.value).take(plain)
    return _batches(data, image_level, seconds[plain], located, source), count


def _chosen(
    data: Dataset, bought: Pairs, keys: NDArray[np.int64], numbers: PairNumbers, kind: str, *, masks: bool
) -> tuple[NDArray[np.int64], pa.Table]:
    """The instances that are located, and the position in `bought` of the pair of each."""
    boxes = kind[-1] == "B"
    positive = np.flatnonzero(bought.value == POSITIVE)
    found = instances.find(data, data.split("train"), boxes=boxes, wanted=keys[positive], masks=masks and not boxes)
    if len(positive) and not len(found.pairs):
        raise DatasetError(
            f"Kind {kind} needs {'boxes or masks' if boxes else 'points, boxes or masks'}, but none of the "
            f"{len(positive):,} positives drawn from {data.name} has any; choose kind I, or a dataset with locations."
        )
    count = np.diff(found.starts)
    pair = np.searchsorted(keys, found.pairs)
    if all_instances(kind):
        return np.repeat(pair, count), found.rows
    uniform = numbers.uniform(bought.image[pair], bought.label[pair], _INSTANCE_STEP)
    return pair, found.rows.take(pa.array(found.starts[:-1] + (uniform * count).astype(np.int64)))


def _located(
    data: Dataset,
    pairs: Pairs,
    pair: NDArray[np.int64],
    seconds: NDArray[np.float64],
    things: pa.Table,
    numbers: PairNumbers,
    kind: str,
    point: str,
    source: str,
) -> pa.RecordBatch:
    """A point or a box for each instance."""
    size = len(pair)
    shared = seconds[pair] / np.bincount(pair, minlength=1)[pair] if size else np.empty(0)
    columns = {
        **names_of(data, Pairs(data.split("train")[pairs.image], pairs.label, pairs.value)),
        "present": pa.array(np.ones(size, dtype=bool)),
        "source": constant(source, size),
        "seconds": pa.array(shared.astype(np.float32)),
    }
    if kind[-1] == "B":
        extent = {name: things[name].combine_chunks() for name in ("x", "y", "w", "h")}
        return batch({**columns, **extent, "kind": constant("box", size)}, size)
    step = _POINT_STEP + 2 * (np.arange(size) - np.searchsorted(pair, pair))
    first, second = (numbers.uniform(pairs.image, pairs.label, step + more) for more in (0, 1))
    placed = points.place(things, first, second, point).astype(np.float32)
    place = {"x": pa.array(placed[:, 0]), "y": pa.array(placed[:, 1])}
    return batch({**columns, **place, "kind": constant("point", size)}, size)


def _batches(
    data: Dataset, pairs: Pairs, seconds: NDArray[np.float64], located: list[pa.RecordBatch], source: str
) -> Iterator[pa.RecordBatch]:
    yield from located
    for start in range(0, len(pairs), _BLOCK_ROWS):
        part = slice(start, start + _BLOCK_ROWS)
        yield rows_of(data, pairs.take(part), source, seconds[part])
