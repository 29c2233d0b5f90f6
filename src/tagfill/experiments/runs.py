"""The ceiling of a comparison: the same images in the same splits, with all their labels.

What takes part in a comparison: a method, with the options of its head where they matter.

ll-r                 a method
en+scl               methods that add up
ll-r:boost=5         a method with an option of the head
full                 complete labels, the ceiling; needs a dataset that was simulated

How one run of an experiment ended.

Making the runs of an experiment, wherever an engine puts them: each run only once.

Each run leaves its outcome in its folder, so an experiment that was stopped goes on where it stopped, and one that is
asked for again only reads. A run whose process died is begun again by the engine and resumes from its checkpoint.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tagfill import methods
from tagfill.dataset import Dataset
from tagfill.engines import Engine
from tagfill.errors import TagfillError
from tagfill.io import write_json
from tagfill.metrics import Recovered, recovered
from tagfill.options import parse_assignment, parse_value
from tagfill.probabilities import probabilities
from tagfill.progress import Progress
from tagfill.training import Recipe, Run, evaluate, resume, start
from tagfill.training.evaluation import DEFAULT_THRESHOLD, LoadedModel
from tagfill.training.stage import true_labels


def complete_labels(part: Dataset, folder: Path) -> Path:
    """Save a simulated dataset with the labels that it was simulated from; one that exists already is kept.

    Args:
        part: the simulated dataset, whose splits hold: a protocol may have split validation from training.
        folder: to save it in.

    Returns:
        The folder.
    """
    if not (folder / "dataset.yaml").exists():
        completed(part).save(folder)
    return folder


def completed(part: Dataset) -> Dataset:
    """A simulated dataset with the labels that it was simulated from: the same images in the same splits."""
    assert part.truth is not None
    whole = Dataset.open(part.truth)
    if whole.classes != part.classes:
        raise TagfillError(f"The truth of {part.name}, {part.truth}, has other classes.")
    names = pa.array(part.names())
    rows = pa.Table.from_batches(
        [batch.filter(pc.is_in(batch["image"], value_set=names)) for batch in whole.rows().to_batches()],
        schema=whole.rows().schema,
    )
    return part.replace(name=f"{part.name}-complete", annotations=rows, folder=None, truth=None, protocol=None)


FULL, FLOOR = "full", "an"


@dataclass(frozen=True)
class Entry:
    """A line of a leaderboard to be.

    Attributes:
        name: as it was written.
        method: what trains.
        head_options: of its head.
        complete: train on complete labels.
        options: of its method, by the method's name, in place of those of all.
        dataset: a folder with other labels of the same images that it is given instead, such as points.
        note: what is particular about that, for the leaderboard.
    """

    name: str
    method: str
    head_options: dict[str, Any] = field(default_factory=dict)
    complete: bool = False
    options: dict[str, dict[str, Any]] = field(default_factory=dict)
    dataset: Path | None = None
    note: str = ""


def parse_entries(text: str) -> list[Entry]:
    """Entries from a list joined by commas, each once, in that order.

    Raises:
        TagfillError: for a method that does not exist, or an option without a value.

    >>> [(entry.method, entry.head_options) for entry in parse("an,ll-r:boost=5")]
    [('an', {}), ('ll-r', {'boost': 5})]
    """
    names = [part.strip() for part in text.split(",") if part.strip()]
    if not names:
        raise TagfillError("There is nothing to compare; name methods as in --methods an,en+scl,role.")
    return [_entry(name) for name in dict.fromkeys(names)]


def _entry(name: str) -> Entry:
    method, *rest = name.split(":")
    if method == FULL:
        return Entry(name, "bce", _options(rest), complete=True)
    methods.create(method)  # says what is wrong with a name
    return Entry(name, method, _options(rest))


def _options(texts: list[str]) -> dict[str, Any]:
    pairs = (parse_assignment(text, example="ll-r:boost=5") for text in texts)
    return {name: parse_value(value) for name, value in pairs}


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
    return score_run(run, dataset, split=split, localise=localise, recover=recover)


def score_run(run: Run, dataset: Dataset, *, split: str, localise: str | None = None, recover: bool = False) -> Outcome:
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
    trained = LoadedModel.open(run, dataset, features=features)
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


@dataclass(frozen=True)
class Job:
    """One run: everything that another process needs to make it.

    Attributes:
        title: what it is, for whoever watches.
        recipe: all its settings.
        folder: of the run.
        split: that gives the scores.
        localise: how class maps are scored, see `tagfill.evaluate`; None if they are not.
        recover: look for training labels that were not given, and hold them against the truth where it is known.
    """

    title: str
    recipe: Recipe
    folder: Path
    split: str
    localise: str | None = None
    recover: bool = False


def check_jobs(job: Job) -> None:
    """Raise for settings that no data could make right, and for a run of other settings, before anything is trained."""
    methods.create(job.recipe.method, job.recipe.options)
    description = job.folder / "run.json"
    if description.exists():
        made = json.loads(description.read_text(encoding="utf-8"))["recipe_hash"]
        if made != job.recipe.hash():
            raise TagfillError(f"{job.folder} holds a run with other settings; choose another --out.")


def run_all(jobs: Sequence[Job], engine: Engine, progress: Progress) -> Iterator[Outcome]:
    """Outcomes in the order of the jobs, made by an engine."""
    with progress.bar("runs", len(jobs), "runs") as bar:
        for job, outcome in zip(jobs, engine.map(make_run, jobs), strict=True):
            bar.advance()
            progress.say(f"{job.title}: {outcome.told(job.split)}")
            yield outcome


def make_run(job: Job) -> Outcome:
    """Make one run and score it, or read how it ended."""
    known = Outcome.read(job.folder)
    if known is not None and known.split == job.split and (job.localise is None or known.localisation is not None):
        return known
    try:
        outcome = train_and_score(job.recipe, job.folder, split=job.split, localise=job.localise, recover=job.recover)
    except TagfillError as error:
        return Outcome.refused(str(error))
    outcome.write(job.folder)
    return outcome
