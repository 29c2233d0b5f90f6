"""Experiments: feature caches by name, comparisons of methods, budget studies, reports, and the demonstration."""

from tagfill.data.extract import features
from tagfill.experiments import recipes
from tagfill.experiments.budget_results import BudgetPlan, BudgetStudy
from tagfill.experiments.budget_study import budget
from tagfill.experiments.comparison import compare
from tagfill.experiments.demonstration import demo
from tagfill.experiments.leaderboard import Leaderboard
from tagfill.experiments.report.contents import report_runs

__all__ = [
    "BudgetPlan",
    "BudgetStudy",
    "Leaderboard",
    "budget",
    "compare",
    "demo",
    "features",
    "recipes",
    "report_runs",
]
