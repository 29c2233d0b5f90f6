"""What a budget study asks: which kinds of annotation, at which budgets, at what cost.

0.25,0.5,1             budgets, percent of what it costs to label every pair of images and classes at image level
I,SP,AB                kinds of annotation, see `tagfill.protocols.budget`
image=1,point=1.4      seconds of annotators' time; a point and a box are on top of the image's label


What a budget study found: annotation counts, and scores against hours, as a table and as plain values.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

from tagfill import protocols
from tagfill.dataset import Dataset
from tagfill.errors import TagfillError, unknown_name
from tagfill.experiments.runs import Outcome
from tagfill.protocols.costs import KINDS, Costs


@dataclass(frozen=True)
class BudgetPlan:
    """All combinations that are simulated and trained.

    Attributes:
        kinds: of annotation, each a line of the figure.
        percents: budgets, ascending.
        seeds: draws of each.
        costs: seconds of annotators' time.
        equal: compare kinds at equal numbers of annotations, not at equal time.
    """

    kinds: tuple[str, ...]
    percents: tuple[float, ...]
    seeds: int = 3
    costs: Costs = field(default_factory=Costs)
    equal: bool = False

    def cells(self) -> list[tuple[float, str]]:
        """Budgets and kinds, in the order of the table."""
        return [(percent, kind) for percent in self.percents for kind in self.kinds]

    def simulate(self, data: Dataset, percent: float, kind: str, seed: int, folder: Path) -> Dataset:
        """The dataset that a budget buys, saved; one that was saved before is opened.

        Args:
            data: fully labelled.
            percent: the budget.
            kind: of annotation.
            seed: of the draw.
            folder: to save it in.

        Raises:
            TagfillError: if the folder holds a dataset of another study.
        """
        if not (folder / "dataset.yaml").exists():
            part = protocols.budget(data, percent=percent, kind=kind, seed=seed, **self._parameters())
            return part.save(folder)
        part = Dataset.open(folder)
        made = {} if part.protocol is None else {**part.protocol["parameters"], "source": part.protocol["source"]}
        wanted = {"percent": percent, "kind": kind, "source": data.name, **self._parameters()}
        other = [name for name, value in wanted.items() if made.get(name) != value]
        if other or part.identities["images"] != data.identities["images"]:
            raise TagfillError(
                f"{folder} was simulated with another {other[0] if other else 'list of images'}; choose another --out."
            )
        return part

    def to_json(self) -> dict[str, Any]:
        """As plain values."""
        return {**asdict(self), "kinds": list(self.kinds), "percents": list(self.percents)}

    def _parameters(self) -> dict[str, Any]:
        seconds = {f"{name}_seconds": cost for name, cost in asdict(self.costs).items()}
        return {"accounting": "equal" if self.equal else "average", **seconds}


def kinds_of(text: str) -> tuple[str, ...]:
    """Kinds from a list joined by commas, each once.

    >>> kinds_of("I, SP")
    ('I', 'SP')
    """
    names = [name.strip().upper() for name in text.split(",") if name.strip()]
    if not names:
        raise TagfillError("There is no kind of annotation to study; name some as in --kinds I,SP.")
    for name in names:
        if name not in KINDS:
            raise unknown_name("kind of annotation", name, KINDS)
    return tuple(dict.fromkeys(names))


def percents_of(text: str) -> tuple[float, ...]:
    """Budgets from a list joined by commas, each once, ascending.

    >>> percents_of("1,0.25")
    (0.25, 1.0)
    """
    found = {_number(word, "budget", "--budgets 0.5,1,2") for word in text.split(",") if word.strip()}
    if not found:
        raise TagfillError("There is no budget to study; name some as in --budgets 0.5,1,2.")
    for percent in found:
        if not 0 < percent <= 100:
            raise TagfillError(f"The budget {percent:g} is not between 0 and 100 percent of all pairs.")
    return tuple(sorted(found))


def costs_of(text: str) -> Costs:
    """Costs from NAME=SECONDS joined by commas; what is not named costs what it does in the paper.

    >>> costs_of("image=2,box=10")
    Costs(image=2.0, point=1.4, box=10.0)
    """
    names = [column.name for column in fields(Costs)]
    seconds = {}
    for word in filter(str.strip, text.split(",")):
        name, _, value = word.strip().partition("=")
        if name not in names:
            raise unknown_name("cost", name, names)
        seconds[name] = _number(value, f"cost of {name}", "--seconds image=1,point=1.4,box=6")
    return Costs(**seconds)


def _number(text: str, what: str, example: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not math.isfinite(value):
        raise TagfillError(f"The {what} '{text.strip()}' is not a number; write it as in {example}.")
    return value


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
class BudgetStudy:
    """All findings about a dataset."""

    dataset: str
    split: str
    method: str
    plan: BudgetPlan
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
