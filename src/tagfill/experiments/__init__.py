"""Experiments: comparisons of methods, budget studies, published recipes, reports, and the demonstration."""

from tagfill.data.extract import features
from tagfill.deprecation import renamed
from tagfill.experiments import recipes
from tagfill.experiments.budget_results import BudgetPlan, BudgetStudy
from tagfill.experiments.budget_study import budget
from tagfill.experiments.comparison import compare
from tagfill.experiments.demonstration import demo
from tagfill.experiments.leaderboard import Leaderboard
from tagfill.experiments.model_card import write_model_card
from tagfill.experiments.report.build import report_runs

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
    "write_model_card",
]

__getattr__ = renamed(__name__, {"Plan": "BudgetPlan", "Study": "BudgetStudy"})
