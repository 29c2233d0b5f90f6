"""Random known labels: each with the same probability, the same number per image, or the same number per class.

`random_entries`, known as "random per sample" or as the known-label proportion:

    z_il = y_il  if u_il < proportion,  else unknown,      u_il uniform in [0, 1)

Published code draws u from an unseeded or a global generator; here u_il is the pair's own number (`PairNumbers`). With
the same seed, a larger proportion keeps everything that a smaller one keeps. Ben-Baruch et al., Multi-label
Classification with Partial Annotations using Class-aware Selective Loss, CVPR 2022.

`random_per_image`:

    int((1 - proportion)·L) random classes of each image become unknown

Durand et al., Learning a Deep ConvNet for Multi-Label Classification with Partial Labels, CVPR 2019.

`fixed_per_class`:

    of each class min(n, available) random positives, and as many random negatives; the rest is unknown

A class with too few negatives keeps all of them. Each class is drawn independently. Ben-Baruch et al., CVPR 2022.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from tagfill.dataset import Dataset
from tagfill.errors import TagfillError
from tagfill.labels import POSITIVE, LabelMatrix
from tagfill.protocols.pairs import Pairs, keep_pairs, sample_pairs
from tagfill.protocols.simulate import check_proportion, simulate
from tagfill.rng import PairNumbers


def random_entries(data: Dataset, *, proportion: float = 0.5, seed: int = 0) -> Dataset:
    """Keep each label of the training images with the same probability.

    Args:
        data: its unknown labels stay unknown.
        proportion: the probability of keeping a label.
        seed: another seed keeps other labels.

    Returns:
        The simulated dataset; `truth` points to the folder of `data`.

    Example:
        >>> from tagfill.protocols import random_entries
        >>> part = random_entries(data, proportion=0.1)  # doctest: +SKIP
    """
    check_proportion("proportion", proportion)

    def rule(labels: LabelMatrix, numbers: PairNumbers) -> LabelMatrix:
        return keep_entries(labels, numbers, proportion)

    parameters = {"proportion": proportion}
    return simulate(data, "random-entries", rule, seed=seed, parameters=parameters, complete=False)


def keep_entries(labels: LabelMatrix, numbers: PairNumbers, proportion: float) -> LabelMatrix:
    """Keep each label with the same probability."""
    return keep_pairs(labels, lambda pairs: numbers.uniform(pairs.image, pairs.label) < proportion)


def random_per_image(data: Dataset, *, proportion: float = 0.5, seed: int = 0) -> Dataset:
    """Keep the same number of random labels in each training image.

    Args:
        data: fully labeled.
        proportion: of the classes whose labels are kept.
        seed: another seed keeps other labels.

    Returns:
        The simulated dataset; `truth` points to the folder of `data`.

    Example:
        >>> from tagfill.protocols import random_per_image
        >>> part = random_per_image(data, proportion=0.1)  # doctest: +SKIP
    """
    check_proportion("proportion", proportion)

    def rule(labels: LabelMatrix, numbers: PairNumbers) -> LabelMatrix:
        return keep_per_image(labels, numbers, proportion)

    parameters = {"proportion": proportion}
    return simulate(data, "random-per-image", rule, seed=seed, parameters=parameters, complete=True)


def keep_per_image(labels: LabelMatrix, numbers: PairNumbers, proportion: float) -> LabelMatrix:
    """Keep the labels with the largest numbers of each image."""
    dropped = dropped_classes(proportion, labels.width)

    def keep(pairs: Pairs) -> NDArray[np.bool_]:
        number = numbers.bits(pairs.image, pairs.label).reshape(-1, labels.width)
        kept = np.ones(number.shape, dtype=bool)
        np.put_along_axis(kept, np.argsort(number, axis=1)[:, :dropped], False, axis=1)
        return kept.ravel()

    return keep_pairs(labels, keep)


def dropped_classes(proportion: float, width: int) -> int:
    """The number of classes that become unknown, with the rounding of the published code.

    >>> dropped_classes(0.5, 80), dropped_classes(0.9, 80)
    (40, 7)
    """
    return int((1 - proportion) * width)


def fixed_per_class(data: Dataset, *, per_class: int = 1000, seed: int = 0) -> Dataset:
    """Keep the same number of random positives, and as many negatives, of each class.

    Args:
        data: its unknown labels stay unknown.
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
        return keep_per_class(labels, numbers, per_class)

    return simulate(data, "fixed-per-class", rule, seed=seed, parameters={"per_class": per_class}, complete=False)


def keep_per_class(labels: LabelMatrix, numbers: PairNumbers, per_class: int) -> LabelMatrix:
    """Keep the same number of positives, and as many negatives, of each class."""
    wanted = np.minimum(labels.positives, per_class)

    def group(pairs: Pairs) -> NDArray[np.int64]:
        return pairs.label + np.where(pairs.value == POSITIVE, 0, labels.width)

    return sample_pairs(labels, numbers, np.concatenate([wanted, wanted]), group).matrix(labels.shape)
