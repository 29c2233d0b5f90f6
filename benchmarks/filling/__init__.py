"""What blocks of numbers in the documentation say. Each function takes the block's arguments and the way to docs/."""

from collections.abc import Callable

from filling.cases import cases
from filling.demonstration import demonstration
from filling.points import points
from filling.published import published, published_by_budget
from filling.single_positive import single_positive

KINDS: dict[str, Callable[[str, str], str]] = {
    "cases": cases,
    "demo": demonstration,
    "points": points,
    "published": published,
    "published-by-budget": published_by_budget,
    "single-positive": single_positive,
}

__all__ = ["KINDS"]
