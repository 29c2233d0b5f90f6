"""What a stage trains on: which images in which order, from where, with what beside them."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from tagfill.annotations import Dataset
from tagfill.contract import LabelMatrix
from tagfill.errors import TagfillError
from tagfill.images import View
from tagfill.loading import FeatureCache, FeatureSource, Locations, MarkedSource, PixelSource, Sampler, Source
from tagfill.models import Classifier, create_backbone
from tagfill.training import oracle
from tagfill.training.recipe import Recipe, Stage
from tagfill.training.setting import Setting

_LABELLED_SHARE = 0.5  # for methods that learn from images without any label, where the stage does not say


def open_cache(setting: Setting) -> FeatureCache:
    """The feature cache of the run, with the views alone that it had when the run began."""
    if setting.recipe.features is None:
        raise TagfillError(
            "A stage with input: cache needs a feature cache; make one with 'tagfill features' and give --features."
        )
    cache, views = FeatureCache.open(setting.recipe.features, setting.dataset), setting.run.views
    return cache if views is None else cache.only(views)


def views_of(recipe: Recipe, dataset: Dataset) -> dict[str, str] | None:
    """Identities of the cached views that a run draws from, by name; None if no stage trains on a cache."""
    if recipe.features is None or not any(stage.input == "cache" for stage in recipe.stages):
        return None
    cache = FeatureCache.open(recipe.features, dataset)
    return {name: view.identity for name, view in cache.manifest.views.items()}


def make_sampler(setting: Setting, stage: Stage, labels: LabelMatrix, needs: frozenset[str]) -> Sampler:
    """The order of visits; with a fixed share of labelled images if the stage or the needs of the method ask for it."""
    ranks, share, unlabelled = setting.devices.ranks, stage.labelled_share, labels.unannotated()
    if share is None and "unlabelled" in needs and 0 < len(unlabelled) < len(labels):
        share = _LABELLED_SHARE
    return Sampler(
        len(labels),
        setting.recipe.batch_size,
        setting.recipe.seed,
        ranks.rank,
        ranks.world,
        None if share is None else unlabelled,
        share or 0.0,
    )


def make_source(
    setting: Setting, stage: Stage, cache: FeatureCache | None, full: Classifier, needs: frozenset[str]
) -> Source:
    """Batches of images or of cached features, with the views and the marks that the method needs."""
    dataset, seed, pairs = setting.dataset, setting.recipe.seed, "weak+strong" in needs
    if pairs and stage.strong:
        raise TagfillError(f"The method of stage '{stage.name}' makes strong views itself; leave out strong: true.")
    source: Source
    if cache is not None:
        source = FeatureSource(
            dataset,
            cache,
            maps="maps" in needs or full.spatial,
            tokens=full.token,
            seed=seed,
            pairs=pairs,
            on_bad=setting.on_bad_image,
        )
    else:
        assert full.backbone is not None
        source = PixelSource(
            dataset,
            full.backbone.preprocessing.size,
            view_of(stage),
            seed=seed,
            workers=setting.workers,
            pairs=pairs,
            on_bad=setting.on_bad_image,
        )
    return MarkedSource(source, Locations.read(dataset, "train")) if "marks" in needs else source


def view_of(stage: Stage) -> View:
    """How a stage looks at its training images.

    >>> view_of(Stage(crop_scale=None, vertical_flip=True)).flip_y
    'random'
    """
    return View(
        scale=stage.crop_scale,
        flip="random" if stage.flip else "never",
        flip_y="random" if stage.vertical_flip else "never",
        strong=stage.strong,
    )


def frozen_features(setting: Setting, cache: FeatureCache | None, source: Source) -> NDArray[np.float32]:
    """What the pretrained backbone says about the training images, whatever a stage has made of it since."""
    if cache is not None:
        return oracle.cached_features(setting.dataset, cache, "train")
    recipe = setting.recipe
    backbone = create_backbone(
        recipe.backbone, pretrained=recipe.pretrained, image_size=recipe.image_size, seed=recipe.seed
    )
    return oracle.frozen_features(backbone, source, "train", len(setting.dataset.split("train")))
