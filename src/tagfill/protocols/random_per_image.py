"""The same number of labels is unknown in every image.

    int((1 - proportion)·L) random classes of each image become unknown

Durand et al., Learning a Deep ConvNet for Multi-Label Classification with Partial Labels, CVPR 2019.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from tagfill.annotations import Dataset, LabelMatrix
from tagfill.protocols.checks import proportion_between
from tagfill.protocols.pair_numbers import PairNumbers
from tagfill.protocols.pairs import Pairs, thin
from tagfill.protocols.simulating import simulate


def random_per_image(data: Dataset, *, proportion: float = 0.5, seed: int = 0) -> Dataset:
    """Keep the same number of random labels in each training image.

    Args:
        data: fully labelled.
        proportion: of the classes whose labels are kept.
        seed: another seed keeps other labels.

    Returns:
        The simulated dataset; `truth` points to the folder of `data`.

    Example:
        >>> from tagfill.protocols import random_per_image
        >>> part = random_per_image(data, proportion=0.1)  # doctest: +SKIP
    """
    proportion_between("proportion", proportion)

    def rule(labels: LabelMatrix, numbers: PairNumbers) -> LabelMatrix:
        return draw(labels, numbers, proportion)

    parameters = {"proportion": proportion}
    return simulate(data, "random-per-image", rule, seed=seed, parameters=parameters, complete=True)


def draw(labels: LabelMatrix, numbers: PairNumbers, proportion: float) -> LabelMatrix:
    """The labels that are kept: those with the largest numbers of each image."""
    dropped = dropped_classes(proportion, labels.width)

    def keep(pairs: Pairs) -> NDArray[np.bool_]:
        number = numbers.at(pairs.image, pairs.label).reshape(-1, labels.width)
        kept = np.ones(number.shape, dtype=bool)
        np.put_along_axis(kept, np.argsort(number, axis=1)[:, :dropped], False, axis=1)
        return kept.ravel()

    return thin(labels, keep)


def dropped_classes(proportion: float, width: int) -> int:
    """Classes that become unknown, in the published arithmetic with its rounding.

    >>> dropped_classes(0.5, 80), dropped_classes(0.9, 80)
    (40, 7)
    """
    return int((1 - proportion) * width)
