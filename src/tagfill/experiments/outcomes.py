"""How one run of a comparison ended."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from tagfill.annotations import Dataset
from tagfill.training import Recipe, Run, evaluate, resume, start


@dataclass(frozen=True)
class Outcome:
    """What a leaderboard needs to know of a run.

    Attributes:
        score: mAP on the split that is compared, in percent; NaN if the method refused the data.
        validation: mAP of the best epoch on validation, in percent, if there is a validation split.
        epoch: the best one.
        seconds: of training.
        error: the sentence with which the method refused.
    """

    score: float
    validation: float | None = None
    epoch: int = 0
    seconds: float = 0.0
    error: str | None = None

    @classmethod
    def refused(cls, sentence: str) -> Outcome:
        """A method that cannot learn from this data."""
        return cls(float("nan"), error=sentence)

    def to_json(self) -> dict[str, Any]:
        """As plain values."""
        return asdict(self)


def train_and_score(recipe: Recipe, folder: Path, *, split: str) -> Outcome:
    """Train a run, or continue one that was begun, and score it.

    Args:
        recipe: all settings.
        folder: of the run; what a start that was killed left in it is cleared.
        split: to score.
    """
    dataset = Dataset.open(recipe.dataset)
    begun = (folder / "run.json").exists()
    run = resume(folder) if begun else start(dataset, recipe, out=folder, force=True)
    result = evaluate(run, dataset, split=split, features=recipe.features)
    best = run.best
    return Outcome(100 * result.mean, best.get("val_mAP"), best["epoch"], _seconds(run))


def _seconds(run: Run) -> float:
    lines = (run.folder / "timings.jsonl").read_text(encoding="utf-8").splitlines()
    return float(sum(json.loads(line)["seconds"] for line in lines))
