"""The number of labels that an image is expected to have, which some methods cannot do without."""

from __future__ import annotations

from tagfill.contract import Task
from tagfill.errors import TagfillError


def expected_positives(method: str, given: float | None, task: Task) -> float:
    """κ or K: the method's own option, else what the run was given or estimated.

    Args:
        method: its name, for the error.
        given: the method's option `expected`.
        task: knows the run's number.

    Raises:
        TagfillError: if nobody knows the number.
    """
    expected = given if given is not None else task.expected_positives
    if expected is None:
        raise TagfillError(
            f"The method '{method}' needs the expected number of present labels an image: set expected_positives or "
            f"options.{method}.expected, or give a validation split with complete labels to estimate it from."
        )
    return expected
