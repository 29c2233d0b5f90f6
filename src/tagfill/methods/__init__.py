"""Methods by the names that recipes and the command line use.

>>> "role" in METHODS
True
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from tagfill.contract import Method
from tagfill.errors import TagfillError, unknown_name
from tagfill.methods.base import BaseMethod, LossMethod, Scheduled, Sum, first_epoch
from tagfill.methods.baselines import BASELINES
from tagfill.methods.csl import ClassAwareSelective, PartialAsymmetric
from tagfill.methods.curriculum import Curriculum
from tagfill.methods.em_apl import AsymmetricPseudoLabeling
from tagfill.methods.evidence import TrustedEvidence, VisionLanguagePseudoLabels
from tagfill.methods.fixmatch import FixMatch
from tagfill.methods.gr import GeneralizedRobust
from tagfill.methods.large_loss import PermanentCorrection, Rejection, TemporaryCorrection
from tagfill.methods.patchcluster import PatchCluster
from tagfill.methods.patchml import PatchML
from tagfill.methods.role import Role
from tagfill.methods.scl import Consistency, ExpectedNegative, ExpectedPositive, SpatialConsistency
from tagfill.methods.soft_exposure import ls, se, se_e, se_i, se_l
from tagfill.methods.splc import Splc
from tagfill.options import check_options, option_parameters

__all__ = [
    "ALIASES",
    "METHODS",
    "TERMS",
    "BaseMethod",
    "LossMethod",
    "Scheduled",
    "Sum",
    "create",
    "first_epoch",
    "needs_negatives",
    "resolve_options",
]

METHODS: dict[str, Callable[..., Method]] = {
    **BASELINES,
    "curriculum": Curriculum,
    "role": Role,
    "ll-r": Rejection,
    "ll-ct": TemporaryCorrection,
    "ll-cp": PermanentCorrection,
    "p-asl": PartialAsymmetric,
    "csl": ClassAwareSelective,
    "splc": Splc,
    "em-apl": AsymmetricPseudoLabeling,
    "en": ExpectedNegative,
    "ep": ExpectedPositive,
    "cl": Consistency,
    "scl": SpatialConsistency,
    "se": se,
    "se-l": se_l,
    "se-i": se_i,
    "se-e": se_e,
    "ls": ls,
    "patchml": PatchML,
    "patchcluster": PatchCluster,
    "fixmatch": FixMatch,
    "gr": GeneralizedRobust,
    "vlpl": VisionLanguagePseudoLabels,
    "evidence": TrustedEvidence,
}
ALIASES = {"ne": "ignore"}


def _names_of(learns_from_labels: str) -> frozenset[str]:
    return frozenset(
        name for name, make in METHODS.items() if getattr(make, "learns_from_labels", "always") == learns_from_labels
    )


_RENAMED_OPTIONS = {"normalise": "normalize"}  # names of options in version 0.1
TERMS = _names_of("never")  # must be added to a method that learns from labels
_OPTIONAL_LEARNERS = _names_of("alone")  # leave the labels to another method of the sum, if there is one


def create(name: str, options: Mapping[str, Mapping[str, Any]] | None = None) -> Method:
    """Create a method, or the sum of one and terms that add to it.

    Args:
        name: one name, or several joined by `+`.
        options: of each method, by its name.

    Raises:
        TagfillError: if a name or an option is unknown, or the methods cannot be added.

    >>> sorted(create("en+scl", {"scl": {"weight": 0.1}}).needs)
    ['expected_positives', 'maps', 'memory']
    >>> create("fe", {"fe": {"unknown_as": "maybe"}})
    Traceback (most recent call last):
    tagfill.errors.TagfillError: Option unknown_as='maybe' of method 'fe': Input should be 'absent' or 'present'.
    """
    names = _parts(name)
    parts = [_make(part, chosen) for part, chosen in _options_of_parts(name, names, options).items()]
    return parts[0] if len(parts) == 1 else Sum(parts)


def resolve_options(name: str, options: Mapping[str, Mapping[str, Any]] | None = None) -> dict[str, dict[str, Any]]:
    """Every option of each part of a method, with the defaults of those that are not given.

    >>> resolve_options("ll-r", {"ll-r": {"rate": 0.1}})
    {'ll-r': {'rate': 0.1, 'candidates': 'unknown'}}
    """
    found = {}
    for part, given in _options_of_parts(name, _parts(name), options).items():
        defaults = {option: parameter.default for option, parameter in option_parameters(METHODS[part]).items()}
        found[part] = {**defaults, **_checked(part, given)}
    return found


def _parts(name: str) -> list[str]:
    """The methods that a name joins by `+`, without aliases."""
    for part in name.split("+"):
        if part not in METHODS and part not in ALIASES:
            raise unknown_name("method", part, [*METHODS, *ALIASES])
    names = [ALIASES.get(part, part) for part in name.split("+")]
    _check_sum(name, names)
    return names


def _options_of_parts(
    name: str, names: list[str], options: Mapping[str, Mapping[str, Any]] | None
) -> dict[str, dict[str, Any]]:
    """Options of each part: those given, and those that follow from the other parts."""
    options = {ALIASES.get(part, part): values for part, values in (options or {}).items()}
    if unused := sorted(set(options) - set(names)):
        raise TagfillError(f"There are options for '{unused[0]}', which is not part of the method '{name}'.")
    defaults = {part: {"w_supervised": 0.0} for part in _OPTIONAL_LEARNERS.intersection(names) if _learners(names)}
    return {part: {**defaults.get(part, {}), **options.get(part, {})} for part in names}


# methods that ignore unknown labels or judge them by known negatives; with the option values that change that
_NEED_NEGATIVES: dict[str, tuple[str | None, tuple[str, ...]]] = {
    **dict.fromkeys(("ignore", "wne", "se", "se-l", "se-i", "curriculum", "csl"), (None, ())),
    "p-asl": ("mode", ("negative",)),
    **dict.fromkeys(("zlpr", "two-way"), ("unknown_as", ("absent",))),
    "patchml": ("image_unknown", ("selective",)),
}


def needs_negatives(name: str, options: Mapping[str, Mapping[str, Any]] | None = None) -> str | None:
    """The part of a method that learns nothing from positives alone, as configured; None if there is none.

    >>> needs_negatives("ignore"), needs_negatives("wan"), needs_negatives("p-asl", {"p-asl": {"mode": "negative"}})
    ('ignore', None, None)
    """
    for part in name.split("+"):
        part = ALIASES.get(part, part)
        if part not in _NEED_NEGATIVES:
            continue
        option, working = _NEED_NEGATIVES[part]
        if option is None or (options or {}).get(part, {}).get(option) not in working:
            return part
    return None


def _check_sum(name: str, names: list[str]) -> None:
    """Raise if methods cannot be added."""
    if len(set(names)) < len(names):
        raise TagfillError(f"The method '{name}' names a part twice; name each once and set its weight in the options.")
    if TERMS.issuperset(names):
        raise TagfillError(f"'{name}' does not learn from labels; add it to a method that does, as in en+{names[0]}.")
    learners = _learners(names)
    if len(learners) > 1:
        raise TagfillError(
            f"'{learners[0]}' and '{learners[1]}' both learn from labels and cannot be added; choose one of them, and "
            f"add terms to it: {', '.join(sorted(TERMS | _OPTIONAL_LEARNERS))}."
        )


def _learners(names: list[str]) -> list[str]:
    """The methods that always learn from labels."""
    return [part for part in names if part not in TERMS and part not in _OPTIONAL_LEARNERS]


def _make(name: str, options: Mapping[str, Any]) -> Method:
    return METHODS[name](**_checked(name, options))


def _checked(name: str, options: Mapping[str, Any]) -> dict[str, Any]:
    options = {_RENAMED_OPTIONS.get(option, option): value for option, value in options.items()}
    return check_options(METHODS[name], options, f"method '{name}'")
