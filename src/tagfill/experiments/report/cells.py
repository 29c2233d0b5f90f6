"""How the values of a table are written, sorted and drawn."""

from __future__ import annotations

from typing import Any

from tagfill.experiments.report.section import Table


def is_number(table: Table, column: int) -> bool:
    """Whether a column holds numbers and nothing else."""
    values = [row[column] for row in table.rows if row[column] is not None]
    return bool(values) and all(isinstance(value, int | float) and not isinstance(value, bool) for value in values)


def key(value: Any) -> str:
    """What a cell is sorted by; nothing and what is not a number come last.

    >>> key(0.5), key("an"), key(None), key(float("nan"))
    ('0.5', 'an', '', '')
    """
    return "" if value is None or value != value else str(value)


def cell(value: Any, form: str = "") -> str:
    """A value as a reader sees it.

    >>> cell(0.25, ".0%"), cell(12000), cell(1.23456), cell(None), cell(True)
    ('25%', '12,000', '1.235', '–', 'yes')
    """
    if value is None or value != value:
        return "–"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int | float):
        return format(value, form or ("," if isinstance(value, int) else ".4g"))
    return str(value)


def percent(value: Any) -> float:
    """The length of a bar: a share in percent, within 0…100."""
    return 0.0 if value is None or value != value else round(100 * min(max(float(value), 0.0), 1.0), 1)
