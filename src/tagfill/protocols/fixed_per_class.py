"""The same number of labels for every class, however frequent it is.

    of each class min(n, available) random positives, and as many random negatives; the rest is unknown

A class with few negatives gets those that it has. Each class is drawn on its own: an image that is drawn for one class
need not be drawn for another.

Ben-Baruch et al., Multi-label Classification with Partial Annotations using Class-aware Selective Loss, CVPR 2022.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from tagfill.annotations import POSITIVE, Dataset, LabelMatrix
from tagfill.errors import TagfillError
from tagfill.protocols.pair_numbers import PairNumbers
from tagfill.protocols.pairs import Pairs
from tagfill.protocols.selecting import smallest
from tagfill.protocols.simulating import simulate


def fixed_per_class(data: Dataset, *, per_class: int = 1000, seed: int = 0) -> Dataset:
    """Keep the same number of random positives, and as many negatives, of each class.

    Args:
        data: what it does not know stays unknown.
        per_class: positives of each class.
        seed: another seed keeps other labels.

    Returns:
        The simulated dataset; `truth` points to the folder of `data`.

    Example:
        >>> from tagfill.protocols import fixed_per_class
        >>> part = fixed_per_class(data, per_class=100)  # doctest: +SKIP
    """
    if per_class < 1:
        raise TagfillError(f"per_class is {per_class}; give at least 1.")

    def rule(labels: LabelMatrix, numbers: PairNumbers) -> LabelMatrix:
        return draw(labels, numbers, per_class)

    return simulate(data, "fixed-per-class", rule, seed=seed, parameters={"per_class": per_class}, complete=False)


def draw(labels: LabelMatrix, numbers: PairNumbers, per_class: int) -> LabelMatrix:
    """The labels that are kept."""
    wanted = np.minimum(labels.positives, per_class)

    def group(pairs: Pairs) -> NDArray[np.int64]:
        return pairs.label + np.where(pairs.value == POSITIVE, 0, labels.width)

    return smallest(labels, numbers, np.concatenate([wanted, wanted]), group).matrix(labels.shape)
