"""The grid of class maps, which some methods cannot do without."""

from __future__ import annotations

from tagfill.contract import Task
from tagfill.errors import TagfillError


def grid_of(method: str, task: Task) -> tuple[int, int]:
    """Rows and columns of the class maps.

    Args:
        method: its name, for the error.
        task: knows the grid of the head.

    Raises:
        TagfillError: if the head has no class maps.
    """
    if task.grid is None:
        raise TagfillError(f"The method '{method}' needs class maps; choose a head that makes them, such as cam.")
    return task.grid
