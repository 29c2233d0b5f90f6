"""What a recipe of a published table says besides its settings: where the numbers are from, and how to get there.

The block `published:` stands in the same file as the settings. Rows of the table differ in a few settings, which each
row lists by their paths, as `--set` would give them; nothing else is inherited from anywhere.
"""

from __future__ import annotations

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field


class _Part(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Metric(_Part):
    """How the paper scored: numbers of different definitions must not be compared."""

    split: str = "test"
    average_precision: Literal["step", "rank", "voc12", "voc07"] = "step"
    empty: Literal["skip", "zero"] = "skip"  # a class without a positive


class Row(_Part):
    """A row of the table.

    Attributes:
        reported: the paper's number in percent, or several by their names; None where it gives none.
        set: settings of this row by their paths.
        note: what is particular about it.
    """

    reported: float | dict[str, float] | None = None
    set: dict[str, Any] = {}
    note: str = ""


class Published(_Part):
    """Where a recipe comes from.

    Attributes:
        about: what is compared, in a sentence.
        paper: authors, title, venue; None for comparisons of our own.
        table: of the paper.
        hardware: that a run takes, by our estimate unless the paper says so.
        metric: how the paper scored.
        data: commands that make the datasets, from the folder that the original release was unpacked in.
        evaluate: commands that score a run.
        grid: settings that the paper searched, and their values; the recipe has the value that was chosen, if known.
        seeds: runs that a number is the mean of.
        rows: of the table.
    """

    about: str
    paper: str | None
    table: str | None
    hardware: str
    metric: Metric = Metric()
    data: list[str]
    evaluate: list[str]
    grid: dict[str, list[Any]] = {}
    seeds: int = Field(1, ge=1)
    rows: dict[str, Row] = Field(min_length=1)

    def best(self) -> tuple[str, float] | None:
        """The row with the largest number, of those with a single kind of it the first kind; None without numbers."""
        numbers = {name: _first(row.reported) for name, row in self.rows.items()}
        known = {name: number for name, number in numbers.items() if number is not None}
        return max(known.items(), key=lambda item: item[1]) if known else None


def _first(reported: float | dict[str, float] | None) -> float | None:
    return next(iter(reported.values())) if isinstance(reported, dict) else reported
