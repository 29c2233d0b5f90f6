"""A budget study's plan and results: which kinds of annotation, at which budgets, at what cost, with what scores.

0.25,0.5,1             budgets, in percent of the cost of labeling every image for every class
I,SP,AB                kinds of annotation, see `tagfill.protocols.budget`
SP+patchcluster        the same with a term added to the method that trains
image=1,point=1.4      seconds per annotation; a point or a box adds to the cost of the image label
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
from tagfill.deprecation import warn_renamed
from tagfill.errors import TagfillError, unknown_name
from tagfill.experiments.leaderboard import escape_html
from tagfill.experiments.runs import Outcome
from tagfill.options import parse_assignment
from tagfill.protocols.costs import KINDS, Costs

COLUMNS = ("budget %", "kind", "hours", "pos", "neg", "total", "images", "places", "mAP-cls", "mAP-loc")
_COUNTS = ("positives", "negatives", "images", "locations", "seconds")
_SECONDS_EXAMPLE = "--seconds image=1,point=1.4,box=6"


@dataclass(frozen=True)
class BudgetPlan:
    """All combinations to simulate and train.

    Attributes:
        kinds: of annotation, each a line of the figure; `SP+patchcluster` adds a term to the method for this line.
        percents: budgets, ascending.
        seeds: number of draws and runs of each combination.
        costs: seconds per annotation.
        equal: compare kinds at equal numbers of annotations instead of equal time.
        located_per_image: positive classes per image that SP and SB are charged for on average, 3.5 for COCO and 5 for
            Objects365 in the paper; by default those of the dataset. AP and AB are charged for its instances.
        absent_cells: whether image labels (I) also teach class maps that an absent class is absent in all cells, as
            points and boxes do; the paper's I supervises the pooled logits only.
    """

    kinds: tuple[str, ...]
    percents: tuple[float, ...]
    seeds: int = 3
    costs: Costs = field(default_factory=Costs)
    equal: bool = False
    located_per_image: float | None = None
    absent_cells: bool = False

    def cells(self) -> list[tuple[float, str]]:
        """Budget and kind of each row of the table."""
        return [(percent, kind) for percent in self.percents for kind in self.kinds]

    def simulate(self, data: Dataset, percent: float, kind: str, seed: int, folder: Path) -> Dataset:
        """Simulate and save the dataset that a budget buys, or open it if that was done before.

        Args:
            data: with complete labels.
            percent: the budget.
            kind: of annotation; a term of the method does not matter.
            seed: of the draw.
            folder: to save it in.

        Raises:
            TagfillError: if the folder holds a dataset of another study.
        """
        kind = annotation_kind(kind)
        seconds = {f"{name}_seconds": cost for name, cost in asdict(self.costs).items()}
        parameters = {
            "accounting": "equal" if self.equal else "average",
            "located_per_image": self.located_per_image if kind in ("SP", "SB") else None,
            **seconds,
        }
        if not (folder / "dataset.yaml").exists():
            return protocols.budget(data, percent=percent, kind=kind, seed=seed, **parameters).save(folder)
        part = Dataset.open(folder)
        made = {} if part.protocol is None else {**part.protocol["parameters"], "source": part.protocol["source"]}
        wanted = {"percent": percent, "kind": kind, "source": data.name, **parameters}
        other = [name for name, value in wanted.items() if made.get(name) != value]
        if other or part.identities["images"] != data.identities["images"]:
            raise TagfillError(
                f"{folder} was simulated with another {other[0] if other else 'list of images'}; choose another --out."
            )
        return part

    def to_json(self) -> dict[str, Any]:
        """Plain values."""
        return {**asdict(self), "kinds": list(self.kinds), "percents": list(self.percents)}


@dataclass(frozen=True)
class BudgetResult:
    """The result of one kind of annotation at one budget.

    Attributes:
        percent: the budget.
        kind: of annotation.
        counts: means over the seeds: known present and absent labels, training images with any of them, points or
            boxes, and the seconds that all of it costs.
        map_cls: mAP-cls of each seed in percent.
        map_loc: mAP-loc of each seed in percent; empty if it was not measured.
        error: why there is no score.
    """

    percent: float
    kind: str
    counts: dict[str, float]
    map_cls: tuple[float, ...] = ()
    map_loc: tuple[float, ...] = ()
    error: str | None = None

    @classmethod
    def from_outcomes(
        cls, percent: float, kind: str, kept: Sequence[dict[str, Any]], outcomes: Sequence[Outcome]
    ) -> BudgetResult:
        """Combine all seeds; one error is the error of all.

        Args:
            percent: the budget.
            kind: of annotation.
            kept: counts of the annotations that the protocol kept.
            outcomes: of the runs.
        """
        counts = {name: fmean(float(each[name]) for each in kept) for name in _COUNTS}
        error = next((outcome.error for outcome in outcomes if outcome.error), None)
        if error:
            return cls(percent, kind, counts, error=error)
        map_loc = tuple(outcome.localization for outcome in outcomes if outcome.localization is not None)
        return cls(percent, kind, counts, tuple(outcome.score for outcome in outcomes), map_loc)

    @property
    def hours(self) -> float:
        """What the annotations cost."""
        return self.counts["seconds"] / 3600

    def row(self) -> list[str]:
        """Formatted values under `COLUMNS`."""
        total = self.counts["positives"] + self.counts["negatives"]
        numbers = [self.counts["positives"], self.counts["negatives"], total, self.counts["images"]]
        return [
            f"{self.percent:g}",
            self.kind,
            f"{self.hours:.2f}",
            *(f"{number:,.0f}" for number in [*numbers, self.counts["locations"]]),
            self.error or format_mean(self.map_cls),
            "–" if self.error else format_mean(self.map_loc),
        ]

    @property
    def classified(self) -> tuple[float, ...]:
        """Deprecated name of `map_cls`."""
        warn_renamed("BudgetResult.classified", "BudgetResult.map_cls")
        return self.map_cls

    @property
    def localised(self) -> tuple[float, ...]:
        """Deprecated name of `map_loc`."""
        warn_renamed("BudgetResult.localised", "BudgetResult.map_loc")
        return self.map_loc


@dataclass(frozen=True)
class BudgetStudy:
    """All results of a study."""

    dataset: str
    split: str
    method: str
    plan: BudgetPlan
    results: tuple[BudgetResult, ...]

    @property
    def findings(self) -> tuple[BudgetResult, ...]:
        """Deprecated name of `results`."""
        warn_renamed("BudgetStudy.findings", "BudgetStudy.results")
        return self.results

    def rows(self) -> list[list[str]]:
        """Formatted values under `COLUMNS`, one row per budget and kind."""
        return [result.row() for result in self.results]

    def to_json(self) -> dict[str, Any]:
        """Plain values."""
        return {
            "dataset": self.dataset,
            "split": self.split,
            "method": self.method,
            "plan": self.plan.to_json(),
            "findings": [
                {
                    "percent": result.percent,
                    "kind": result.kind,
                    "hours": result.hours,
                    **result.counts,
                    "mAP_cls": list(result.map_cls),
                    "mAP_loc": list(result.map_loc),
                    "error": result.error,
                }
                for result in self.results
            ],
        }

    def to_markdown(self, pictures: Sequence[tuple[str, str]] = ()) -> str:
        """A Markdown page.

        Args:
            pictures: file and caption of each.
        """
        costs, seeds = self.plan.costs, f"{self.plan.seeds} seed{'s' * (self.plan.seeds > 1)}"
        at = "equal numbers of annotations" if self.plan.equal else "equal annotation time"
        lines = [
            f"# Annotation budgets of {escape_html(self.dataset)}",
            "",
            f"Kinds of annotation compared at {at}, for `{self.method}` with {seeds}: percent on {self.split}, mean ± "
            "standard deviation. A budget is a share of the cost of labeling every image for every class. "
            f"An image label costs {costs.image:g} s; a point adds {costs.point:g} s and a box adds {costs.box:g} s. "
            "I: image labels; SP, SB: a point or a box on one instance of each present class; AP, AB: on all "
            "instances; what follows a plus is added to the method.",
            "",
            f"| {' | '.join(COLUMNS)} |",
            "|---:|---|" + "---:|" * (len(COLUMNS) - 2),
            *(f"| {' | '.join(row)} |" for row in self.rows()),
            "",
            "pos, neg, total: known labels of training images; images: those with any known label; places: points or "
            "boxes.",
            "",
        ]
        for file, caption in pictures:
            lines += [f"![{escape_html(caption)}]({file})", "", escape_html(caption), ""]
        return "\n".join(lines)


def parse_kinds(text: str) -> tuple[str, ...]:
    """Parse kinds of annotation separated by commas, each possibly with a term of the method; repeats count once.

    >>> parse_kinds("I, sp, SP+patchcluster")
    ('I', 'SP', 'SP+patchcluster')
    """
    names = []
    for word in filter(str.strip, text.split(",")):
        kind, plus, term = word.strip().partition("+")
        if kind.upper() not in KINDS:
            raise unknown_name("kind of annotation", kind.upper(), KINDS)
        names.append(f"{kind.upper()}{plus}{term}")
    if not names:
        raise TagfillError("There is no kind of annotation to study; name some as in --kinds I,SP.")
    return tuple(dict.fromkeys(names))


def annotation_kind(kind: str) -> str:
    """The kind of annotation without a term of the method.

    >>> annotation_kind("SP+patchcluster")
    'SP'
    """
    return kind.partition("+")[0]


def parse_percents(text: str) -> tuple[float, ...]:
    """Parse budgets separated by commas and sort them; repeated ones count once.

    >>> parse_percents("1,0.25")
    (0.25, 1.0)
    """
    found = {_parse_number(word, "budget", "--budgets 0.5,1,2") for word in text.split(",") if word.strip()}
    if not found:
        raise TagfillError("There is no budget to study; name some as in --budgets 0.5,1,2.")
    for percent in found:
        if not 0 < percent <= 100:
            raise TagfillError(f"The budget {percent:g} is not between 0 and 100 percent of all pairs.")
    return tuple(sorted(found))


def parse_costs(text: str) -> Costs:
    """Parse NAME=SECONDS separated by commas; names that are left out keep the paper's costs.

    >>> parse_costs("image=2,box=10")
    Costs(image=2.0, point=1.4, box=10.0)
    """
    names = [column.name for column in fields(Costs)]
    seconds = {}
    for word in filter(str.strip, text.split(",")):
        name, value = parse_assignment(word.strip(), _SECONDS_EXAMPLE)
        if name not in names:
            raise unknown_name("cost", name, names)
        seconds[name] = _parse_number(value, f"cost of {name}", _SECONDS_EXAMPLE)
    return Costs(**seconds)


def _parse_number(text: str, what: str, example: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not math.isfinite(value):
        raise TagfillError(f"The {what} '{text.strip()}' is not a number; write it as in {example}.")
    return value


def format_mean(values: Sequence[float]) -> str:
    """Mean and standard deviation.

    >>> format_mean([50.0, 52.0]), format_mean([50.0]), format_mean([])
    ('51.00 ± 1.41', '50.00', '–')
    """
    if not values:
        return "–"
    return f"{fmean(values):.2f}" + (f" ± {stdev(values):.2f}" if len(values) > 1 else "")
