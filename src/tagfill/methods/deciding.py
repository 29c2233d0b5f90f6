"""What methods that give labels by themselves decided in their last step."""

from __future__ import annotations

from torch import Tensor

from tagfill.contract import NEGATIVE, POSITIVE, Decisions


def pseudo_labelled(index: Tensor, pseudo: Tensor) -> Decisions:
    """Pseudo-labels of a batch as decisions, those that are present first.

    Args:
        index: B, the images.
        pseudo: B×L, 1 present, 0 absent, -1 where no label was given.
    """
    return Decisions.join(
        [Decisions.of(index, pseudo == value, "pseudo-labelled", value) for value in (POSITIVE, NEGATIVE)]
    )
