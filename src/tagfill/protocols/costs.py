"""Annotation time: the cost model of PatchML.

    a label of an image          image            1 s, present or absent
    a point on top of it         point            1.4 s, only where the class is present
    a box on top of it           box              6 s (the paper's sums imply it)

Five kinds of annotation: I, image labels only; SP and SB, one random instance of each positive class is located by a
point or a box; AP and AB, all its instances are.

    budget       percent/100 · N·L · image        100 % labels every pair of N images and L classes at image level
    average      image + unit·located/L           seconds per pair, with `located` objects located per image on average
    exact        image + unit·instances           seconds of a positive pair; image for a negative one

The paper charges every pair the average, with 3.5 positive classes per image for COCO (84.9/80 s for SP and 101/80 s
for SB) and 5 for Objects365.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tagfill.errors import TagfillError
from tagfill.labels import POSITIVE

KINDS = ("I", "SP", "SB", "AP", "AB")
ACCOUNTINGS = ("average", "exact", "equal")


@dataclass(frozen=True)
class Costs:
    """Seconds for an image label, and for a point or a box in addition."""

    image: float = 1.0
    point: float = 1.4
    box: float = 6.0

    def __post_init__(self) -> None:
        if not (0 < self.image < math.inf and 0 <= self.point < math.inf and 0 <= self.box < math.inf):
            raise TagfillError(
                f"Costs of {self.image}, {self.point} and {self.box} seconds are invalid; "
                "give more than 0 for an image label and at least 0 for a point and a box."
            )

    def unit(self, kind: str) -> float:
        """Seconds to locate one object."""
        return {"I": 0.0, "P": self.point, "B": self.box}[kind[-1]]

    def budget(self, percent: float, shape: tuple[int, int]) -> float:
        """Seconds to label a percentage of all pairs at image level."""
        return percent / 100 * shape[0] * shape[1] * self.image

    def average(self, kind: str, located: float, width: int) -> float:
        """Seconds per pair if each image has `located` objects to locate.

        >>> round(Costs().average("SP", 3.5, 80) * 80, 1), round(Costs().average("SB", 3.5, 80) * 80, 1)
        (84.9, 101.0)
        """
        return self.image + self.unit(kind) * located / max(width, 1)

    def exact(self, kind: str, value: NDArray[np.int8], instances: NDArray[np.integer]) -> NDArray[np.float64]:
        """Seconds of each pair, given its value and the number of its located instances."""
        seconds: NDArray[np.float64] = self.image + np.where(value == POSITIVE, self.unit(kind) * instances, 0.0)
        return seconds


def all_instances(kind: str) -> bool:
    """Whether a kind locates every instance."""
    return kind in ("AP", "AB")
