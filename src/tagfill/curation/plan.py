"""Tags, points or boxes: what a budget study says about so many hours.

A study's curves give the score of each kind against the share of all pairs that its hours would pay for as tags. They
are interpolated over the logarithm of that share, and not beyond its ends. The gain of a plan is the difference between
the curve after it and the curve at what is annotated already.


Planning: so many hours of annotators' time, spent on what teaches most.

1. The kind of annotation comes from a budget study where there is one (`tagfill.curation.plan`); otherwise tags, or
   points if places are the goal.
2. Every unknown pair of an image and a label is worth −log₂(share of images that show the label) times its probability
   of being there: a present label teaches, an absent one mostly confirms what a model assumes, rare ones teach more.
   Divided by the seconds that it is expected to cost, the most valuable pairs are taken until the hours are spent.
3. Pairs of one image become one task, so that it is opened once.
"""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from tagfill.curation.crossfit import TRAIN, cross_fit
from tagfill.curation.suggest import Best, Pairs, rarity
from tagfill.dataset import Dataset
from tagfill.dataset.tables import from_records
from tagfill.errors import TagfillError, one_of
from tagfill.experiments.budget_study import RESULTS
from tagfill.experiments.report import Table
from tagfill.formats import cvat, label_studio
from tagfill.io import atomic_write, write_json
from tagfill.progress import SILENT, Progress
from tagfill.protocols.costs import Costs

GOALS = {"tags": ("mAP_cls",), "places": ("mAP_loc",), "both": ("mAP_cls", "mAP_loc")}


@dataclass(frozen=True)
class Forecast:
    """What a kind of annotation is expected to give.

    Attributes:
        kind: I, SP, SB, AP or AB.
        before: score at what is annotated already, in percent.
        after: score when the hours are spent.
        within: whether the study's budgets reach that far; beyond them, `after` is that of its largest.
    """

    kind: str
    before: float
    after: float
    within: bool

    @property
    def gain(self) -> float:
        """Points."""
        return self.after - self.before


def forecasts(study: Path, goal: str, spent: float, planned: float) -> list[Forecast]:
    """What each kind of a study is expected to give, best first.

    Args:
        study: the folder that `tagfill budget` wrote, or its `budget.json`.
        goal: `tags`, `places` or `both`, whose scores count the same.
        spent: percent of all pairs that are annotated already.
        planned: percent of all pairs that the hours pay for as tags.
    """
    one_of("goal", goal, GOALS)
    path = study / RESULTS if study.is_dir() else study
    try:
        findings: list[dict[str, Any]] = json.loads(path.read_text(encoding="utf-8"))["findings"]
    except (OSError, ValueError, KeyError):
        raise TagfillError(f"{path} is no result of a budget study; make one with 'tagfill budget'.") from None
    curves: dict[str, list[tuple[float, float]]] = {}
    for finding in findings:
        scores = [np.mean(finding[name]) for name in GOALS[goal] if finding.get(name)]
        if len(scores) == len(GOALS[goal]):
            curves.setdefault(finding["kind"], []).append((finding["percent"], float(np.mean(scores))))
    if not curves:
        raise TagfillError(f"{path} has no scores for the goal '{goal}'; choose another --goal.")
    found = []
    for kind, points in curves.items():
        percents, values = zip(*sorted(points), strict=True)
        before, after = (
            float(np.interp(np.log(max(at, 1e-9)), np.log(percents), values)) for at in (spent, spent + planned)
        )
        found.append(Forecast(kind, before, after, percents[0] <= spent + planned <= percents[-1]))
    return sorted(found, key=lambda forecast: -forecast.after)


SOURCE = "plan"
_LIMIT = 2_000_000  # pairs of a plan; 40 hours are 144,000 of a second each


@dataclass(frozen=True)
class Plan:
    """How to spend annotators' time.

    Attributes:
        dataset: that it is about.
        hours: that may be spent.
        kind: of annotation: I, SP, SB, AP or AB.
        forecasts: what each kind is expected to give; empty without a study.
        pairs: to look at, most valuable first.
        seconds: that each is expected to cost.
    """

    dataset: Dataset
    hours: float
    kind: str
    forecasts: tuple[Forecast, ...]
    pairs: Pairs
    seconds: NDArray[np.float64]

    @property
    def images(self) -> NDArray[np.int64]:
        """Rows of the image table, in the order of their best pairs."""
        rows, first = np.unique(self.pairs.row, return_index=True)
        return rows[np.argsort(first, kind="stable")]

    @property
    def expected_labels(self) -> float:
        """Present labels that are expected to be found."""
        return float(self.pairs.probability.sum())

    def to_json(self) -> dict[str, Any]:
        """As plain values."""
        return {
            "dataset": self.dataset.name,
            "hours": self.hours,
            "kind": self.kind,
            "pairs": len(self.pairs),
            "images": len(self.images),
            "expected_hours": float(self.seconds.sum() / 3600),
            "expected_labels": self.expected_labels,
            "forecasts": [
                {"kind": one.kind, "before": one.before, "after": one.after, "gain": one.gain, "within": one.within}
                for one in self.forecasts
            ],
        }

    def save(self, folder: Path) -> list[Path]:
        """Write the plan, its pairs, and tasks for Label Studio and CVAT; each file whole or not at all.

        Returns:
            `plan.json`, `tasks.csv`, `label-studio.json` (with its labelling set-up beside it) and `cvat.xml`.
        """
        files = [folder / name for name in ("plan.json", "tasks.csv", "label-studio.json", "cvat.xml")]
        tasks = self.tasks()
        with atomic_write(files[1]) as file:
            file.write(self._table().csv().encode())
        label_studio.write(tasks, files[2], predictions=True)
        cvat.write(tasks.replace(annotations=from_records([])), files[3])
        write_json(files[0], self.to_json())
        return files

    def tasks(self) -> Dataset:
        """The images to look at, in order, with labels that are more likely there than not as rows to confirm."""
        likely = self.pairs.take(np.flatnonzero(self.pairs.probability >= 0.5))
        names = self.dataset.names()
        rows = [
            {"image": names[row], "label": self.dataset.classes[label], "present": True, "source": SOURCE}
            for row, label in zip(likely.row, likely.label, strict=True)
        ]
        images = self.dataset.images.take(pa.array(self.images))
        return self.dataset.replace(images=images, annotations=from_records(rows), folder=None, truth=None)

    def _table(self) -> Table:
        """The questions, image by image."""
        place = {int(row): place for place, row in enumerate(self.images, start=1)}
        task = np.array([place[int(row)] for row in self.pairs.row], dtype=np.int64)
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
        return Table("tasks", "Questions, image by image.", columns, rows)


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
    models: str | Path,
    jobs: int | None = None,
    workers: int = 0,
    progress: Progress = SILENT,
) -> Plan:
    """Plan how to spend annotators' time.

    Args:
        dataset: the data, or its folder.
        hours: of annotators' time.
        run: a run on this dataset; its recipe is trained on folds, so that no model is asked about what it learned.
        study: a budget study's folder or `budget.json`, of this dataset or one like it.
        goal: what the model is for: `tags`, `places` or `both`.
        kind: of annotation, in place of what the study says.
        costs: seconds of a tag, and of a point and a box on top of it.
        split: whose images may be annotated.
        folds: models to train; 0 asks the run itself.
        features: a feature cache, or its folder, to use instead of images; models of folds use the run's by default.
        models: folder of the models of the folds; they are used again.
        jobs: processes that train at once.
        workers: processes that decode images.
        progress: told about the runs.
    """
    data = dataset if isinstance(dataset, Dataset) else Dataset.open(dataset)
    costs = costs or Costs()
    if not 0 < hours < float("inf"):
        raise TagfillError(f"{hours} hours cannot be planned; give more than 0.")
    labels, rows = data.labels(), data.split(split)
    size = len(rows) * len(data.classes)
    spent = 100 * float(data.labels(split).known.sum()) / size
    expected = tuple(forecasts(Path(study), goal, spent, 100 * hours * 3600 / costs.image / size)) if study else ()
    if kind is None:
        kind = expected[0].kind if expected else "I" if goal == "tags" else "SP"
    most = min(_LIMIT, int(hours * 3600 / costs.image) + 1)
    best = Best(most, None, lambda pairs: pairs.value / _seconds(pairs, kind, costs))
    for part in cross_fit(
        Path(run),
        data,
        split,
        folds=folds,
        out=Path(models),
        features=None if features is None else Path(features),
        jobs=jobs,
        workers=workers,
        progress=progress,
    ):
        unseen = ~labels.looked_at(part.rows)
        probability = part.calibration(part.logits)
        value = probability * rarity(part.shares)
        best.add(Pairs.at(unseen, part.rows, probability, value, labels.rows(part.rows)))
    pairs = best.pairs()
    seconds = _seconds(pairs, kind, costs)
    fitting = int(np.searchsorted(np.cumsum(seconds), hours * 3600, side="right"))
    return Plan(data, hours, kind, expected, pairs.take(np.arange(fitting)), seconds[:fitting])


def _seconds(pairs: Pairs, kind: str, costs: Costs) -> NDArray[np.float64]:
    """What pairs are expected to cost: a place is asked for only where the label is there."""
    return costs.image + costs.unit(kind) * pairs.probability
