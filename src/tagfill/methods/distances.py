"""Which distances mean present and absent, chosen on images whose labels are known.

    d⁺  the distance that takes in most, of those up to which at least the share `precision` of what is near is present
    d⁻  the smallest distance beyond which at most the share `missed` of what is present lies; above d⁺

Distances are counted in steps of 0.001, so the memory does not depend on the number of images, and counts of several
processes add up.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from tagfill.contract import NEGATIVE, POSITIVE, Ranks

_STEPS = 1000  # of a distance of 1
_LARGEST = 2


@dataclass(frozen=True)
class Thresholds:
    """Distances, and how they did where they were chosen.

    Attributes:
        positive: d⁺; nothing is near enough if it is negative.
        negative: d⁻.
        precision: share of what lies within d⁺ that is present; NaN if nothing does.
        recall: share of what is present that lies within d⁺.
        missed: share of what is present that lies beyond d⁻.
    """

    positive: float
    negative: float
    precision: float
    recall: float
    missed: float


class DistanceCounts:
    """How many known labels of either kind lie at each distance."""

    def __init__(self) -> None:
        self._counts = torch.zeros(2, _LARGEST * _STEPS + 1, dtype=torch.int64)

    def add(self, distances: Tensor, labels: Tensor) -> None:
        """Distances and labels, B×L; what is unknown or farther than any place can be does not count."""
        for value in (NEGATIVE, POSITIVE):
            chosen = distances[(labels == value) & (distances <= _LARGEST)].cpu()
            steps = (chosen.clamp(min=0).double() * _STEPS).ceil().long()
            self._counts[value] += torch.bincount(steps, minlength=self._counts.shape[1])

    def share(self, ranks: Ranks) -> None:
        """Add up what all processes counted."""
        self._counts = ranks.sum(self._counts)

    def __len__(self) -> int:
        """The number of known labels."""
        return int(self._counts.sum())

    def choose(self, positive: float | None, negative: float | None, *, precision: float, missed: float) -> Thresholds:
        """The two distances; one that is given stays as it is.

        Args:
            positive: d⁺, None to choose it.
            negative: d⁻, None to choose it.
            precision: that the near ones must have.
            missed: the share of present ones that may lie beyond d⁻.
        """
        absent, present = (self._counts[value].cumsum(0).double() for value in (NEGATIVE, POSITIVE))
        near, everything = absent + present, present[-1].clamp(min=1)
        if positive is None:
            good = torch.nonzero((near > 0) & (present >= precision * near))
            tight = int(torch.searchsorted(near, near[int(good[-1])])) if len(good) else -1
            positive = tight / _STEPS
        if negative is None:
            beyond = (present[-1] - present) / everything
            first = int(torch.nonzero(beyond <= missed)[0])
            negative = max(first / _STEPS, positive + 1 / _STEPS)
        at, far = (min(max(round(value * _STEPS), -1), len(near) - 1) for value in (positive, negative))
        inside = (float(present[at]), float(near[at])) if at >= 0 else (0.0, 0.0)
        return Thresholds(
            positive,
            negative,
            inside[0] / inside[1] if inside[1] else float("nan"),
            inside[0] / float(everything),
            float((present[-1] - (present[far] if far >= 0 else 0)) / everything),
        )
