"""What is wrong with a dataset, as a list that a person can work through."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

Severity = Literal["error", "warning"]


@dataclass(frozen=True)
class Problem:
    """One thing to mend.

    Attributes:
        kind: a short name of the sort of problem, such as `unknown-label`.
        file: where.
        row: the row of the table, counted from 0 and without the header of a CSV file; None if it is no single row.
        what: what was found, in words.
        remedy: what to do about it.
        severity: an `error` stands in the way of training, a `warning` is worth a look.
    """

    kind: str
    file: str
    row: int | None
    what: str
    remedy: str
    severity: Severity = "error"

    def __str__(self) -> str:
        place = self.file if self.row is None else f"{self.file}, row {self.row}"
        return f"{place}: {self.what}; {self.remedy}."


class Problems:
    """Collects problems, a limited number of examples of each kind; the others are counted."""

    def __init__(self, examples: int) -> None:
        self._examples = examples
        self._found: dict[tuple[str, str], list[Problem]] = {}
        self._counts: dict[tuple[str, str], int] = {}

    def add(
        self,
        kind: str,
        file: str,
        rows: NDArray[np.integer] | list[int] | list[None],
        what: Callable[[int], str] | str,
        remedy: str,
        severity: Severity = "error",
    ) -> None:
        """One problem for each of `rows`; `what` may be made from the position in `rows`."""
        found = self._found.setdefault((kind, file), [])
        for at, row in enumerate(rows[: max(self._examples - len(found), 0)]):
            text = what if isinstance(what, str) else what(at)
            found.append(Problem(kind, file, None if row is None else int(row), text, remedy, severity))
        self._counts[kind, file] = self._counts.get((kind, file), 0) + len(rows)

    def room(self, kind: str, file: str) -> int:
        """How many more examples of a kind are wanted."""
        return max(self._examples - len(self._found.get((kind, file), ())), 0)

    def list(self) -> list[Problem]:
        """All problems, errors first, each kind followed by the number of those not shown."""
        listed = []
        for key, found in self._found.items():
            listed += found
            rest = self._counts[key] - len(found)
            if rest and found:
                last = found[-1]
                what = f"{rest:,} more of this kind ({last.kind})"
                listed.append(Problem(last.kind, last.file, None, what, last.remedy, last.severity))
        return sorted(listed, key=lambda problem: problem.severity != "error")
