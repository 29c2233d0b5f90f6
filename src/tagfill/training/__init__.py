"""Training: recipes, runs, the training loop, checkpoints, evaluation."""

from tagfill.training.automatic_cache import cache_features
from tagfill.training.cross_fitting import cross_fit_epochs
from tagfill.training.evaluation import evaluate
from tagfill.training.evaluation_result import Evaluation, Mistake
from tagfill.training.recipe import Recipe, build_recipe, make_recipe, override, read_recipe
from tagfill.training.run import check_start, resume, start, start_or_resume, train
from tagfill.training.run_folder import Run
from tagfill.training.trainer import Saving

__all__ = [
    "Evaluation",
    "Mistake",
    "Recipe",
    "Run",
    "Saving",
    "build_recipe",
    "cache_features",
    "check_start",
    "cross_fit_epochs",
    "evaluate",
    "make_recipe",
    "override",
    "read_recipe",
    "resume",
    "start",
    "start_or_resume",
    "train",
]
