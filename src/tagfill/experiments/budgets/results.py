"""What a budget study found: annotation counts, and scores against hours, as a table and as plain values."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean, stdev
from typing import Any

from tagfill.experiments.budgets.plan import Plan
from tagfill.experiments.outcomes import Outcome

COUNTS = ("positives", "negatives", "images", "locations", "seconds")
COLUMNS = ("budget %", "kind", "hours", "pos", "neg", "total", "images", "places", "mAP-cls", "mAP-loc")


@dataclass(frozen=True)
class Finding:
    """One kind at one budget.

    Attributes:
        percent: the budget.
        kind: of annotation.
        counts: means over the seeds: known labels that are present and absent, training images with any of them,
            points or boxes, and the seconds that all of it costs.
        classified: mAP-cls of each seed, in percent.
        localised: mAP-loc of each seed, in percent; empty where it was not measured.
        error: why there is no score.
    """

    percent: float
    kind: str
    counts: dict[str, float]
    classified: tuple[float, ...] = ()
    localised: tuple[float, ...] = ()
    error: str | None = None

    @classmethod
    def of(cls, percent: float, kind: str, kept: Sequence[dict[str, Any]], outcomes: Sequence[Outcome]) -> Finding:
        """From what the protocol kept and how the runs ended; a run that refused speaks for all."""
        counts = {name: fmean(float(each[name]) for each in kept) for name in COUNTS}
        error = next((outcome.error for outcome in outcomes if outcome.error), None)
        if error:
            return cls(percent, kind, counts, error=error)
        placed = tuple(outcome.localisation for outcome in outcomes if outcome.localisation is not None)
        return cls(percent, kind, counts, tuple(outcome.score for outcome in outcomes), placed)

    @property
    def hours(self) -> float:
        """What the annotations cost."""
        return self.counts["seconds"] / 3600

    def row(self) -> list[str]:
        """The line of the table."""
        total = self.counts["positives"] + self.counts["negatives"]
        numbers = [self.counts["positives"], self.counts["negatives"], total, self.counts["images"]]
        return [
            f"{self.percent:g}",
            self.kind,
            f"{self.hours:.2f}",
            *(f"{number:,.0f}" for number in [*numbers, self.counts["locations"]]),
            self.error or spread(self.classified),
            "–" if self.error else spread(self.localised),
        ]


@dataclass(frozen=True)
class Study:
    """All findings about a dataset."""

    dataset: str
    split: str
    method: str
    plan: Plan
    findings: tuple[Finding, ...]

    def rows(self) -> list[list[str]]:
        """A line a budget and kind, as a table shows them."""
        return [finding.row() for finding in self.findings]

    def to_json(self) -> dict[str, Any]:
        """As plain values."""
        return {
            "dataset": self.dataset,
            "split": self.split,
            "method": self.method,
            "plan": self.plan.to_json(),
            "findings": [
                {
                    "percent": finding.percent,
                    "kind": finding.kind,
                    "hours": finding.hours,
                    **finding.counts,
                    "mAP_cls": list(finding.classified),
                    "mAP_loc": list(finding.localised),
                    "error": finding.error,
                }
                for finding in self.findings
            ],
        }

    def to_markdown(self, pictures: Sequence[tuple[str, str]] = ()) -> str:
        """The page.

        Args:
            pictures: file and caption of each.
        """
        costs, seeds = self.plan.costs, f"{self.plan.seeds} seed{'s' * (self.plan.seeds > 1)}"
        at = "equal numbers of annotations" if self.plan.equal else "equal annotation time"
        words = [
            f"# Annotation budgets of {self.dataset}",
            "",
            f"Kinds of annotation at {at}: `{self.method}`, {seeds}, percent on {self.split} as "
            "mean ± deviation. A budget is a share of what it costs to label every image for every class. "
            f"A label of an image costs {costs.image:g} s, a point {costs.point:g} s and a box {costs.box:g} s on top "
            "of it. I: labels of images; SP, SB: one instance of what is present gets a point or a box; AP, AB: all "
            "instances do.",
            "",
            f"| {' | '.join(COLUMNS)} |",
            "|---:|---|" + "---:|" * (len(COLUMNS) - 2),
            *(f"| {' | '.join(row)} |" for row in self.rows()),
            "",
            "pos, neg, total: known labels of training images; images: those with any; places: points or boxes.",
            "",
        ]
        for file, caption in pictures:
            words += [f"![{caption}]({file})", "", caption, ""]
        return "\n".join(words)


def spread(values: Sequence[float]) -> str:
    """Mean and deviation.

    >>> spread([50.0, 52.0]), spread([50.0]), spread([])
    ('51.00 ± 1.41', '50.00', '–')
    """
    if not values:
        return "–"
    return f"{fmean(values):.2f}" + (f" ± {stdev(values):.2f}" if len(values) > 1 else "")
