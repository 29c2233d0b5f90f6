"""Budget studies: which kind of annotation is worth its time."""

from tagfill.experiments.budgets.plan import Plan
from tagfill.experiments.budgets.results import Finding, Study
from tagfill.experiments.budgets.study import budget

__all__ = ["Finding", "Plan", "Study", "budget"]
