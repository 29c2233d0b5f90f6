"""Experiments: feature caches by name, comparisons of methods, budget studies, and the demonstration."""

from tagfill.experiments import recipes
from tagfill.experiments.budgets import Plan, Study, budget
from tagfill.experiments.caching import features
from tagfill.experiments.comparing import compare
from tagfill.experiments.demonstration import REPORT, Row, demo
from tagfill.experiments.leaderboard import Leaderboard

__all__ = ["REPORT", "Leaderboard", "Plan", "Row", "Study", "budget", "compare", "demo", "features", "recipes"]
