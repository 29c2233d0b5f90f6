"""Random pairs under an annotation budget, with image labels, points or boxes: the protocol of PatchML.

Pairs are drawn uniformly without replacement over all images × classes of a split until the budget is spent:

    average   m = round(budget / average seconds of a pair)
    exact     take pairs in draw order, each at its own cost, until the next one exceeds the budget
    equal     m = round(budget / seconds of an image label) for every kind, each charged its own cost

A drawn negative is an image-level row. A drawn positive is an image-level row (I), a point or a box on one random
instance (SP, SB) or on all of them (AP, AB). With the same seed, every kind draws from the same sequence of pairs; only
the number differs. A positive without a location in the truth is kept as an image-level row.

Costs are defined in `costs`, the placement of points in `instances`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import asdict

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from tagfill.dataset import Dataset
from tagfill.deprecation import warn_renamed
from tagfill.errors import DatasetError, TagfillError, one_of
from tagfill.labels import POSITIVE, LabelMatrix
from tagfill.protocols.costs import ACCOUNTINGS, KINDS, Costs, all_instances
from tagfill.protocols.instances import POINTS, find_instances, place_points
from tagfill.protocols.pairs import Pairs, sample_pairs
from tagfill.protocols.simulate import (
    assemble,
    check_seed,
    complete_labels,
    drawn_splits,
    merge_splits,
    name_columns,
    repeated_text,
    row_batch,
    rows_of_pairs,
)
from tagfill.rng import PairNumbers

Charge = float | Callable[[Pairs], NDArray[np.float64]]
"""Average seconds that every pair is charged, or a function that returns the exact seconds of each pair."""

_ROUNDING = 1e-6  # seconds
_BLOCK_ROWS = 1 << 18
_INSTANCE_STEP, _POINT_STEP = 1, 2  # of `PairNumbers`: the step that selects an instance, and the first for points


def budget(
    data: Dataset,
    *,
    percent: float = 1.0,
    kind: str = "SP",
    accounting: str = "average",
    image_seconds: float = 1.0,
    point_seconds: float = 1.4,
    box_seconds: float = 6.0,
    located_per_image: float | None = None,
    point: str = "auto",
    seed: int = 0,
) -> Dataset:
    """Keep random labels of the training images until a budget of annotation time is spent.

    Args:
        data: fully labeled; with boxes or masks for kinds that locate objects.
        percent: the budget; 100 is the cost of an image label for every pair of image and class.
        kind: I, SP, SB, AP or AB.
        accounting: `average` charges each pair the average cost, `exact` its own cost. `equal` buys as many pairs as
            image labels would fit into the budget, charges each its own cost, and so exceeds the budget.
        image_seconds: cost of an image label.
        point_seconds: additional cost of a point.
        box_seconds: additional cost of a box.
        located_per_image: for `average`: positive classes (SP, SB) or instances (AP, AB) per image; by default the
            mean of the split. The paper has 3.5 for COCO and 5 for Objects365.
        point: how points are placed: `mask`, `box`, `center`, or `auto`: `mask` if there is one, otherwise `center`.
        seed: another seed draws other pairs.

    Returns:
        The simulated dataset; `truth` points to the folder of `data`.

    Example:
        >>> from tagfill.protocols import budget
        >>> part = budget(data, percent=1, kind="SP", located_per_image=3.5)  # doctest: +SKIP
    """
    if point == "centre":
        warn_renamed("point='centre'", "point='center'")
        point = "center"
    one_of("kind", kind, KINDS)
    one_of("accounting", accounting, ACCOUNTINGS)
    one_of("point", point, POINTS)
    check_seed(seed)
    if not 0 <= percent < math.inf:
        raise TagfillError(f"percent is {percent}; give a number, 0 or more.")
    if located_per_image is not None and not 0 <= located_per_image < math.inf:
        raise TagfillError(f"located_per_image is {located_per_image}; give a number, 0 or more.")
    costs = Costs(image_seconds, point_seconds, box_seconds)
    drawn: dict[str, Pairs] = {}
    for split in reversed(drawn_splits(data)):  # training comes last, and its charge is used below
        labels = complete_labels(data, split, "budget")
        numbers = PairNumbers.of(data.names(data.split(split)), data.classes, seed)
        charge = _charge(data, split, labels, costs, kind, accounting, located_per_image)
        price = costs.image if accounting == "equal" else charge
        drawn[split] = buy_pairs(labels, numbers, costs.budget(percent, labels.shape), price, least=costs.image)
    seconds = charge(drawn["train"]) if callable(charge) else np.full(len(drawn["train"]), charge)
    rows, located = bought_pair_rows(data, drawn["train"], numbers, seconds, kind, point)
    kept = {split: pairs.matrix((len(data.split(split)), len(data.classes))) for split, pairs in drawn.items()}
    parameters = {
        "percent": percent,
        "kind": kind,
        "accounting": accounting,
        **{f"{name}_seconds": cost for name, cost in asdict(costs).items()},
        "located_per_image": located_per_image,
        "point": point,
    }
    return assemble(
        data,
        "budget",
        merge_splits(data, kept),
        seed=seed,
        parameters=parameters,
        rows=rows,
        seconds=float(seconds.sum()),
        details={"locations": located},
    )


def buy_pairs(labels: LabelMatrix, numbers: PairNumbers, limit: float, charge: Charge, *, least: float = 1.0) -> Pairs:
    """Draw the pairs that a budget buys, in the order of the draw.

    Args:
        labels: complete.
        numbers: of its images and classes.
        limit: the budget in seconds.
        charge: average seconds of a pair, or the exact seconds of each.
        least: smallest exact cost of a pair.
    """
    if not callable(charge):
        return sample_pairs(labels, numbers, np.array([round(limit / charge)]))
    affordable = sample_pairs(labels, numbers, np.array([int(limit / least + _ROUNDING)]))
    spent = np.cumsum(charge(affordable))
    return affordable.take(slice(0, int(np.searchsorted(spent, limit + _ROUNDING, side="right"))))


def _charge(
    data: Dataset, split: str, labels: LabelMatrix, costs: Costs, kind: str, accounting: str, located: float | None
) -> Charge:
    """The cost of the pairs of a split."""
    exact = accounting != "average"
    if not all_instances(kind):
        if exact:
            return lambda pairs: costs.exact(kind, pairs.value, np.ones(len(pairs), dtype=np.int64))
        positives = int(labels.positives.sum()) / max(len(labels), 1)
        return costs.average(kind, positives if located is None else located, labels.width)
    if not exact and located is not None:
        return costs.average(kind, located, labels.width)
    positive = labels.values == POSITIVE
    present = labels.images()[positive] * labels.width + labels.classes[positive]
    found = find_instances(data, data.split(split), boxes=kind == "AB", wanted=present)
    if exact:
        return lambda pairs: costs.exact(
            kind, pairs.value, np.maximum(found.counts(pairs.image * labels.width + pairs.label), 1)
        )
    bare = len(present) - len(found.pairs)  # positives without a location count as one instance
    return costs.average(kind, (found.rows.num_rows + bare) / max(len(labels), 1), labels.width)


def bought_pair_rows(
    data: Dataset,
    bought: Pairs,
    numbers: PairNumbers,
    seconds: NDArray[np.float64],
    kind: str,
    point: str,
    source: str = "budget",
) -> tuple[Iterator[pa.RecordBatch], int]:
    """Rows of the bought pairs, and the number of locations among them.

    Args:
        data: the source.
        bought: pairs; their images are positions in the training split.
        numbers: of the training images and the classes.
        seconds: cost of each pair; the locations of a pair share it evenly.
        kind: I, SP, SB, AP or AB.
        point: how points are placed.
        source: of the rows.
    """
    training = data.split("train")
    keys = bought.image * len(data.classes) + bought.label
    order = np.argsort(keys)
    bought, keys, seconds = bought.take(order), keys[order], seconds[order]
    located, image_only = [], np.ones(len(bought), dtype=bool)
    count = 0
    if kind != "I":
        pair, found = _choose_instances(data, bought, keys, numbers, kind, masks=point in ("auto", "mask"))
        image_only[pair] = False
        count = len(pair)
        located.append(_location_rows(data, bought.take(pair), pair, seconds, found, numbers, kind, point, source))
    image_level = Pairs(training[bought.image], bought.label, bought.value).take(image_only)
    return _row_batches(data, image_level, seconds[image_only], located, source), count


def _choose_instances(
    data: Dataset, bought: Pairs, keys: NDArray[np.int64], numbers: PairNumbers, kind: str, *, masks: bool
) -> tuple[NDArray[np.int64], pa.Table]:
    """The position in `bought` of the pair of each instance that is located, and the instances."""
    boxes = kind[-1] == "B"
    positive = np.flatnonzero(bought.value == POSITIVE)
    found = find_instances(data, data.split("train"), boxes=boxes, wanted=keys[positive], masks=masks and not boxes)
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


def _location_rows(
    data: Dataset,
    pairs: Pairs,
    pair: NDArray[np.int64],
    seconds: NDArray[np.float64],
    found: pa.Table,
    numbers: PairNumbers,
    kind: str,
    point: str,
    source: str,
) -> pa.RecordBatch:
    """One row with a point or a box per instance."""
    size = len(pair)
    shared = seconds[pair] / np.bincount(pair, minlength=1)[pair] if size else np.empty(0)
    columns = {
        **name_columns(data, Pairs(data.split("train")[pairs.image], pairs.label, pairs.value)),
        "present": pa.array(np.ones(size, dtype=bool)),
        "source": repeated_text(source, size),
        "seconds": pa.array(shared.astype(np.float32)),
    }
    if kind[-1] == "B":
        extent = {name: found[name].combine_chunks() for name in ("x", "y", "w", "h")}
        return row_batch({**columns, **extent, "kind": repeated_text("box", size)}, size)
    step = _POINT_STEP + 2 * (np.arange(size) - np.searchsorted(pair, pair))
    first, second = (numbers.uniform(pairs.image, pairs.label, step + more) for more in (0, 1))
    placed = place_points(found, first, second, point).astype(np.float32)
    place = {"x": pa.array(placed[:, 0]), "y": pa.array(placed[:, 1])}
    return row_batch({**columns, **place, "kind": repeated_text("point", size)}, size)


def _row_batches(
    data: Dataset, pairs: Pairs, seconds: NDArray[np.float64], located: list[pa.RecordBatch], source: str
) -> Iterator[pa.RecordBatch]:
    yield from located
    for start in range(0, len(pairs), _BLOCK_ROWS):
        part = slice(start, start + _BLOCK_ROWS)
        yield rows_of_pairs(data, pairs.take(part), source, seconds[part])
