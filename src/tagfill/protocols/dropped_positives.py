"""Missing positives: annotators name some of the present labels and leave out the rest.

    each positive is kept with probability `keep`, or one random positive of each image (`keep="one"`)

The published files then label everything else as absent, so that a dropped positive is a wrong negative. That is
`rest="absent"`; by default the rest is unknown, and the method decides what to assume.

Zhang et al., Simple and Robust Loss Design for Multi-Label Learning with Missing Labels, 2021.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from tagfill.dataset import Dataset
from tagfill.errors import DatasetError, TagfillError, one_of
from tagfill.labels import NEGATIVE, POSITIVE, LabelMatrix
from tagfill.protocols.pairs import Pairs, keep_pairs
from tagfill.protocols.simulate import check_proportion, simulate
from tagfill.rng import PairNumbers

ONE = "one"
UNKNOWN_REST, ABSENT_REST = "unknown", "absent"


def dropped_positives(data: Dataset, *, keep: float | str = ONE, rest: str = UNKNOWN_REST, seed: int = 0) -> Dataset:
    """Keep some of the positive labels of the training images, and no negative.

    Args:
        data: fully labeled if the rest becomes absent.
        keep: the probability of keeping a positive (0.75 and 0.4 were published), or `one` per image.
        rest: what all other labels become, `unknown` or `absent`.
        seed: another seed keeps other labels.

    Returns:
        The simulated dataset; `truth` points to the folder of `data`.

    Example:
        >>> from tagfill.protocols import dropped_positives
        >>> part = dropped_positives(data, keep=0.4, rest="absent")  # doctest: +SKIP
    """
    one_of("rest", rest, (UNKNOWN_REST, ABSENT_REST))
    if isinstance(keep, str):
        if keep != ONE:
            raise TagfillError(f"keep is '{keep}'; give a number from 0 to 1, or '{ONE}'.")
    else:
        check_proportion("keep", keep)

    if rest == ABSENT_REST and data.hierarchy:
        raise DatasetError(
            f"In the hierarchy of {data.name} a dropped parent would be absent and its kept child present; "
            f"choose rest '{UNKNOWN_REST}', or a dataset without a hierarchy."
        )

    def rule(labels: LabelMatrix, numbers: PairNumbers) -> LabelMatrix:
        return keep_positives(labels, numbers, keep, absent=rest == ABSENT_REST)

    parameters = {"keep": keep, "rest": rest}
    return simulate(data, "dropped-positives", rule, seed=seed, parameters=parameters, complete=rest == ABSENT_REST)


def keep_positives(labels: LabelMatrix, numbers: PairNumbers, keep: float | str, *, absent: bool) -> LabelMatrix:
    """Keep some positives; with `absent`, all other labels become negative."""

    def kept(pairs: Pairs) -> NDArray[np.bool_]:
        positive = pairs.value == POSITIVE
        if isinstance(keep, str):
            return _first_of_each_image(pairs, numbers, positive)
        chosen: NDArray[np.bool_] = positive & (numbers.uniform(pairs.image, pairs.label) < keep)
        return chosen

    positives = keep_pairs(labels, kept)
    return _others_absent(positives) if absent else positives


def _first_of_each_image(pairs: Pairs, numbers: PairNumbers, positive: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """The positive with the smallest number of each image."""
    at = np.flatnonzero(positive)
    image = pairs.image[at]
    order = np.lexsort((numbers.bits(image, pairs.label[at]), image))
    _, first = np.unique(image[order], return_index=True)
    chosen = np.zeros(len(pairs), dtype=bool)
    chosen[at[order[first]]] = True
    return chosen


def _others_absent(positives: LabelMatrix) -> LabelMatrix:
    """A complete matrix with only these positives."""
    size, width = positives.shape
    values = np.full(size * width, NEGATIVE, dtype=np.int8)
    values[positives.images() * width + positives.classes] = POSITIVE
    classes = np.tile(np.arange(width, dtype=np.int32), size)
    return LabelMatrix(np.arange(size + 1, dtype=np.int64) * width, classes, values, width)
