"""Labels verified down a hierarchy, as far as the annotator happened to go.

For each image and each of its most specific positives, a path is followed from a root down to it, and stopped at a node
that is uniform over the path. The node and everything above it are verified present; everything below it is unknown.
Verification descends only below nodes that are present, so the siblings of a verified node that are truly absent are
verified absent (roots are siblings of each other); other labels are unknown. Where a class has several parents, the
path takes a random one.

Soft Exposure, §4 (knowledge graph). Deviation: the choice of negatives is ours, since its supplement is not public.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from tagfill.dataset import Dataset, Hierarchy
from tagfill.errors import DatasetError
from tagfill.labels import NEGATIVE, POSITIVE, UNKNOWN, LabelMatrix
from tagfill.protocols.pairs import Pairs, concat_pairs
from tagfill.protocols.simulate import simulate
from tagfill.rng import PairNumbers


def hierarchy(data: Dataset, *, seed: int = 0) -> Dataset:
    """Keep, for each positive of the training images, a random node above it, and absent siblings.

    Args:
        data: fully labeled, with a hierarchy in which the parents of a present class are present.
        seed: another seed stops at other nodes.

    Returns:
        The simulated dataset; `truth` points to the folder of `data`.

    Example:
        >>> from tagfill.protocols import hierarchy
        >>> part = hierarchy(data, seed=3)  # doctest: +SKIP
    """
    if not data.hierarchy:
        raise DatasetError(
            f"{data.name} has no hierarchy; add (child, parent) pairs under 'hierarchy' in its dataset.yaml."
        )
    tree = Hierarchy(data.classes, data.hierarchy)

    def rule(labels: LabelMatrix, numbers: PairNumbers) -> LabelMatrix:
        return keep_verified(labels, numbers, tree)

    return simulate(data, "hierarchy", rule, seed=seed, parameters={}, complete=True)


def keep_verified(labels: LabelMatrix, numbers: PairNumbers, tree: Hierarchy) -> LabelMatrix:
    """Keep the labels that are verified, present or absent."""
    kept = []
    for part, dense in labels.blocks():
        positive = dense == POSITIVE
        verified = _verified(positive, part.start, numbers, tree)
        state = np.where(verified, POSITIVE, np.where(_siblings(verified, tree) & ~positive, NEGATIVE, UNKNOWN))
        row, label = np.nonzero(state != UNKNOWN)
        kept.append(Pairs(row + part.start, label, state[row, label].astype(np.int8)))
    return concat_pairs(kept).matrix(labels.shape)


def _verified(positive: NDArray[np.bool_], start: int, numbers: PairNumbers, tree: Hierarchy) -> NDArray[np.bool_]:
    """The nodes where the annotator stopped, and everything above them."""
    specific = positive.copy()
    for child, parent in tree.upwards:
        if (positive[:, child] & ~positive[:, parent]).any():
            raise DatasetError(
                f"An image shows '{tree.classes[child]}' but not its parent '{tree.classes[parent]}'; "
                "label the parents of present classes as present before simulating."
            )
        specific[:, parent] &= ~positive[:, child]
    row, leaf = np.nonzero(specific)
    verified = np.zeros_like(positive)
    verified[row, _stops(row + start, leaf, numbers, tree)] = True
    for child, parent in tree.upwards:
        verified[:, parent] |= verified[:, child]
    return verified


def _stops(
    image: NDArray[np.int64], leaf: NDArray[np.int64], numbers: PairNumbers, tree: Hierarchy
) -> NDArray[np.int64]:
    """For each leaf, a uniformly random node of a random path to a root."""
    count = np.array([len(parents) for parents in tree.parents])
    first = np.concatenate([[0], np.cumsum(count)])
    flat = np.array([parent for parents in tree.parents for parent in parents], dtype=np.int64)
    path, length = [leaf], np.ones(len(leaf), dtype=np.int64)
    while (climbing := count[path[-1]] > 0).any():
        node = path[-1]
        choice = (numbers.uniform(image, leaf, step=len(path)) * count[node]).astype(np.int64)
        above = flat[np.minimum(first[node] + choice, len(flat) - 1)]
        path.append(np.where(climbing, above, node))
        length += climbing
    stop = (numbers.uniform(image, leaf) * length).astype(np.int64)
    chosen: NDArray[np.int64] = np.stack(path)[stop, np.arange(len(leaf))]
    return chosen


def _siblings(verified: NDArray[np.bool_], tree: Hierarchy) -> NDArray[np.bool_]:
    """All children of a node with a verified child, and all roots if a root is verified."""
    descended = np.zeros_like(verified)
    for child, parent in tree.upwards:
        descended[:, parent] |= verified[:, child]
    roots = [node for node, parents in enumerate(tree.parents) if not parents]
    siblings = np.zeros_like(verified)
    siblings[:, roots] = verified[:, roots].any(axis=1, keepdims=True)
    for child, parent in tree.upwards:
        siblings[:, child] |= descended[:, parent]
    return siblings
