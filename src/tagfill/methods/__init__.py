"""Methods by the names that recipes and the command line take, and their sums.

>>> "role" in METHODS
True
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from tagfill.contract import Method
from tagfill.errors import TagfillError, unknown_name
from tagfill.methods.base import Sum
from tagfill.methods.csl import ClassAwareSelective, PartialAsymmetric
from tagfill.methods.curriculum import Curriculum
from tagfill.methods.em_apl import AsymmetricPseudoLabelling
from tagfill.methods.fixmatch import FixMatch
from tagfill.methods.large_loss import PermanentCorrection, Rejection, TemporaryCorrection
from tagfill.methods.patchcluster import PatchCluster
from tagfill.methods.patchml import PatchML
from tagfill.methods.plain import PLAIN, OracleNegatives
from tagfill.methods.role import Role
from tagfill.methods.scl import Consistency, ExpectedNegative, ExpectedPositive, SpatialConsistency
from tagfill.methods.soft_exposure import ls, se, se_i, se_l
from tagfill.methods.splc import Splc
from tagfill.options import check_options

METHODS: dict[str, Callable[..., Method]] = {
    **PLAIN,
    "iun": OracleNegatives,
    "curriculum": Curriculum,
    "role": Role,
    "ll-r": Rejection,
    "ll-ct": TemporaryCorrection,
    "ll-cp": PermanentCorrection,
    "p-asl": PartialAsymmetric,
    "csl": ClassAwareSelective,
    "splc": Splc,
    "em-apl": AsymmetricPseudoLabelling,
    "en": ExpectedNegative,
    "ep": ExpectedPositive,
    "cl": Consistency,
    "scl": SpatialConsistency,
    "se": se,
    "se-l": se_l,
    "se-i": se_i,
    "ls": ls,
    "patchml": PatchML,
    "patchcluster": PatchCluster,
    "fixmatch": FixMatch,
}
ALIASES = {"ne": "ignore"}  # the same entry under another name
TERMS = frozenset({"cl", "scl", "patchcluster"})  # make sense only beside a method that learns from labels
EITHER = frozenset({"fixmatch"})  # learn from labels if they stand alone, else leave them to the method beside them


def create(name: str, options: Mapping[str, Mapping[str, Any]] | None = None) -> Method:
    """A method, or the sum of one and terms that add to it.

    Args:
        name: one name, or several joined by `+`.
        options: of each method, by its name.

    >>> sorted(create("en+scl", {"scl": {"weight": 0.1}}).needs)
    ['expected_positives', 'maps', 'memory']
    >>> create("fe", {"fe": {"unknown_as": "maybe"}})
    Traceback (most recent call last):
    tagfill.errors.TagfillError: Option unknown_as='maybe' of method 'fe': Input should be 'absent' or 'present'.
    """
    for part in name.split("+"):
        if part not in METHODS and part not in ALIASES:
            raise unknown_name("method", part, [*METHODS, *ALIASES])
    names = [ALIASES.get(part, part) for part in name.split("+")]
    _check_sum(name, names)
    options = {ALIASES.get(part, part): values for part, values in (options or {}).items()}
    if strays := sorted(set(options) - set(names)):
        raise TagfillError(f"There are options for '{strays[0]}', which is not part of the method '{name}'.")
    beside = {part: {"w_supervised": 0.0} for part in EITHER.intersection(names) if _learners(names)}
    parts = [_make(part, {**beside.get(part, {}), **options.get(part, {})}) for part in names]
    return parts[0] if len(parts) == 1 else Sum(parts)


def _check_sum(name: str, names: list[str]) -> None:
    """Refuse parts that do not add up."""
    if len(set(names)) < len(names):
        raise TagfillError(f"The method '{name}' names a part twice; name each once and set its weight in the options.")
    if TERMS.issuperset(names):
        raise TagfillError(f"'{name}' does not look at labels; add it to a method that does, as in en+{names[0]}.")
    learners = _learners(names)
    if len(learners) > 1:
        raise TagfillError(
            f"'{learners[0]}' and '{learners[1]}' both learn from labels and do not add up; take one of them, and add "
            f"terms to it: {', '.join(sorted(TERMS | EITHER))}."
        )


def _learners(names: list[str]) -> list[str]:
    """The parts that always learn from labels."""
    return [part for part in names if part not in TERMS and part not in EITHER]


def _make(name: str, options: Mapping[str, Any]) -> Method:
    return METHODS[name](**check_options(METHODS[name], options, f"method '{name}'"))
