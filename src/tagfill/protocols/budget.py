"""Random pairs under an annotation budget, with image labels, points or boxes: the protocol of PatchML.

Pairs are drawn uniformly without replacement over all images × classes of a split until the budget is spent:

    average   m = round(budget / average seconds of a pair)
    exact     as many as fit, in the order of the draw, each charged what it costs; the next one would not fit
    equal     m = round(budget / seconds of an image label) whatever the kind, each charged what it costs

A drawn negative is an image-level row. A drawn positive is an image-level row (I), a point or a box on one random
instance (SP, SB) or on all of them (AP, AB). The same seed draws the same pairs whatever the kind, only more or fewer.
A positive without a location in the truth is kept as an image-level row.

The costs are in `costs`, the points in `points`.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import asdict

import numpy as np
from numpy.typing import NDArray

from tagfill.annotations import POSITIVE, Dataset, LabelMatrix
from tagfill.errors import TagfillError, one_of
from tagfill.protocols import budget_rows, instances
from tagfill.protocols.costs import ACCOUNTINGS, KINDS, Costs, all_instances
from tagfill.protocols.pair_numbers import PairNumbers
from tagfill.protocols.pairs import Pairs
from tagfill.protocols.points import POINTS
from tagfill.protocols.selecting import smallest
from tagfill.protocols.simulating import assemble, check_seed, complete_labels, drawn_splits, spread

Charge = float | Callable[[Pairs], NDArray[np.float64]]
"""The seconds that every pair is charged on average, or a function that gives those of each."""

_ROUNDING = 1e-6  # seconds


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
    """Keep random labels of the training images until a budget of annotators' time is spent.

    Args:
        data: fully labelled; with boxes or masks if things are located.
        percent: the budget; 100 labels every pair at image level.
        kind: I, SP, SB, AP or AB.
        accounting: charge each pair the `average`, or `exact`ly what it costs; or buy as many pairs of all kinds as
            image labels would cost the budget, `equal`, and charge exactly, beyond the budget.
        image_seconds: what a label of an image costs.
        point_seconds: what a point costs on top of it.
        box_seconds: what a box costs on top of it.
        located_per_image: for the average: positive classes (SP, SB) or instances (AP, AB) of an image; by default
            the mean of the split. The paper has 3.5 for COCO and 5 for Objects365.
        point: how points are placed: `mask`, `box`, `centre`, or `auto`, the mask where there is one, else the centre.
        seed: another seed draws other pairs.

    Returns:
        The simulated dataset; `truth` points to the folder of `data`.

    Example:
        >>> from tagfill.protocols import budget
        >>> part = budget(data, percent=1, kind="SP", located_per_image=3.5)  # doctest: +SKIP
    """
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
        drawn[split] = draw(labels, numbers, costs.budget(percent, labels.shape), price, least=costs.image)
    seconds = charge(drawn["train"]) if callable(charge) else np.full(len(drawn["train"]), charge)
    rows, located = budget_rows.rows(data, drawn["train"], numbers, seconds, kind, point)
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
        spread(data, kept),
        seed=seed,
        parameters=parameters,
        rows=rows,
        seconds=float(seconds.sum()),
        details={"locations": located},
    )


def draw(labels: LabelMatrix, numbers: PairNumbers, limit: float, charge: Charge, *, least: float = 1.0) -> Pairs:
    """The pairs that a budget buys, in the order in which they are drawn.

    Args:
        labels: complete.
        numbers: of its images and classes.
        limit: the budget in seconds.
        charge: the average seconds of a pair, or the exact ones of each.
        least: the least that a pair can be charged exactly.
    """
    if not callable(charge):
        return smallest(labels, numbers, np.array([round(limit / charge)]))
    affordable = smallest(labels, numbers, np.array([int(limit / least + _ROUNDING)]))
    spent = np.cumsum(charge(affordable))
    return affordable.take(slice(0, int(np.searchsorted(spent, limit + _ROUNDING, side="right"))))


def _charge(
    data: Dataset, split: str, labels: LabelMatrix, costs: Costs, kind: str, accounting: str, located: float | None
) -> Charge:
    """How pairs of a split are charged."""
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
    found = instances.find(data, data.split(split), boxes=kind == "AB", wanted=present)
    if exact:
        return lambda pairs: costs.exact(
            kind, pairs.value, np.maximum(found.counts(pairs.image * labels.width + pairs.label), 1)
        )
    bare = len(present) - len(found.pairs)  # positives without a location count as one instance
    return costs.average(kind, (found.rows.num_rows + bare) / max(len(labels), 1), labels.width)
