"""The leaderboard of a comparison: means and deviations over seeds, and how much of the gap each method closes."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean, stdev
from typing import Any

from tagfill.experiments.runs import FLOOR, FULL, Outcome
from tagfill.io import nan_to_none
from tagfill.metrics import Recovered, gap_closed


@dataclass(frozen=True)
class Score:
    """A method's results over the seeds.

    Attributes:
        name: of the entry.
        values: score of each seed, in percent.
        validation: of each seed.
        seconds: of training, of each seed.
        choice: the settings that validation chose from the grid.
        error: why it has no score.
        gap_closed: share of the gap between `an` and complete labels, NaN where there is none.
        recovered: of each seed, what became of training labels that were not given; empty where nobody knows.
        annotation: seconds that annotators spent on the training labels, where a protocol says so.
        note: what is particular about its labels or settings.
    """

    name: str
    values: tuple[float, ...]
    validation: tuple[float | None, ...]
    seconds: tuple[float, ...]
    choice: tuple[tuple[str, Any], ...] = ()
    error: str | None = None
    gap_closed: float = float("nan")
    recovered: tuple[Recovered, ...] = ()
    annotation: float | None = None
    note: str = ""

    @classmethod
    def of(
        cls,
        name: str,
        outcomes: Sequence[Outcome],
        choice: tuple[tuple[str, Any], ...],
        annotation: float | None = None,
        note: str = "",
    ) -> Score:
        """From the outcomes of all seeds; one that refused speaks for all."""
        error = next((outcome.error for outcome in outcomes if outcome.error), None)
        return cls(
            name,
            tuple(outcome.score for outcome in outcomes),
            tuple(outcome.validation for outcome in outcomes),
            tuple(outcome.seconds for outcome in outcomes),
            choice,
            error,
            recovered=tuple(Recovered(**outcome.recovered) for outcome in outcomes if outcome.recovered),
            annotation=annotation,
            note=note,
        )

    @property
    def mean(self) -> float:
        """Over the seeds; NaN without a score."""
        return float("nan") if self.error else fmean(self.values)

    @property
    def recovered_precision(self) -> float:
        """Share of the labels called present that are, over the seeds that call any; NaN if none does."""
        return _mean([found.precision for found in self.recovered])

    @property
    def recovered_recall(self) -> float:
        """Share of the missing labels that are called present, over the seeds; NaN where nobody knows."""
        return _mean([found.recall for found in self.recovered])

    @property
    def deviation(self) -> float:
        """Over the seeds; 0 for a single one."""
        return 0.0 if self.error or len(self.values) < 2 else stdev(self.values)

    def remark(self) -> str:
        """Why it has no score, or what is particular about it and which settings were chosen."""
        chosen = ", ".join(f"{path}={value}" for path, value in self.choice)
        return self.error or "; ".join(filter(None, [self.note, chosen])) or "defaults"


@dataclass(frozen=True)
class Leaderboard:
    """Scores, best first; those without one at the end."""

    dataset: str
    split: str
    scores: tuple[Score, ...]

    @classmethod
    def rank(cls, dataset: str, split: str, scores: Sequence[Score]) -> Leaderboard:
        """Order scores by their mean and measure the gap that each closes."""
        means = {score.name: score.mean for score in scores}
        floor, ceiling = means.get(FLOOR, math.nan), means.get(FULL, math.nan)
        measured = [Score(**{**vars(score), "gap_closed": gap_closed(score.mean, floor, ceiling)}) for score in scores]
        return cls(dataset, split, tuple(sorted(measured, key=lambda s: (math.isnan(s.mean), -s.mean))))

    def columns(self) -> list[str]:
        """Names of the columns of `rows`."""
        scores = [f"{self.split} mAP", "±", "gap closed", "annotation", "recovered P", "recovered R", "seconds"]
        return ["method", *scores, "settings"]

    def rows(self) -> list[list[str]]:
        """As a table shows them, under `columns`."""
        return [
            [
                score.name,
                _points(score.mean),
                "–" if score.error else _points(score.deviation),
                _share(score.gap_closed),
                "–" if score.annotation is None else duration(score.annotation),
                _share(score.recovered_precision),
                _share(score.recovered_recall),
                f"{fmean(score.seconds):.0f}",
                score.remark(),
            ]
            for score in self.scores
        ]

    def to_json(self) -> dict[str, Any]:
        """As plain values; what is not a number is null."""
        return {
            "dataset": self.dataset,
            "split": self.split,
            "scores": [
                {
                    "method": score.name,
                    f"{self.split}_mAP": nan_to_none(score.mean),
                    "deviation": nan_to_none(score.deviation),
                    "gap_closed": nan_to_none(score.gap_closed),
                    "recovered_precision": nan_to_none(score.recovered_precision),
                    "recovered_recall": nan_to_none(score.recovered_recall),
                    "seeds": [nan_to_none(value) for value in score.values],
                    "val_mAP": list(score.validation),
                    "annotation_seconds": score.annotation,
                    "seconds": list(score.seconds),
                    "settings": dict(score.choice),
                    "note": score.note,
                    "error": score.error,
                }
                for score in self.scores
            ],
        }

    def to_markdown(self) -> str:
        """The table as a page."""
        head = f"| {' | '.join(self.columns())} |"
        lines = [f"| {' | '.join(row)} |" for row in self.rows()]
        rule = f"|---|{'---:|' * (len(self.columns()) - 2)}---|"
        return "\n".join([f"# {self.dataset}", "", head, rule, *lines, "", _LEGEND, ""])


_LEGEND = (
    "± is the deviation over seeds, seconds are those of a run. The gap closed is that between `an` and complete "
    "labels. Annotation is what the training labels would cost annotators. Recovered P and R are precision and recall "
    "of what is called present among training labels that were not given."
)


def _points(value: float) -> str:
    return "–" if math.isnan(value) else f"{value:.2f}"


def _share(value: float) -> str:
    return "–" if math.isnan(value) else f"{value:.0%}"


def _mean(values: Sequence[float]) -> float:
    counted = [value for value in values if not math.isnan(value)]
    return fmean(counted) if counted else float("nan")


def duration(seconds: float) -> str:
    """Time as a person says it.

    >>> duration(45), duration(1440), duration(12000)
    ('45 s', '24 min', '3.3 h')
    """
    if seconds < 120:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 7200 else f"{seconds / 3600:,.1f} h"
