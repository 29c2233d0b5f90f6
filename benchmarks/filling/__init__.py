"""What blocks of numbers in the documentation say. Each function takes the block's arguments and the way to docs/."""

from collections.abc import Callable

from filling.attacks import attacks
from filling.cases import cases
from filling.claims import claims
from filling.demonstration import demonstration
from filling.label_scale import scale
from filling.machines import cluster, torchrun
from filling.missing import missing
from filling.photo_counts import photo_counts
from filling.photos import budgets, calibration, heads, scratch, whole
from filling.points import budget_defaults, points
from filling.published import published, published_by_budget
from filling.review import review
from filling.scale_plan import scale_limits, scale_plan
from filling.settings import settings
from filling.single_positive import single_positive
from filling.step_files import step_files
from filling.tags import tags

KINDS: dict[str, Callable[[str, str], str]] = {
    "attacks": attacks,
    "budget-defaults": budget_defaults,
    "budgets": budgets,
    "calibration": calibration,
    "cases": cases,
    "claims": claims,
    "cluster": cluster,
    "demo": demonstration,
    "heads": heads,
    "missing": missing,
    "photo-counts": photo_counts,
    "points": points,
    "published": published,
    "published-by-budget": published_by_budget,
    "review": review,
    "scale": scale,
    "scale-limits": scale_limits,
    "scale-plan": scale_plan,
    "scratch": scratch,
    "settings": settings,
    "single-positive": single_positive,
    "step-files": step_files,
    "tags": tags,
    "torchrun": torchrun,
    "whole": whole,
}

__all__ = ["KINDS"]
