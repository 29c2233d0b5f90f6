"""Each known (image, label) pair is kept with the same probability, whatever its label.

Known as "random per sample" or as the known-label proportion:

    z_il = y_il  if u_il < proportion,  else unknown,      u_il uniform in [0, 1)

Published code draws u from an unseeded or a global generator; here u_il is the pair's own number (`pair_numbers`). A
larger proportion under the same seed keeps everything that a smaller one keeps.

Ben-Baruch et al., Multi-label Classification with Partial Annotations using Class-aware Selective Loss, CVPR 2022.
"""

from __future__ import annotations

from tagfill.annotations import Dataset, LabelMatrix
from tagfill.protocols.checks import proportion_between
from tagfill.protocols.pair_numbers import PairNumbers
from tagfill.protocols.pairs import thin
from tagfill.protocols.simulating import simulate


def random_entries(data: Dataset, *, proportion: float = 0.5, seed: int = 0) -> Dataset:
    """Keep each label of the training images with the same probability.

    Args:
        data: what it does not know stays unknown.
        proportion: the probability to keep a label.
        seed: another seed keeps other labels.

    Returns:
        The simulated dataset; `truth` points to the folder of `data`.

    Example:
        >>> from tagfill.protocols import random_entries
        >>> part = random_entries(data, proportion=0.1)  # doctest: +SKIP
    """
    proportion_between("proportion", proportion)

    def rule(labels: LabelMatrix, numbers: PairNumbers) -> LabelMatrix:
        return draw(labels, numbers, proportion)

    parameters = {"proportion": proportion}
    return simulate(data, "random-entries", rule, seed=seed, parameters=parameters, complete=False)


def draw(labels: LabelMatrix, numbers: PairNumbers, proportion: float) -> LabelMatrix:
    """The labels that are kept."""
    return thin(labels, lambda pairs: numbers.uniform(pairs.image, pairs.label) < proportion)
