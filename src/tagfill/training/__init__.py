"""Training: recipes, stages, the loop, checkpoints, resume."""

from tagfill.training.evaluation import evaluate
from tagfill.training.folder import Run
from tagfill.training.overriding import override
from tagfill.training.recipe import Recipe, make_recipe, read_recipe
from tagfill.training.resuming import resume
from tagfill.training.saving import Saving
from tagfill.training.scored import Evaluation
from tagfill.training.starting import start, train

__all__ = [
    "Evaluation",
    "Recipe",
    "Run",
    "Saving",
    "evaluate",
    "make_recipe",
    "override",
    "read_recipe",
    "resume",
    "start",
    "train",
]
