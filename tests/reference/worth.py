"""What a question about an image and a label is worth, as the formulas are written."""

from __future__ import annotations

import math


def checking(probability: float, share: float) -> float:
    """Entropy in bits, times −log₂ of the share of images that show the label."""
    bits = 0.0
    for chance in (probability, 1 - probability):
        if chance > 0:
            bits -= chance * math.log2(chance)
    return bits * -math.log2(share)


def planning(probability: float, share: float) -> float:
    """Probability times −log₂ of the share of images that show the label."""
    return probability * -math.log2(share)
