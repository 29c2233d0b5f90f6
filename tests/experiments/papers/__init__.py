"""What the papers say about the rows of their tables, typed from the papers; tests compare the recipes with it.

There is one module per paper. It types each statement under the section that makes it, by the path of the setting, so
that a recipe has to have the value and to give the same source. What a paper leaves open is listed with what it says
about it; a recipe has to give another source for it, or `ours` and name it at the top of its file. A setting that is
neither typed nor listed as open fails the tests unless it is unused (`recipes.UNUSED`).

Statements that come from elsewhere, such as released code or the paper that a row is taken from, are typed under the
name of that source.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from tagfill.training.resolved import PerStage

Said = Mapping[str, Mapping[str, object]]  # by source: settings with their values
Reported = float | dict[str, float] | None


@dataclass(frozen=True)
class Row:
    """What a paper says about one row besides what it says about the table.

    Attributes:
        reported: numbers in percent.
        said: statements, which replace those of the table about the same settings.
        left_open: settings that the paper does not give for this row, with what it says about them.
    """

    reported: Reported = None
    said: Said = field(default_factory=dict)
    left_open: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Table:
    """What a paper says about a table.

    Attributes:
        said: statements about all rows.
        left_open: settings that the paper does not give, with what it says about them.
        scored: split, definition of average precision, and what a class without a positive counts as.
        data: texts that the commands of the recipe must contain.
        rows: of the table.
        seeds: number of runs that a number is the mean of.
        drawn_again: each of these runs has known labels of its own.
    """

    said: Said
    scored: tuple[str, str, str]
    data: tuple[str, ...]
    rows: Mapping[str, Row]
    left_open: Mapping[str, str] = field(default_factory=dict)
    seeds: int = 1
    drawn_again: bool = False

    def statements(self, row: str) -> dict[str, tuple[str, object]]:
        """Source and value of each setting that is typed for a row."""
        found = {path: (source, value) for source, says in self.said.items() for path, value in says.items()}
        for source, says in self.rows[row].said.items():
            found |= {path: (source, value) for path, value in says.items()}
        return {path: said for path, said in found.items() if path not in self.rows[row].left_open}

    def open_settings(self, row: str) -> dict[str, str]:
        """What is left open for a row."""
        given = {path for says in self.rows[row].said.values() for path in says}
        return {path: text for path, text in self.left_open.items() if path not in given} | {**self.rows[row].left_open}


def per_stage(*values: object) -> PerStage:
    """The values of a setting in each stage."""
    return PerStage(values)


def merged(*parts: Said) -> dict[str, dict[str, object]]:
    """Statements of several sources together."""
    found: dict[str, dict[str, object]] = {}
    for part in parts:
        for source, says in part.items():
            found.setdefault(source, {}).update(says)
    return found
