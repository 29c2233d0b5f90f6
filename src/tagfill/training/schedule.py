"""Learning rates as pure functions of the step, so that resuming needs no state.

    constant   1
    cosine     ½ (1 + cos π u)                              u: share of the stage that is done after the warm-up
    step       factorᵐ                                      m: milestones (epochs) passed
    one-cycle  rises from 1/25 to 1 in the first `rise`, then falls to 1e-4/25, both along half a cosine

Each is a factor on the optimiser's learning rate. A warm-up lets it grow linearly from nothing over the first epochs.
"""

from __future__ import annotations

import math
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field


class Schedule(BaseModel):
    """How the learning rate changes within a stage."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    name: Literal["constant", "cosine", "step", "one-cycle"] = "constant"
    warmup_epochs: Annotated[float, Field(ge=0)] = 0.0
    milestones: tuple[int, ...] = ()  # of `step`: epochs after which the rate falls
    factor: Annotated[float, Field(gt=0, le=1)] = 0.1  # of `step`: by how much
    rise: Annotated[float, Field(gt=0, lt=1)] = 0.2  # of `one-cycle`: share of the stage

    def at(self, step: int, steps_per_epoch: int, epochs: int) -> float:
        """The factor on the learning rate for a step, counted from 0 over the whole stage.

        >>> [round(Schedule(name="cosine").at(step, 5, 2), 2) for step in (0, 5, 9)]
        [1.0, 0.5, 0.02]
        """
        warmup = self.warmup_epochs * steps_per_epoch
        if step < warmup:
            return (step + 1) / (warmup + 1)
        done = (step - warmup) / max(epochs * steps_per_epoch - warmup, 1)
        if self.name == "cosine":
            return _half_cosine(1.0, 0.0, done)
        if self.name == "step":
            epoch = step // steps_per_epoch
            return float(self.factor ** sum(epoch >= milestone for milestone in self.milestones))
        if self.name == "one-cycle":
            low, end = 1 / 25, 1e-4 / 25
            if done < self.rise:
                return _half_cosine(low, 1.0, done / self.rise)
            return _half_cosine(1.0, end, (done - self.rise) / (1 - self.rise))
        return 1.0


def _half_cosine(start: float, stop: float, share: float) -> float:
    return stop + (start - stop) * (1 + math.cos(math.pi * share)) / 2
