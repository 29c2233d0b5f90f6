"""How far a stage has come: its best epoch, and whether a better one is still expected."""

from __future__ import annotations

from dataclasses import dataclass

from tagfill.training.recipe import Stopping


@dataclass
class Standing:
    """The standing of a stage.

    Attributes:
        best: stage, epoch and score of the best epoch so far.
        stale: epochs since then.
        done: whether the stage has ended early.
    """

    best: dict[str, float] | None = None
    stale: int = 0
    done: bool = False

    def judge(self, stage: int, epoch: int, score: float, stopping: Stopping) -> bool:
        """Take in the score of another epoch; gives whether it is the best one.

        >>> standing = Standing()
        >>> [standing.judge(0, epoch, score, Stopping(patience=2)) for epoch, score in enumerate([0.5, 0.4, 0.3], 1)]
        [True, False, False]
        >>> standing.done
        True
        """
        better = self.best is None or score > self.best["score"]
        if better:
            self.best = {"stage": stage, "epoch": epoch, "score": score}
        self.stale = 0 if better else self.stale + 1
        assert self.best is not None
        tired = stopping.patience is not None and self.stale >= stopping.patience
        fallen = stopping.drop is not None and 100 * (self.best["score"] - score) > stopping.drop
        self.done = tired or fallen
        return better
