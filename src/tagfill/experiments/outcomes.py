"""How one run of an experiment ended."""

from __future__ import annotations

import json
import math
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np

from tagfill.annotations import Dataset
from tagfill.files import write_json
from tagfill.metrics import Recovered, recovered
from tagfill.probabilities import probabilities
from tagfill.training import Recipe, Run, evaluate, resume, start
from tagfill.training.evaluation import DEFAULT_THRESHOLD
from tagfill.training.oracle import true_labels
from tagfill.training.trained import Trained

FILE = "outcome.json"


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
        recovered: of the unknown training labels, how many it calls present, how many of those are, and how many are
            present in all (`tagfill.metrics.Recovered`); None where the truth is unknown or nothing is missing.
    """

    score: float
    validation: float | None = None
    epoch: int = 0
    seconds: float = 0.0
    error: str | None = None
    localisation: float | None = None
    split: str = "test"
    recovered: dict[str, int] | None = None

    @classmethod
    def refused(cls, sentence: str) -> Outcome:
        """A method that cannot learn from this data."""
        return cls(float("nan"), error=sentence)

    def told(self, split: str) -> str:
        """In a few words.

        >>> Outcome(71.238).told("test")
        'test mAP 71.24'
        >>> Outcome(float("nan")).told("held")
        'held mAP not known'
        """
        place = "" if self.localisation is None else f", mAP-loc {self.localisation:.2f}"
        score = "not known" if math.isnan(self.score) else f"{self.score:.2f}"
        return self.error or f"{split} mAP {score}{place}"

    @classmethod
    def read(cls, folder: Path) -> Outcome | None:
        """As the folder of a run has it; None where it was never scored."""
        path = folder / FILE
        return cls(**json.loads(path.read_text(encoding="utf-8"))) if path.exists() else None

    def write(self, folder: Path) -> None:
        """Keep it in the folder of the run."""
        write_json(folder / FILE, asdict(self))


def train_and_score(
    recipe: Recipe, folder: Path, *, split: str, localise: str | None = None, recover: bool = False
) -> Outcome:
    """Train a run, or continue one that was begun, and score it.

    Args:
        recipe: all settings.
        folder: of the run; what a start that was killed before its first checkpoint left in it is cleared.
        split: to score.
        localise: also score class maps, see `tagfill.evaluate`.
        recover: also look for training labels that were not given, see `recovered_labels`.
    """
    dataset = Dataset.open(recipe.dataset)
    run = resume(folder) if Run(folder).begun else start(dataset, recipe, out=folder, force=True)
    return score(run, dataset, split=split, localise=localise, recover=recover)


def score(run: Run, dataset: Dataset, *, split: str, localise: str | None = None, recover: bool = False) -> Outcome:
    """Score a finished run on the features that it ended on, or on images."""
    features = run.recipe.final_features
    result = evaluate(run, dataset, split=split, features=features, localise=localise)
    best, localised = run.best, result.localised
    place = None if localised is None else 100 * localised.mean
    found = recovered_labels(run, dataset, features=features) if recover else None
    return Outcome(
        100 * result.mean,
        best.get("val_mAP"),
        best["epoch"],
        _seconds(run),
        localisation=place,
        split=split,
        recovered=None if found is None else asdict(found),
    )


def recovered_labels(run: Run, dataset: Dataset, *, features: str | None) -> Recovered | None:
    """What a run says about training labels that it was not given, held against the truth of simulated data.

    A label is called present where its probability reaches the class's threshold, as validation chose it.

    Args:
        run: a finished one.
        dataset: that it was trained on.
        features: a cache of the dataset's features to use instead of its images.

    Returns:
        None if the truth is unknown, or if no present label is missing.
    """
    if dataset.truth is None:
        return None
    truth = true_labels(dataset, "train")
    trained = Trained.open(run, dataset, features=features)
    thresholds = trained.model.thresholds or (DEFAULT_THRESHOLD,) * len(dataset.classes)
    called = right = missing = 0
    for batch, prediction in trained.predict("train"):
        present = probabilities(prediction.logits.numpy()) >= np.array(thresholds)
        found = recovered(present, batch.labels.numpy(), truth.rows(batch.index.numpy()))
        called, right, missing = called + found.called, right + found.right, missing + found.missing
    return Recovered(called, right, missing) if missing else None


def _seconds(run: Run) -> float:
    lines = (run.folder / "timings.jsonl").read_text(encoding="utf-8").splitlines()
    return float(sum(json.loads(line)["seconds"] for line in lines))
