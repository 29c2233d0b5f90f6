"""Recipes of the rows that papers report, one flat file for each family of rows, and the same scaled to two cores."""

from tagfill.experiments.recipes.published import Metric, Published, Row
from tagfill.experiments.recipes.shelf import RecipeFile, names, open_recipe, settings

__all__ = ["Metric", "Published", "RecipeFile", "Row", "names", "open_recipe", "settings"]
