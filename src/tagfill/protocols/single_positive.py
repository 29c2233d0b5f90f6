"""One observed positive an image: the published single-positive protocol, bit for bit.

Labels of an official split are drawn in the order of its images from `RandomState(seed)`, created anew for each
split: the positives of an image are shuffled and the first one is observed; then its negatives are shuffled too, of
which none is kept, because that uses up random numbers and so decides what later images get. A dataset that has no test
split is divided as published: of official train, a permutation from another `RandomState(seed)` leaves one fifth for
validation; official val becomes test.

Training images keep their one positive. Validation and test images keep all their labels; the rows of validation
images that the draw would have kept carry the flag `observed`.

Cole et al., Multi-Label Learning from Single Positive Labels, CVPR 2021.


A few observed positives and negatives an image: the single-positive protocol with other numbers.

The draw is that of `single_positive`, number for number: the shuffles do not depend on how much of them is kept, so
the one positive of the single-positive protocol is among the k of this one. Positives may carry a point or a box, for
methods that learn from places; which instance and where on it depends on names and seed alone, as in `budget`.

Cole et al., Multi-Label Learning from Single Positive Labels, CVPR 2021.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tagfill.dataset import Dataset
from tagfill.errors import TagfillError, one_of
from tagfill.labels import NEGATIVE, POSITIVE, LabelMatrix
from tagfill.protocols import budget, instances
from tagfill.protocols.costs import KINDS, Costs, all_instances
from tagfill.protocols.pairs import PairNumbers, Pairs, joined
from tagfill.protocols.simulate import assemble, check_seed, complete_labels, drawn_splits, spread

VALIDATION_SHARE = 0.2
ALL = -1
MOST = 2**32 - 1  # the largest seed of RandomState


def single_positive(data: Dataset, *, seed: int = 1200) -> Dataset:
    """Keep one random positive label of each training image.

    Args:
        data: fully labelled, with splits train and val (which is then divided as published) or train, val and test.
        seed: 1200 in the published splits.

    Returns:
        The simulated dataset; `truth` points to the folder of `data`.

    Example:
        >>> import tagfill  # doctest: +SKIP
        >>> part = tagfill.protocols.single_positive(tagfill.Dataset.open("voc"), seed=1200)  # doctest: +SKIP
    """
    return observe(data, "single-positive", num_pos=1, num_neg=0, seed=seed, parameters={})


def observe(
    data: Dataset, name: str, *, num_pos: int, num_neg: int, seed: int, parameters: Mapping[str, Any], kind: str = "I"
) -> Dataset:
    """Simulate the published draw of so many positives and negatives an image, and locate the positives if asked to."""
    check_seed(seed, MOST)
    divided = "test" not in data.splits
    drawn = {}
    for split in ["train"] if divided else drawn_splits(data):
        labels = complete_labels(data, split, name)
        drawn[split] = draw_pairs(labels, seed, num_pos, num_neg).matrix(labels.shape)
    splits = data.split_of_images()
    if divided:
        _, val = divide(len(data.split("train")), seed)
        splits[splits == "val"] = "test"
        splits[data.split("train")[val]] = "val"
    kept = spread(data, drawn)
    located = {} if kind == "I" else _located(data, name, kept, splits, kind, seed)
    return assemble(data, name, kept, seed=seed, parameters=parameters, splits=splits, **located)


def _located(
    data: Dataset, name: str, kept: LabelMatrix, splits: NDArray[np.object_], kind: str, seed: int
) -> dict[str, Any]:
    """Rows of the training images with points or boxes on their positives, and what they cost."""
    source = data.with_splits(splits)
    labels = kept.take(source.split("train"))
    pairs = Pairs(labels.images(), labels.classes.astype(np.int64), labels.values)
    numbers = PairNumbers.of(source.names(source.split("train")), source.classes, seed)
    found = np.ones(len(pairs), dtype=np.int64)
    if all_instances(kind):
        keys = pairs.image * labels.width + pairs.label
        places = instances.find(source, source.split("train"), boxes=kind == "AB", wanted=np.sort(keys))
        found = np.maximum(places.counts(keys), 1)
    seconds = Costs().exact(kind, pairs.value, found)
    rows, count = budget.bought_rows(source, pairs, numbers, seconds, kind, "auto", name)
    return {"rows": rows, "seconds": float(seconds.sum()), "details": {"locations": count}}


def draw(labels: LabelMatrix, seed: int) -> NDArray[np.int64]:
    """The observed class of each image, -1 where it has no positive."""
    observed = np.full(len(labels), -1, dtype=np.int64)
    pairs = draw_pairs(labels, seed, num_pos=1, num_neg=0)
    observed[pairs.image] = pairs.label
    return observed


def draw_pairs(labels: LabelMatrix, seed: int, num_pos: int, num_neg: int) -> Pairs:
    """The observed pairs; `ALL` positives or negatives are shuffled like any other number of them."""
    rng = np.random.RandomState(seed)
    width = labels.width
    parts = []
    for part, dense in labels.blocks():
        positive = dense == POSITIVE
        shuffled = np.argsort(~positive, axis=1, kind="stable")  # the positives of each image, then its negatives
        counts = positive.sum(axis=1)
        for classes, count in zip(shuffled, counts.tolist(), strict=True):
            rng.shuffle(classes[:count])
            rng.shuffle(classes[count:])
        place, count = np.arange(width), counts[:, None]
        first = place < np.minimum(count, width if num_pos == ALL else num_pos)
        second = (place >= count) & (place < count + (width if num_neg == ALL else num_neg))
        row, column = np.nonzero(first | second)
        value = np.where(first[row, column], POSITIVE, NEGATIVE).astype(np.int8)
        parts.append(Pairs(row + part.start, shuffled[row, column], value))
    return joined(parts)


def divide(size: int, seed: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Positions for training and for validation, each ascending.

    >>> divide(5717, 1200)[1][:5].tolist()
    [5, 6, 11, 15, 22]
    """
    held_out = round(VALIDATION_SHARE * size)
    order = np.random.RandomState(seed).permutation(size)
    return np.sort(order[: size - held_out]), np.sort(order[size - held_out :])


def k_positives(data: Dataset, *, num_pos: int = 1, num_neg: int = 0, kind: str = "I", seed: int = 1200) -> Dataset:
    """Keep some random positive and some random negative labels of each training image.

    Args:
        data: fully labelled; divided as in `single_positive` if it has no test split.
        num_pos: positives an image, or all of an image that has fewer; -1 for all.
        num_neg: negatives an image; -1 for all.
        kind: of the positives: I, or located by a point or a box on one instance (SP, SB) or on all (AP, AB), at the
            costs of `costs`.
        seed: 1200 in the published splits.

    Returns:
        The simulated dataset; `truth` points to the folder of `data`.

    Example:
        >>> from tagfill.protocols import k_positives
        >>> part = k_positives(data, num_pos=2, num_neg=-1)  # doctest: +SKIP
    """
    for option, number in (("num_pos", num_pos), ("num_neg", num_neg)):
        if number < ALL:
            raise TagfillError(f"{option} is {number}; give a number of labels an image, or -1 for all.")
    one_of("kind", kind, KINDS)
    parameters = {"num_pos": num_pos, "num_neg": num_neg, "kind": kind}
    return observe(data, "k-positives", num_pos=num_pos, num_neg=num_neg, seed=seed, parameters=parameters, kind=kind)
