"""Experiments: feature caches by name, comparisons of methods, budget studies, reports, and the demonstration."""

from tagfill.experiments import recipes
from tagfill.experiments.budgets import Plan, Study, budget
from tagfill.experiments.caching import features
from tagfill.experiments.comparing import compare
from tagfill.experiments.demonstration import demo
from tagfill.experiments.leaderboard import Leaderboard
from tagfill.experiments.reporting import report_runs

__all__ = ["Leaderboard", "Plan", "Study", "budget", "compare", "demo", "features", "recipes", "report_runs"]
