"""Plan annotation: spend a number of hours where it improves the model most.

1. The kind of annotation (tags, points or boxes) comes from a budget study if there is one; otherwise it is tags, or
   points if the goal is places. The curves of a study give the score of each kind against the share of all pairs that
   can be annotated as tags in the same time. They are interpolated over the logarithm of that share, and never
   extrapolated.
2. The value of an unknown (image, label) pair is −log₂(share of images that show the label) times the probability of
   the label: a present label teaches the model more than an absent one, and a rare label more than a frequent one. The
   pairs with the highest value per second of expected cost are taken until the hours are spent. Probabilities account
   for the tags that were given already (`tagfill.inference.estimates`).
3. The pairs of an image become one task, so that the image is opened once.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from pydantic import BaseModel, Field, ValidationError

from tagfill.curation.crossfit import TRAIN, cross_fit
from tagfill.curation.estimates import EstimateSummary, LabelEstimates, summarize
from tagfill.curation.suggest import Pairs, TopPairs, rarity
from tagfill.dataset import Dataset
from tagfill.dataset.tables import from_records
from tagfill.errors import TagfillError, one_of
from tagfill.experiments.budget_study import RESULTS
from tagfill.experiments.report import Table
from tagfill.formats import cvat, label_studio
from tagfill.io import atomic_write, write_json
from tagfill.progress import NOTEBOOK, Progress
from tagfill.protocols.costs import KINDS, Costs

SOURCE = "plan"
_LIMIT = 2_000_000  # pairs of a plan; 40 hours at one second per pair are 144,000
GOALS = {"tags": ("map_cls",), "places": ("map_loc",), "both": ("map_cls", "map_loc")}


@dataclass(frozen=True)
class Plan:
    """An annotation plan.

    Attributes:
        dataset: the dataset to annotate.
        hours: annotation time.
        kind: kind of annotation: I, SP, SB, AP or AB.
        forecasts: expected score of each kind; empty without a study.
        pairs: pairs to annotate, most valuable first.
        seconds: expected cost of each pair.
        estimates: how many labels are missing, and where the probabilities come from.
    """

    dataset: Dataset
    hours: float
    kind: str
    forecasts: tuple[Forecast, ...]
    pairs: Pairs
    seconds: NDArray[np.float64]
    estimates: EstimateSummary

    @property
    def images(self) -> NDArray[np.int64]:
        """Rows of the image table, in the order of their most valuable pairs."""
        rows, first = np.unique(self.pairs.row, return_index=True)
        return rows[np.argsort(first, kind="stable")]

    @property
    def expected_labels(self) -> float:
        """Expected number of present labels that will be found."""
        return float(self.pairs.probability.sum())

    def to_json(self) -> dict[str, Any]:
        """Plain values for JSON."""
        return {
            "dataset": self.dataset.name,
            "hours": self.hours,
            "kind": self.kind,
            "pairs": len(self.pairs),
            "images": len(self.images),
            "expected_hours": float(self.seconds.sum() / 3600),
            "expected_labels": self.expected_labels,
            "estimates": self.estimates.to_json(),
            "forecasts": [
                {"kind": one.kind, "before": one.before, "after": one.after, "gain": one.gain, "within": one.within}
                for one in self.forecasts
            ],
        }

    def save(self, folder: Path, *, spreadsheet: bool = False) -> list[Path]:
        """Write the plan, its pairs, and tasks for Label Studio and CVAT; each file is written atomically.

        Args:
            folder: created if it is missing.
            spreadsheet: in `tasks.csv`, write an apostrophe before names that a spreadsheet would run as formulas.

        Returns:
            `plan.json`, `tasks.csv`, `label-studio.json` (with its labeling configuration beside it) and `cvat.xml`.
        """
        files = [folder / name for name in ("plan.json", "tasks.csv", "label-studio.json", "cvat.xml")]
        tasks = self.tasks()
        with atomic_write(files[1]) as file:
            file.write(self._table().csv(spreadsheet=spreadsheet).encode())
        label_studio.write(tasks, files[2], predictions=True)
        cvat.write(tasks.replace(annotations=from_records([])), files[3])
        write_json(files[0], self.to_json())
        return files

    def tasks(self) -> Dataset:
        """The images to annotate, in order; labels that are more likely present than not become rows to confirm."""
        likely = self.pairs.take(np.flatnonzero(self.pairs.probability >= 0.5))
        names = self.dataset.names()
        rows = [
            {"image": names[row], "label": self.dataset.classes[label], "present": True, "source": SOURCE}
            for row, label in zip(likely.row, likely.label, strict=True)
        ]
        images = self.dataset.images.take(pa.array(self.images))
        return self.dataset.replace(images=images, annotations=from_records(rows), folder=None, truth=None)

    def _table(self) -> Table:
        """The pairs, image by image."""
        task_of_row = {int(row): task for task, row in enumerate(self.images, start=1)}
        task = np.array([task_of_row[int(row)] for row in self.pairs.row], dtype=np.int64)
        names = self.dataset.names()
        rows = [
            (
                task[n],
                names[self.pairs.row[n]],
                self.dataset.classes[self.pairs.label[n]],
                self.kind,
                f"{self.pairs.probability[n]:.4f}",
                f"{self.pairs.value[n]:.4f}",
                f"{self.seconds[n]:.2f}",
            )
            for n in np.argsort(task, kind="stable")
        ]
        columns = ("task", "image", "label", "kind", "probability", "value", "seconds")
        return Table("tasks", "Pairs to annotate, image by image.", columns, rows)


def plan(
    dataset: Dataset | str | Path,
    hours: float,
    *,
    run: str | os.PathLike[str],
    study: str | Path | None = None,
    goal: str = "tags",
    kind: str | None = None,
    costs: Costs | None = None,
    split: str = TRAIN,
    folds: int = 5,
    features: str | os.PathLike[str] | None = None,
    evidence: Sequence[str] | None = None,
    models: str | Path,
    jobs: int | None = None,
    workers: int = 0,
    device: str = "auto",
    progress: Progress = NOTEBOOK,
) -> Plan:
    """Plan how to spend annotators' time.

    Args:
        dataset: the dataset or its folder.
        hours: annotators' time.
        run: a run on this dataset; its recipe is trained on folds, so that no image is scored by a model that was
            trained on it.
        study: folder or `budget.json` of a budget study of this dataset or a similar one.
        goal: purpose of the model: `tags`, `places` or `both`.
        kind: kind of annotation, instead of the best one of the study.
        costs: seconds per tag, and additional seconds per point and box.
        split: split of the images that may be annotated.
        folds: number of models to train; 0 scores with the run itself.
        features: a feature cache, or its folder, to use instead of images; by default, fold models use that of the run.
        evidence: names of evidence of other taggers to combine with the model; by default all that the dataset has,
            and an empty list for none.
        models: folder for the fold models; finished ones are reused.
        jobs: number of processes that train.
        workers: number of threads that decode images.
        device: of the networks: `cpu`, `cuda`, `mps`, or `auto`.
        progress: shows the runs.
    """
    data = dataset if isinstance(dataset, Dataset) else Dataset.open(dataset)
    costs = costs or Costs()
    if not 0 < hours < float("inf"):
        raise TagfillError(f"{hours} hours cannot be planned; give more than 0.")
    one_of("goal", goal, GOALS)
    if kind is not None:
        one_of("kind", kind, KINDS)
    labels, rows = data.labels(), data.split(split)
    size = len(rows) * len(data.classes)
    spent = 100 * float(data.labels(split).known.sum()) / size
    expected = tuple(forecasts(Path(study), goal, spent, 100 * hours * 3600 / costs.image / size)) if study else ()
    if kind is None:
        kind = expected[0].kind if expected else "I" if goal == "tags" else "SP"
    limit = min(_LIMIT, int(hours * 3600 / costs.image) + 1)
    top = TopPairs(limit, None, lambda pairs: pairs.value / _seconds(pairs, kind, costs))
    estimates: list[LabelEstimates] = []
    for images in cross_fit(
        Path(run),
        data,
        split,
        folds=folds,
        out=Path(models),
        features=None if features is None else Path(features),
        jobs=jobs,
        workers=workers,
        device=device,
        evidence=evidence,
        progress=progress,
    ):
        unknown, known = ~labels.is_annotated(images.rows), labels.rows(images.rows)
        probability = images.estimates(images.logits, known)
        value = probability * rarity(images.shares)
        top.add(Pairs.where(unknown, images.rows, probability, value, known))
        estimates.append(images.estimates)
    pairs = top.top()
    seconds = _seconds(pairs, kind, costs)
    affordable = int(np.searchsorted(np.cumsum(seconds), hours * 3600, side="right"))
    summary = summarize(estimates)
    return Plan(data, hours, kind, expected, pairs.take(np.arange(affordable)), seconds[:affordable], summary)


@dataclass(frozen=True)
class Forecast:
    """The expected score of a kind of annotation.

    Attributes:
        kind: I, SP, SB, AP or AB.
        before: score with the current annotations, in percent.
        after: score when the hours are spent.
        within: whether the study covers that budget; if not, `after` is the score at its largest budget.
    """

    kind: str
    before: float
    after: float
    within: bool

    @property
    def gain(self) -> float:
        """Difference in percentage points."""
        return self.after - self.before


def forecasts(study: Path, goal: str, spent: float, planned: float) -> list[Forecast]:
    """The expected score of each kind of annotation in a study, with the best of its methods; best first.

    Args:
        study: the folder that `tagfill budget` wrote, or its `budget.json`.
        goal: `tags`, `places`, or `both` with equal weights.
        spent: percent of all pairs that are annotated.
        planned: percent of all pairs that can be annotated as tags in the hours.
    """
    one_of("goal", goal, GOALS)
    path = study / RESULTS if study.is_dir() else study
    try:
        results = _Study.model_validate_json(path.read_bytes()).findings
    except (OSError, ValidationError):
        raise TagfillError(f"{path} is not the result of a budget study; run 'tagfill budget' first.") from None
    curves: dict[str, dict[float, float]] = {}
    for result in results:
        scores = [np.mean(seeds) for name in GOALS[goal] if (seeds := getattr(result, name))]
        if len(scores) == len(GOALS[goal]):
            curve = curves.setdefault(result.kind.partition("+")[0], {})  # what follows is part of the method
            curve[result.percent] = max(float(np.mean(scores)), curve.get(result.percent, -np.inf))
    if not curves:
        raise TagfillError(f"{path} has no scores for the goal '{goal}'; choose another --goal.")
    found = []
    for kind, points in curves.items():
        percents, values = zip(*sorted(points.items()), strict=True)
        before, after = (
            float(np.interp(np.log(max(at, 1e-9)), np.log(percents), values)) for at in (spent, spent + planned)
        )
        found.append(Forecast(kind, before, after, percents[0] <= spent + planned <= percents[-1]))
    return sorted(found, key=lambda forecast: -forecast.after)


class _StudyResult(BaseModel):
    kind: str
    percent: float
    map_cls: list[float] = Field([], alias="mAP_cls")
    map_loc: list[float] = Field([], alias="mAP_loc")


class _Study(BaseModel):
    """The part of `budget.json` that a plan needs."""

    findings: list[_StudyResult]


def _seconds(pairs: Pairs, kind: str, costs: Costs) -> NDArray[np.float64]:
    """Expected cost of pairs: a point or box is drawn only where the label is present."""
    return costs.image + costs.unit(kind) * pairs.probability
