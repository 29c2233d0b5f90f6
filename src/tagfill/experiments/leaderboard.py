"""The leaderboard of a comparison: means and deviations over seeds, and how much of the gap each method closes.

    gap closed = (score − score of `an`) / (best score with complete labels − score of `an`)

The best use of complete labels is the ceiling, not `full` with the plainest head: a boost or an ensemble that helps a
method with partial labels helps one with complete labels too.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from statistics import fmean, stdev
from typing import Any

from tagfill.experiments.runs import FLOOR, Outcome, Overrides
from tagfill.io import nan_to_none
from tagfill.metrics import Recovered, gap_closed

_LEGEND = (
    "± is the standard deviation over seeds, seconds are the training time of one run. Gap closed is 0% for `an` and "
    "100% for the best entry with complete labels. Annotation is the time that the training labels would cost "
    "annotators. Recovered P and R are precision and recall of the unknown training labels that a model calls present."
)


@dataclass(frozen=True)
class Score:
    """The results of a method over its seeds.

    Attributes:
        name: of the method in the comparison.
        values: score of each seed in percent.
        validation: validation score of each seed.
        seconds: training time of each seed.
        overrides: settings that validation chose from the grid.
        error: why there is no score.
        gap_closed: share of the gap between `an` and the best entry with complete labels; NaN if there is no gap.
        recovered: missing training labels that each seed found; empty if the truth is unknown.
        annotation_seconds: time that annotators spent on the training labels, if the protocol says so.
        note: what is special about its labels or settings.
        complete: whether it was trained on complete labels.
    """

    name: str
    values: tuple[float, ...]
    validation: tuple[float | None, ...]
    seconds: tuple[float, ...]
    overrides: Overrides = ()
    error: str | None = None
    gap_closed: float = float("nan")
    recovered: tuple[Recovered, ...] = ()
    annotation_seconds: float | None = None
    note: str = ""
    complete: bool = False

    @classmethod
    def from_outcomes(
        cls,
        name: str,
        outcomes: Sequence[Outcome],
        overrides: Overrides = (),
        annotation_seconds: float | None = None,
        note: str = "",
        complete: bool = False,
    ) -> Score:
        """Combine the outcomes of all seeds; one error is the error of all."""
        return cls(
            name,
            tuple(outcome.score for outcome in outcomes),
            tuple(outcome.validation for outcome in outcomes),
            tuple(outcome.seconds for outcome in outcomes),
            overrides,
            next((outcome.error for outcome in outcomes if outcome.error), None),
            recovered=tuple(outcome.recovered for outcome in outcomes if outcome.recovered is not None),
            annotation_seconds=annotation_seconds,
            note=note,
            complete=complete,
        )

    @property
    def mean(self) -> float:
        """Mean over the seeds; NaN without a score."""
        return float("nan") if self.error else fmean(self.values)

    @property
    def deviation(self) -> float:
        """Standard deviation over the seeds; 0 for a single seed."""
        return 0.0 if self.error or len(self.values) < 2 else stdev(self.values)

    @property
    def recovered_precision(self) -> float:
        """Share of the labels called present that are right, mean over seeds; NaN if no label was called present."""
        return _mean_without_nan([found.precision for found in self.recovered])

    @property
    def recovered_recall(self) -> float:
        """Share of the missing labels that are called present, mean over seeds; NaN if the truth is unknown."""
        return _mean_without_nan([found.recall for found in self.recovered])

    def notes(self) -> str:
        """The error, or the note and the settings chosen from the grid."""
        chosen = ", ".join(f"{path}={value}" for path, value in self.overrides)
        return self.error or "; ".join(filter(None, [self.note, chosen])) or "defaults"


@dataclass(frozen=True)
class Leaderboard:
    """Scores, best first; methods without a score at the end.

    Attributes:
        dataset: its name.
        split: that was scored.
        scores: of all methods.
        note: what to know about the split, if it is not `test`.
    """

    dataset: str
    split: str
    scores: tuple[Score, ...]
    note: str = ""

    @classmethod
    def rank(cls, dataset: str, split: str, scores: Sequence[Score], note: str = "") -> Leaderboard:
        """Sort scores by their mean and compute the gap that each closes."""
        floor = next((score.mean for score in scores if score.name == FLOOR), math.nan)
        complete = [score.mean for score in scores if score.complete and not math.isnan(score.mean)]
        ceiling = max(complete, default=math.nan)
        measured = [replace(score, gap_closed=gap_closed(score.mean, floor, ceiling)) for score in scores]
        return cls(dataset, split, tuple(sorted(measured, key=lambda s: (math.isnan(s.mean), -s.mean))), note)

    def columns(self) -> list[str]:
        """Names of the columns of `rows`."""
        scores = [f"{self.split} mAP", "±", "gap closed", "annotation", "recovered P", "recovered R", "seconds"]
        return ["method", *scores, "settings"]

    def rows(self) -> list[list[str]]:
        """Formatted values under `columns`."""
        return [
            [
                score.name,
                _format_points(score.mean),
                "–" if score.error else _format_points(score.deviation),
                _format_share(score.gap_closed),
                "–" if score.annotation_seconds is None else format_duration(score.annotation_seconds),
                _format_share(score.recovered_precision),
                _format_share(score.recovered_recall),
                f"{fmean(score.seconds):.0f}",
                score.notes(),
            ]
            for score in self.scores
        ]

    def to_json(self) -> dict[str, Any]:
        """Plain values; NaN becomes null."""
        return {
            "dataset": self.dataset,
            "split": self.split,
            "note": self.note,
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
                    "annotation_seconds": score.annotation_seconds,
                    "seconds": list(score.seconds),
                    "settings": dict(score.overrides),
                    "note": score.note,
                    "complete": score.complete,
                    "error": score.error,
                }
                for score in self.scores
            ],
        }

    def to_markdown(self) -> str:
        """A Markdown page with the table."""
        head = f"| {' | '.join(self.columns())} |"
        lines = [f"| {' | '.join(map(escape_html, row))} |" for row in self.rows()]
        rule = f"|---|{'---:|' * (len(self.columns()) - 2)}---|"
        note = [escape_html(self.note), ""] if self.note else []
        return "\n".join([f"# {escape_html(self.dataset)}", "", *note, head, rule, *lines, "", _LEGEND, ""])


def escape_html(text: str) -> str:
    """A text for Markdown pages, in which names from data must not become elements of HTML.

    >>> escape_html("cat <script>")
    'cat &lt;script>'
    """
    return text.replace("<", "&lt;")


def format_duration(seconds: float) -> str:
    """Time in the unit that suits it.

    >>> format_duration(45), format_duration(1440), format_duration(12000)
    ('45 s', '24 min', '3.3 h')
    """
    if seconds < 120:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 7200 else f"{seconds / 3600:,.1f} h"


def _format_points(value: float) -> str:
    return "–" if math.isnan(value) else f"{value:.2f}"


def _format_share(value: float) -> str:
    return "–" if math.isnan(value) else f"{value:.0%}"


def _mean_without_nan(values: Sequence[float]) -> float:
    numbers = [value for value in values if not math.isnan(value)]
    return fmean(numbers) if numbers else float("nan")
