"""How one run of an experiment ended."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from tagfill.annotations import Dataset
from tagfill.training import Recipe, Run, evaluate, resume, start


@dataclass(frozen=True)
class Outcome:
    """What an experiment needs to know of a run.

    Attributes:
        score: mAP on the split that gives the scores, in percent; NaN if the method refused the data.
        validation: mAP of the best epoch on validation, in percent, if there is a validation split.
        epoch: the best one.
        seconds: of training.
        error: the sentence with which the method refused.
        localisation: mAP-loc on the same split, in percent, where class maps were scored.
        split: that gave the scores.
    """

    score: float
    validation: float | None = None
    epoch: int = 0
    seconds: float = 0.0
    error: str | None = None
    localisation: float | None = None
    split: str = "test"

    @classmethod
    def refused(cls, sentence: str) -> Outcome:
        """A method that cannot learn from this data."""
        return cls(float("nan"), error=sentence)

    def told(self, split: str) -> str:
        """In a few words.

        >>> Outcome(71.238).told("test")
        'test mAP 71.24'
        """
        place = "" if self.localisation is None else f", mAP-loc {self.localisation:.2f}"
        return self.error or f"{split} mAP {self.score:.2f}{place}"

    def to_json(self) -> dict[str, Any]:
        """As plain values."""
        return asdict(self)


def train_and_score(recipe: Recipe, folder: Path, *, split: str, localise: str | None = None) -> Outcome:
    """Train a run, or continue one that was begun, and score it.

    Args:
        recipe: all settings.
        folder: of the run; what a start that was killed left in it is cleared.
        split: to score.
        localise: also score class maps, see `tagfill.evaluate`.
    """
    dataset = Dataset.open(recipe.dataset)
    begun = (folder / "run.json").exists()
    run = resume(folder) if begun else start(dataset, recipe, out=folder, force=True)
    result = evaluate(run, dataset, split=split, features=recipe.features, localise=localise)
    best, localised = run.best, result.localised
    place = None if localised is None else 100 * localised.mean
    return Outcome(
        100 * result.mean, best.get("val_mAP"), best["epoch"], _seconds(run), localisation=place, split=split
    )


def _seconds(run: Run) -> float:
    lines = (run.folder / "timings.jsonl").read_text(encoding="utf-8").splitlines()
    return float(sum(json.loads(line)["seconds"] for line in lines))
