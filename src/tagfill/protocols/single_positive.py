"""One observed positive per image: the published single-positive protocol, bit for bit, and its extension to k labels.

Labels of an official split are drawn in the order of its images from `numpy.random.RandomState(seed)`, created for each
split: the positives of an image are shuffled and the first is observed; then its negatives are shuffled too, although
none is kept, because that consumes random numbers and so decides what later images get. A dataset without a test split
is split as published: of official train, a permutation from another `RandomState(seed)` leaves one fifth for
validation; official val becomes test.

Training images keep their one positive. Validation and test images keep all their labels; the rows of validation
images that the draw would have kept get the flag `observed`.

`k_positives` keeps other numbers of positives and negatives from the same shuffles, so the one positive of
`single_positive` is among its k. Positives may be located by a point or a box; which instance, and where on it, depends
only on names and seed, as in `budget`.

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
from tagfill.protocols.budget import bought_pair_rows
from tagfill.protocols.costs import KINDS, Costs, all_instances
from tagfill.protocols.instances import find_instances
from tagfill.protocols.pairs import Pairs, concat_pairs
from tagfill.protocols.simulate import assemble, check_seed, complete_labels, drawn_splits, merge_splits
from tagfill.rng import PairNumbers

VALIDATION_SHARE = 0.2
ALL = -1
MAX_SEED = 2**32 - 1  # of RandomState


def single_positive(data: Dataset, *, seed: int = 1200) -> Dataset:
    """Keep one random positive label of each training image.

    Args:
        data: fully labeled, with splits train and val (which are then split as published) or train, val and test.
        seed: 1200 in the published splits.

    Returns:
        The simulated dataset; `truth` points to the folder of `data`.

    Example:
        >>> import tagfill  # doctest: +SKIP
        >>> part = tagfill.protocols.single_positive(tagfill.Dataset.open("voc"), seed=1200)  # doctest: +SKIP
    """
    return simulate_published(data, "single-positive", num_pos=1, num_neg=0, seed=seed, parameters={})


def k_positives(data: Dataset, *, num_pos: int = 1, num_neg: int = 0, kind: str = "I", seed: int = 1200) -> Dataset:
    """Keep some random positive and some random negative labels of each training image.

    Args:
        data: fully labeled; split as in `single_positive` if it has no test split.
        num_pos: positives per image, or all of an image that has fewer; -1 for all.
        num_neg: negatives per image; -1 for all.
        kind: annotation of positives: I, or located by a point or a box on one instance (SP, SB) or on all (AP, AB),
            with the costs of `tagfill.protocols.costs`.
        seed: 1200 in the published splits.

    Returns:
        The simulated dataset; `truth` points to the folder of `data`.

    Example:
        >>> from tagfill.protocols import k_positives
        >>> part = k_positives(data, num_pos=2, num_neg=-1)  # doctest: +SKIP
    """
    for option, number in (("num_pos", num_pos), ("num_neg", num_neg)):
        if number < ALL:
            raise TagfillError(f"{option} is {number}; give a number of labels per image, or -1 for all.")
    one_of("kind", kind, KINDS)
    parameters = {"num_pos": num_pos, "num_neg": num_neg, "kind": kind}
    return simulate_published(
        data, "k-positives", num_pos=num_pos, num_neg=num_neg, seed=seed, parameters=parameters, kind=kind
    )


def simulate_published(
    data: Dataset, name: str, *, num_pos: int, num_neg: int, seed: int, parameters: Mapping[str, Any], kind: str = "I"
) -> Dataset:
    """Simulate the published draw of a number of positives and negatives per image, and locate positives on request."""
    check_seed(seed, MAX_SEED)
    split_train = "test" not in data.splits
    drawn = {}
    for split in ["train"] if split_train else drawn_splits(data):
        labels = complete_labels(data, split, name)
        drawn[split] = draw_published(labels, seed, num_pos, num_neg).matrix(labels.shape)
    splits = data.split_of_images()
    if split_train:
        _, val = split_validation(len(data.split("train")), seed)
        splits[splits == "val"] = "test"
        splits[data.split("train")[val]] = "val"
    kept = merge_splits(data, drawn)
    located = {} if kind == "I" else _located(data, name, kept, splits, kind, seed)
    return assemble(data, name, kept, seed=seed, parameters=parameters, splits=splits, **located)


def _located(
    data: Dataset, name: str, kept: LabelMatrix, splits: NDArray[np.object_], kind: str, seed: int
) -> dict[str, Any]:
    """Rows of the training images with points or boxes on their positives, and their cost, for `assemble`."""
    source = data.with_splits(splits)
    labels = kept.take(source.split("train"))
    pairs = Pairs(labels.images(), labels.classes.astype(np.int64), labels.values)
    numbers = PairNumbers.of(source.names(source.split("train")), source.classes, seed)
    found = np.ones(len(pairs), dtype=np.int64)
    if all_instances(kind):
        keys = pairs.image * labels.width + pairs.label
        places = find_instances(source, source.split("train"), boxes=kind == "AB", wanted=np.sort(keys))
        found = np.maximum(places.counts(keys), 1)
    seconds = Costs().exact(kind, pairs.value, found)
    rows, count = bought_pair_rows(source, pairs, numbers, seconds, kind, "auto", name)
    return {"rows": rows, "seconds": float(seconds.sum()), "details": {"locations": count}}


def draw_published(labels: LabelMatrix, seed: int, num_pos: int, num_neg: int) -> Pairs:
    """The observed pairs; with `ALL`, positives or negatives are shuffled all the same."""
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
    return concat_pairs(parts)


def split_validation(size: int, seed: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Positions of training and validation images, each ascending.

    >>> split_validation(5717, 1200)[1][:5].tolist()
    [5, 6, 11, 15, 22]
    """
    held_out = round(VALIDATION_SHARE * size)
    order = np.random.RandomState(seed).permutation(size)
    return np.sort(order[: size - held_out]), np.sort(order[size - held_out :])
