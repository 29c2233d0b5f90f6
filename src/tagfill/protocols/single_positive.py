"""One observed positive an image: the published single-positive protocol, bit for bit.

Labels of an official split are drawn in the order of its images from `RandomState(seed)`, created anew for each
split: the positives of an image are shuffled and the first one is observed; then its negatives are shuffled too, of
which none is kept, because that uses up random numbers and so decides what later images get. A dataset that has no test
split is divided as published: of official train, a permutation from another `RandomState(seed)` leaves one fifth for
validation; official val becomes test.

Training images keep their one positive. Validation and test images keep all their labels; the rows of validation
images that the draw would have kept carry the flag `observed`.

Cole et al., Multi-Label Learning from Single Positive Labels, CVPR 2021.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tagfill.annotations import NEGATIVE, POSITIVE, Dataset, LabelMatrix
from tagfill.protocols import budget_rows, instances
from tagfill.protocols.costs import Costs, all_instances
from tagfill.protocols.pair_numbers import PairNumbers
from tagfill.protocols.pairs import Pairs, joined
from tagfill.protocols.simulating import assemble, check_seed, complete_labels, drawn_splits, spread

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
    rows, count = budget_rows.rows(source, pairs, numbers, seconds, kind, "auto", name)
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
