"""Labels verified down a hierarchy, and no further than an annotator happened to go.

For each image and each of its most specific positives, a path is followed from a root down to it, and stopped at a node
that is uniform over the path. The node and everything above it are verified present; everything below it is unknown.
Verification descends only below nodes that are present, so the siblings of a verified node that are truly absent are
verified absent (roots are siblings of each other); other labels are unknown. Where a class has several parents, the
path takes a random one.

Soft Exposure, §4 (knowledge graph); the choice of negatives is ours, since its supplement is not public.
"""

from __future__ import annotations

from dataclasses import dataclass
from graphlib import CycleError, TopologicalSorter

import numpy as np
from numpy.typing import NDArray

from tagfill.annotations import NEGATIVE, POSITIVE, UNKNOWN, Dataset, LabelMatrix
from tagfill.errors import DatasetError
from tagfill.protocols.hashing import PairNumbers
from tagfill.protocols.pairs import Pairs, joined
from tagfill.protocols.simulating import simulate


def hierarchy(data: Dataset, *, seed: int = 0) -> Dataset:
    """Keep, for each positive of the training images, a random node above it, and absent siblings.

    Args:
        data: fully labelled, with a hierarchy in which the parents of a present class are present.
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
    edges = Edges.of(data)

    def rule(labels: LabelMatrix, numbers: PairNumbers) -> LabelMatrix:
        return draw(labels, numbers, edges)

    return simulate(data, "hierarchy", rule, seed=seed, parameters={}, complete=True)


@dataclass(frozen=True)
class Edges:
    """A hierarchy over class indices.

    Attributes:
        classes: names, for messages.
        upwards: (child, parent) edges, every edge into a class before those out of it.
        parents: the parents of each class.
    """

    classes: tuple[str, ...]
    upwards: list[tuple[int, int]]
    parents: list[list[int]]

    @classmethod
    def of(cls, data: Dataset) -> Edges:
        """The hierarchy of a dataset; unknown classes and cycles are refused."""
        index = {name: position for position, name in enumerate(data.classes)}
        stray = [name for edge in data.hierarchy for name in edge if name not in index]
        if stray:
            raise DatasetError(f"The hierarchy of {data.name} names '{stray[0]}', which is not among its classes.")
        parents: list[list[int]] = [[] for _ in data.classes]
        below: dict[int, list[int]] = {}
        for child, parent in sorted(set(data.hierarchy)):
            parents[index[child]].append(index[parent])
            below.setdefault(index[parent], []).append(index[child])
        try:
            order = list(TopologicalSorter(below).static_order())
        except CycleError as error:
            names = ", ".join(data.classes[node] for node in error.args[1])
            raise DatasetError(f"The hierarchy of {data.name} has a cycle, {names}; drop one of its edges.") from None
        return cls(data.classes, [(child, parent) for child in order for parent in parents[child]], parents)


def draw(labels: LabelMatrix, numbers: PairNumbers, edges: Edges) -> LabelMatrix:
    """What is verified, present or absent."""
    kept = []
    for part, dense in labels.blocks():
        positive = dense == POSITIVE
        verified = _verified(positive, part.start, numbers, edges)
        state = np.where(verified, POSITIVE, np.where(_siblings(verified, edges) & ~positive, NEGATIVE, UNKNOWN))
        row, label = np.nonzero(state != UNKNOWN)
        kept.append(Pairs(row + part.start, label, state[row, label].astype(np.int8)))
    return joined(kept).matrix(labels.shape)


def _verified(positive: NDArray[np.bool_], start: int, numbers: PairNumbers, edges: Edges) -> NDArray[np.bool_]:
    """The nodes where annotators stopped, and everything above them."""
    specific = positive.copy()
    for child, parent in edges.upwards:
        if (positive[:, child] & ~positive[:, parent]).any():
            raise DatasetError(
                f"An image shows '{edges.classes[child]}' but not its parent '{edges.classes[parent]}'; "
                "label the parents of present classes as present before simulating."
            )
        specific[:, parent] &= ~positive[:, child]
    row, leaf = np.nonzero(specific)
    verified = np.zeros_like(positive)
    verified[row, _stops(row + start, leaf, numbers, edges)] = True
    for child, parent in edges.upwards:
        verified[:, parent] |= verified[:, child]
    return verified


def _stops(image: NDArray[np.int64], leaf: NDArray[np.int64], numbers: PairNumbers, edges: Edges) -> NDArray[np.int64]:
    """A node of a random path from each leaf to a root, uniform over the path."""
    count = np.array([len(parents) for parents in edges.parents])
    first = np.concatenate([[0], np.cumsum(count)])
    flat = np.array([parent for parents in edges.parents for parent in parents], dtype=np.int64)
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


def _siblings(verified: NDArray[np.bool_], edges: Edges) -> NDArray[np.bool_]:
    """Children of a node of which at least one child is verified, and roots where a root is."""
    descended = np.zeros_like(verified)
    for child, parent in edges.upwards:
        descended[:, parent] |= verified[:, child]
    roots = [node for node, parents in enumerate(edges.parents) if not parents]
    siblings = np.zeros_like(verified)
    siblings[:, roots] = verified[:, roots].any(axis=1, keepdims=True)
    for child, parent in edges.upwards:
        siblings[:, child] |= descended[:, parent]
    return siblings
