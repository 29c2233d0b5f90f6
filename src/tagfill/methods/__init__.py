"""Methods by the names that recipes and the command line take, and their sums.

>>> sorted(METHODS)[:2]
['an', 'bce']
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import Any

from torch import Tensor

from tagfill.contract import Batch, Decisions, Method, Prediction, Task
from tagfill.errors import TagfillError, unknown_name
from tagfill.methods.consistency import Consistency, SpatialConsistency
from tagfill.methods.expected_negative import ExpectedNegative, ExpectedPositive
from tagfill.methods.large_loss import PermanentCorrection, Rejection, TemporaryCorrection
from tagfill.methods.patchml import PatchML
from tagfill.methods.plain import PLAIN
from tagfill.methods.role import Role
from tagfill.methods.selective import ClassAwareSelective, PartialAsymmetric
from tagfill.methods.soft_exposure import ls, se, se_i, se_l
from tagfill.methods.splc import Splc

METHODS: dict[str, Callable[..., Method]] = {
    **PLAIN,
    "role": Role,
    "ll-r": Rejection,
    "ll-ct": TemporaryCorrection,
    "ll-cp": PermanentCorrection,
    "p-asl": PartialAsymmetric,
    "csl": ClassAwareSelective,
    "splc": Splc,
    "en": ExpectedNegative,
    "ep": ExpectedPositive,
    "cl": Consistency,
    "scl": SpatialConsistency,
    "se": se,
    "se-l": se_l,
    "se-i": se_i,
    "ls": ls,
    "patchml": PatchML,
}
TERMS = frozenset({"cl", "scl"})  # only make sense beside a method that learns from labels


def create(name: str, options: Mapping[str, Mapping[str, Any]] | None = None) -> Method:
    """A method, or the sum of several.

    Args:
        name: one name, or several joined by `+`.
        options: of each method, by its name.

    >>> sorted(create("en+scl", {"scl": {"weight": 0.1}}).needs)
    ['expected_positives', 'maps', 'memory']
    """
    names = name.split("+")
    for part in names:
        if part not in METHODS:
            raise unknown_name("method", part, METHODS)
    if len(set(names)) < len(names):
        raise TagfillError(f"The method '{name}' names a part twice; name each once and set its weight in the options.")
    if TERMS.issuperset(names):
        raise TagfillError(f"'{name}' does not look at labels; add it to a method that does, as in en+{names[0]}.")
    options = options or {}
    if strays := sorted(set(options) - set(names)):
        raise TagfillError(f"There are options for '{strays[0]}', which is not part of the method '{name}'.")
    parts = [_make(part, options.get(part, {})) for part in names]
    return parts[0] if len(parts) == 1 else Sum(parts)


def _make(name: str, options: Mapping[str, Any]) -> Method:
    make = METHODS[name]
    known = inspect.signature(make).parameters
    for option in options:
        if option not in known:
            raise unknown_name(f"option of method '{name}'", option, known or ["none"])
    return make(**options)


class Sum:
    """Methods whose losses are added; each keeps its own state, and they share memory by name."""

    def __init__(self, parts: list[Method]) -> None:
        self._parts = parts
        self.needs = frozenset().union(*(part.needs for part in parts))

    def setup(self, task: Task) -> None:
        """Set up each."""
        for part in self._parts:
            part.setup(task)

    def begin_epoch(self, epoch: int) -> None:
        """Begin the epoch in each."""
        for part in self._parts:
            part.begin_epoch(epoch)

    def loss(self, batch: Batch, prediction: Prediction) -> dict[str, Tensor]:
        """All terms."""
        return {name: term for part in self._parts for name, term in part.loss(batch, prediction).items()}

    def observe(self, batch: Batch, prediction: Prediction) -> None:
        """Let each remember; a shared memory is written by whoever comes first."""
        for part in self._parts:
            part.observe(batch, prediction)

    def decisions(self) -> Decisions | None:
        """Those of all parts that decide anything."""
        found = [decided for part in self._parts if (decided := part.decisions()) is not None]
        return Decisions.join(found) if found else None

    def state_dict(self) -> dict[str, Tensor]:
        """The state of each, numbered."""
        return {f"{at}.{k}": v for at, part in enumerate(self._parts) for k, v in part.state_dict().items()}

    def load_state_dict(self, state: dict[str, Tensor]) -> None:
        """Give each its own back."""
        for at, part in enumerate(self._parts):
            part.load_state_dict({k.partition(".")[2]: v for k, v in state.items() if k.partition(".")[0] == str(at)})
