"""A few observed positives and negatives an image: the single-positive protocol with other numbers.

The draw is that of `single_positive`, number for number: the shuffles do not depend on how much of them is kept, so
the one positive of the single-positive protocol is among the k of this one. Positives may carry a point or a box, for
methods that learn from places; which instance and where on it depends on names and seed alone, as in `budget`.

Cole et al., Multi-Label Learning from Single Positive Labels, CVPR 2021.
"""

from __future__ import annotations

from tagfill.annotations import Dataset
from tagfill.errors import TagfillError, one_of
from tagfill.protocols.costs import KINDS
from tagfill.protocols.single_positive import ALL, observe


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
