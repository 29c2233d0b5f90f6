"""A feature cache for runs that train only a head, or what lies above a stage of the backbone.

Without one, every epoch would run the frozen part of the backbone again.

The cache is in Tagfill's cache folder, named after the images, the backbone and its weights, so that all runs on the
same images share it; it grows with the dataset. The run is the same as one with `tagfill features` and `--features`.
"""

from __future__ import annotations

import glob
import math
import shutil
from pathlib import Path

from tagfill import methods
from tagfill.data.extract import features
from tagfill.dataset import Dataset
from tagfill.io import cache_folder
from tagfill.models import create_backbone
from tagfill.models.stages import FEATURES
from tagfill.progress import SILENT, Progress
from tagfill.training.auto import AUTO
from tagfill.training.devices import launched_processes
from tagfill.training.recipe import Recipe, Stage

VIEWS, PAIRS = "eval,flip,crops:2", "pairs:1"
_VIEWS_OF_TRAINING = 4  # in VIEWS
_FREE_SHARE = 0.5  # of the disk that a cache may take


def cache_features(
    dataset: Dataset,
    recipe: Recipe,
    *,
    device: str = "auto",
    workers: int = 0,
    processes: int = 1,
    progress: Progress = SILENT,
) -> Recipe:
    """The recipe on cached features, which are computed unless they are there; unchanged if a cache does not fit it.

    Args:
        dataset: the data.
        recipe: of a run.
        device: of the backbone.
        workers: processes that decode images.
        processes: that will train together; several do not make a cache.
        progress: shows the extraction.
    """
    if launched_processes(processes) > 1 or not can_cache(recipe):
        return recipe
    if not _fits_on_disk(dataset, recipe):
        progress.say("There is too little room on the disk for a feature cache, so every epoch runs the backbone.")
        return recipe
    named = recipe.stages if recipe.method != AUTO else ()  # `auto` chooses methods that need one view
    pairs = any("weak+strong" in methods.create(*recipe.method_of(stage)).needs for stage in named)
    cache = features(
        dataset,
        backbone=recipe.backbone,
        pretrained=recipe.pretrained,
        image_size=recipe.image_size,
        views=f"{VIEWS},{PAIRS}" if pairs else VIEWS,
        at=_cached_stage(recipe),
        workers=workers,
        max_bad_images=recipe.max_bad_images,
        device=device,
        progress=progress,
    )
    progress.say(f"Training on the features in {cache.folder}; --no-cache trains on images instead.")
    return on_cache(recipe, cache.folder)


def on_cache(recipe: Recipe, folder: Path) -> Recipe:
    """The recipe with all stages on a feature cache."""
    stages = [stage.model_copy(update={"input": "cache"}) for stage in recipe.stages]
    return recipe.model_copy(update={"features": str(folder.absolute()), "stages": stages})


def _cached_stage(recipe: Recipe) -> str:
    """The stage of the backbone that the stages of a recipe need, some of which may train only the head."""
    if all(stage.train == "head" for stage in recipe.stages):
        return FEATURES
    return recipe.at or create_backbone(recipe.backbone, image_size=recipe.image_size).default_stage()


def can_cache(recipe: Recipe) -> bool:
    """Whether no stage trains a whole backbone, and all use the views that a cache has, with pretrained weights.

    >>> recipe = Recipe(dataset="photos", method="an")
    >>> can_cache(recipe), can_cache(recipe.model_copy(update={"stages": [Stage(train="all")]}))
    (True, False)
    """
    plain = Stage()
    views = ("crop_scale", "short_side", "flip", "vertical_flip", "strong")
    return (
        recipe.features is None
        and recipe.pretrained is not False
        and all(
            stage.input == "images"
            and stage.train != "all"
            and all(getattr(stage, name) == getattr(plain, name) for name in views)
            for stage in recipe.stages
        )
    )


def _fits_on_disk(dataset: Dataset, recipe: Recipe) -> bool:
    """Whether a cache takes at most half of the free disk, at two bytes per feature.

    Existing caches of the dataset count as free: this one may be among them, or grow from one.
    """
    backbone = create_backbone(recipe.backbone, pretrained=False, image_size=recipe.image_size)
    at = _cached_stage(recipe)
    values = backbone.channels * math.prod(backbone.grid) if at == FEATURES else math.prod(backbone.above(at).inner)
    views = len(dataset) + (_VIEWS_OF_TRAINING - 1) * len(dataset.splits.get("train", ()))
    folder = cache_folder()
    existing = next(path for path in (folder, *folder.parents) if path.exists())
    caches = (folder / "features").glob(f"{glob.escape(f'{dataset.name}-{recipe.backbone}')}-*/views/*/*.npy")
    free = shutil.disk_usage(existing).free + sum(path.stat().st_size for path in caches)
    return views * values * 2 <= _FREE_SHARE * free
