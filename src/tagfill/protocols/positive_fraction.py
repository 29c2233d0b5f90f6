"""A fraction of all positive labels, and about as many negatives.

    round(fraction·P) of the P positive pairs of the split, uniformly
    round(ratio·kept positives) negatives, uniformly over the images that keep a positive
    the rest is unknown; fraction = 1 keeps everything, including all negatives

The paper states a ratio of 1 to 1.5; by default it is drawn once from U(1, 1.5) by the seed and the fraction. With the
same seed, a larger fraction keeps all positives that a smaller one keeps. Soft Exposure, §4 (random fractions of COCO
2017).

Training images can be held out for validation with the same distribution of labels, as 2,000 of COCO's 118,000 were, by
iterative stratification into two subsets. The rarest class comes first. Each of its images goes to the subset that
still needs most images of that class, then to the one that needs most images in total; a full subset takes no more, so
that sizes are exact. Images without a positive fill the rest. Order and ties are decided by the random numbers of
images and classes, not by their positions. Sechidis et al., On the Stratification of Multi-Label Data, ECML PKDD 2011.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from tagfill.dataset import Dataset
from tagfill.errors import DatasetError, TagfillError
from tagfill.labels import NEGATIVE, POSITIVE, LabelMatrix
from tagfill.protocols.pairs import Pairs, concat_pairs, keep_pairs, sample_pairs
from tagfill.protocols.simulate import check_proportion, simulate
from tagfill.rng import PairNumbers

LEAST_RATIO, LARGEST_RATIO = 1.0, 1.5


def positive_fraction(
    data: Dataset, *, fraction: float = 0.1, ratio: float | None = None, held_out: int = 0, seed: int = 0
) -> Dataset:
    """Keep a fraction of the positive labels of the training images, and 1 to 1.5 times as many negatives.

    Args:
        data: its unknown labels stay unknown.
        fraction: of the positive labels; 0.05, 0.1, 0.3, 0.5, 0.7 and 0.9 were published.
        ratio: negatives per kept positive; random in [1, 1.5) by default.
        held_out: number of training images that become the validation split; an existing one becomes test.
        seed: another seed keeps other labels.

    Returns:
        The simulated dataset; `truth` points to the folder of `data`.

    Example:
        >>> from tagfill.protocols import positive_fraction
        >>> part = positive_fraction(data, fraction=0.3, held_out=2000)  # doctest: +SKIP
    """
    check_proportion("fraction", fraction)
    if ratio is not None and ratio < 0:
        raise TagfillError(f"ratio is {ratio}; give the number of negatives per positive, 0 or more.")
    drawn_ratio = random_ratio(seed, fraction) if ratio is None else ratio
    if held_out:
        data = hold_out(data, held_out, seed)

    def rule(labels: LabelMatrix, numbers: PairNumbers) -> LabelMatrix:
        return keep_fraction(labels, numbers, fraction, drawn_ratio)

    parameters = {"fraction": fraction, "ratio": drawn_ratio, "held_out": held_out}
    return simulate(data, "positive-fraction", rule, seed=seed, parameters=parameters, complete=False)


def keep_fraction(labels: LabelMatrix, numbers: PairNumbers, fraction: float, ratio: float) -> LabelMatrix:
    """Keep a fraction of the positives, and `ratio` times as many negatives from the same images."""
    if fraction == 1:
        return keep_pairs(labels, lambda pairs: np.ones(len(pairs), dtype=bool))
    count = round(fraction * int(labels.positives.sum()))
    positives = sample_pairs(labels, numbers, np.array([count]), lambda pairs: np.where(pairs.value == POSITIVE, 0, -1))
    seen = np.zeros(len(labels), dtype=bool)
    seen[positives.image] = True

    def beside(pairs: Pairs) -> NDArray[np.int64]:
        return np.where((pairs.value == NEGATIVE) & seen[pairs.image], 0, -1)

    negatives = sample_pairs(labels, numbers, np.array([round(ratio * count)]), beside)
    return concat_pairs([positives, negatives]).matrix(labels.shape)


def random_ratio(seed: int, fraction: float) -> float:
    """Negatives per positive, uniform in [1, 1.5)."""
    first = np.zeros(1, dtype=np.int64)
    uniform = PairNumbers.of(["ratio of negatives"], [repr(float(fraction))], seed).uniform(first, first)
    return LEAST_RATIO + (LARGEST_RATIO - LEAST_RATIO) * float(uniform[0])


def hold_out(data: Dataset, size: int, seed: int) -> Dataset:
    """Turn a stratified part of the training split into the validation split; an existing one becomes test."""
    if "val" in data.splits and "test" in data.splits:
        raise DatasetError(
            f"{data.name} already has the splits val and test; omit held_out, or rename one of the splits."
        )
    training = data.split("train")
    if not 0 < size < len(training):
        raise TagfillError(f"held_out is {size}; give a number below {len(training):,}, the number of training images.")
    numbers = PairNumbers.of(data.names(training), data.classes, seed)
    chosen = stratified(data.labels("train"), numbers, size)
    splits = data.split_of_images()
    splits[splits == "val"] = "test"
    splits[training[chosen]] = "val"
    return data.with_splits(splits)


def stratified(labels: LabelMatrix, numbers: PairNumbers, held_out: int) -> NDArray[np.int64]:
    """Positions of `held_out` images whose positives are distributed like those of all images.

    >>> labels = LabelMatrix.from_dense(np.array([[1, 0]] * 8 + [[0, 1]] * 4))
    >>> numbers = PairNumbers.of([f"{i}.jpg" for i in range(12)], ["cat", "dog"], 0)
    >>> labels.rows(stratified(labels, numbers, 3)).sum(axis=0).tolist()
    [2, 1]
    """
    positive = labels.values == POSITIVE
    image, label = labels.images()[positive], labels.classes[positive]
    starts = np.searchsorted(image, np.arange(len(labels) + 1))
    by_label = np.lexsort((numbers.images[image], label))
    members = np.split(image[by_label], np.cumsum(np.bincount(label, minlength=labels.width))[:-1])
    remaining = np.bincount(label, minlength=labels.width)
    share = held_out / max(len(labels), 1)
    wanted = [[count * (1 - share) for count in remaining.tolist()], [count * share for count in remaining.tolist()]]
    room = [len(labels) - held_out, held_out]
    side = np.full(len(labels), -1, dtype=np.int8)
    while remaining.any():
        rarest = np.flatnonzero(remaining == remaining[remaining > 0].min())
        current = int(rarest[np.argmin(numbers.labels[rarest])])
        for member in members[current].tolist():
            if side[member] >= 0:
                continue
            chosen = _subset(wanted, room, current)
            side[member] = chosen
            room[chosen] -= 1
            shown = label[starts[member] : starts[member + 1]]
            remaining[shown] -= 1
            for other in shown.tolist():
                wanted[chosen][other] -= 1
    left = np.flatnonzero(side < 0)
    side[left[np.argsort(numbers.images[left])][: room[1]]] = 1
    return np.flatnonzero(side == 1)


def _subset(wanted: list[list[float]], room: list[int], label: int) -> int:
    """The subset that the next image of a class goes to: 1 if it is held out."""
    if not all(room):
        return int(room[1] > 0)
    return int((wanted[1][label], room[1]) > (wanted[0][label], room[0]))
