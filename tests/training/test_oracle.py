"""Complete labels and frozen features, for the methods that ask for them."""

from __future__ import annotations

import numpy as np
import pytest

from tagfill.data import FeatureCache, PixelSource
from tagfill.dataset import Dataset
from tagfill.errors import TagfillError
from tagfill.images import EVAL
from tagfill.models import create_backbone
from tagfill.training import stage

from .conftest import Material


def test_truth_of_a_simulated_dataset_is_complete_and_agrees_with_what_was_kept(material: Material) -> None:
    part = Dataset.open(material.single)

    truth = stage.true_labels(part, "train")

    kept = part.labels("train").dense()
    assert truth.complete()
    assert np.array_equal(truth.dense()[kept == 1], kept[kept == 1])


def test_a_dataset_without_truth_says_so(material: Material) -> None:
    part = Dataset.open(material.single).replace(truth=None)

    with pytest.raises(TagfillError, match="needs the complete labels"):
        stage.true_labels(part, "train")


def test_features_by_the_backbone_equal_those_of_its_cache(material: Material) -> None:
    part, cache = Dataset.open(material.single), FeatureCache.open(material.cache)
    weights = str(material.weights)
    backbone = create_backbone(cache.manifest.backbone, pretrained=weights, image_size=cache.preprocessing.size[0])
    source = PixelSource(part, backbone.preprocessing.size, EVAL, seed=0, workers=0)

    looked = stage.compute_frozen_features(backbone, source, "train", len(part.split("train")))

    assert np.allclose(looked, stage.cached_features(part, cache, "train"), atol=1e-5)
