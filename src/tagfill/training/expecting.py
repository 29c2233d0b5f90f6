"""κ, the number of labels that an image is expected to have, for the methods that ask for it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tagfill import methods
from tagfill.annotations import Dataset
from tagfill.errors import TagfillError
from tagfill.training.recipe import Recipe


def expected_positives(dataset: Dataset, recipe: Recipe) -> tuple[float | None, str | None]:
    """κ as given, or as counted on a completely labelled validation split.

    Args:
        dataset: the data.
        recipe: names the methods; an option `expected` of a method goes before the run's own number.

    Returns:
        The number, and where it comes from; None where nobody knows it, and where no method of the run asks for it.
    """
    chosen = [recipe.method_of(stage) for stage in recipe.stages]
    own = [_own(options) for name, options in chosen if "expected_positives" in methods.create(name, options).needs]
    if not own:
        return None, None
    if None not in own:
        return _possible(own[0], dataset), "given as an option of the method"
    if recipe.expected_positives is not None:
        return _possible(recipe.expected_positives, dataset), "given as expected_positives"
    if "val" in dataset.splits:
        labels = dataset.labels("val")
        if labels.complete():
            return float(labels.positives_per_image().mean()), "counted on the validation split"
    return None, None


def _possible(expected: float | None, dataset: Dataset) -> float | None:
    """A number that was given, unless an image cannot have as many labels."""
    if expected is not None and expected > len(dataset.classes):
        raise TagfillError(
            f"{expected:g} present labels an image are expected, and there are {len(dataset.classes)} classes; give a "
            "smaller number."
        )
    return expected


def _own(options: Mapping[str, Mapping[str, Any]]) -> float | None:
    """What the method of a stage was given as its own option."""
    given = [float(part["expected"]) for part in options.values() if part.get("expected") is not None]
    return given[0] if given else None
