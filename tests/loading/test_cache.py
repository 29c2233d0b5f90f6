from __future__ import annotations

import json

import numpy as np
import pyarrow as pa
import pytest

from loading.cases import VIEWS, scenes, small_shards, tiny
from tagfill.errors import TagfillError
from tagfill.images import Geometry
from tagfill.loading import FeatureCache, extract
from tagfill.loading.cache import pack_geometry, unpack_geometry


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("cache")
    with pytest.MonkeyPatch.context() as patch:
        small_shards(patch)
        extract(scenes(), tiny(), folder, views=VIEWS, dtype="float32", seed=3)
    return folder


@pytest.fixture
def cache(folder, monkeypatch):
    small_shards(monkeypatch)
    return FeatureCache.open(folder, scenes())


def stored(folder, view: str) -> np.ndarray:
    """All maps of a view in the order of its rows, cells last."""
    return np.concatenate([np.load(path) for path in sorted((folder / "views" / view).glob("[0-9]*.npy"))])


WANTED = [("crop1", 4), ("eval", 17), ("flip", 4), ("eval", 0), ("crop1", 11), ("crop1", 5)]


def read(cache: FeatureCache, *, maps: bool):
    return cache.read(np.array([view for view, _ in WANTED]), np.array([row for _, row in WANTED]), maps=maps)


def test_maps_come_in_the_order_asked_for(folder, cache):
    features, _ = read(cache, maps=True)
    expected = [stored(folder, view)[row] for view, row in WANTED]  # training rows come first in the image table
    np.testing.assert_array_equal(features.permute(0, 2, 3, 1).numpy(), expected)


def test_pooled_features_come_in_the_order_asked_for(folder, cache):
    features, _ = read(cache, maps=False)
    expected = [np.load(folder / "views" / view / "pooled.npy")[row] for view, row in WANTED]
    np.testing.assert_array_equal(features.numpy(), expected)


def test_geometry_comes_with_them(folder, cache):
    _, geometry = read(cache, maps=False)
    expected = np.stack([np.load(folder / "views" / view / "geometry.npy")[row] for view, row in WANTED])
    np.testing.assert_array_equal(pack_geometry(geometry), expected)
    assert geometry.exact.all()


def test_the_flipped_view_says_so(cache):
    _, geometry = cache.read(np.array(["flip", "eval"]), np.array([0, 0]), maps=False)
    assert geometry.flip_x.tolist() == [True, False]
    assert geometry.box.tolist() == [[0, 0, 1, 1]] * 2


def test_geometry_survives_packing():
    box = np.array([[0.1, 0.2, 0.7, 1.0], [0, 0, 1, 1]], dtype=np.float32)
    geometry = Geometry(box, np.array([True, False]), np.array([False, True]), np.array([True, True]))
    again = unpack_geometry(pack_geometry(geometry))
    for name in ("box", "flip_x", "flip_y", "exact"):
        np.testing.assert_array_equal(getattr(again, name), getattr(geometry, name))


def test_an_unknown_view_is_refused(cache):
    with pytest.raises(TagfillError, match="has no view 'crop7'; it has eval, flip, crop0, crop1"):
        cache.view("crop7")


@pytest.mark.parametrize("row", [12, 19])
def test_images_that_a_view_does_not_cover_are_refused(cache, row):
    with pytest.raises(TagfillError, match="'flip' of the feature cache does not cover all images"):
        cache.read(np.array(["flip"]), np.array([row]), maps=False)


def test_a_cache_of_other_images_is_refused(folder):
    other = scenes().replace(images=scenes().images.take(pa.array([1, 0, *range(2, 20)])), folder=None)
    with pytest.raises(TagfillError, match="was made from another list of images than dataset scenes"):
        FeatureCache.open(folder, other)


def test_changed_labels_do_not_touch_a_cache(folder):
    FeatureCache.open(folder, scenes().replace(annotations=scenes().rows().slice(3), folder=None))


def test_a_folder_without_a_manifest_is_refused(tmp_path):
    with pytest.raises(TagfillError, match=r"is not a feature cache: it has no manifest\.json"):
        FeatureCache.open(tmp_path)


def test_another_version_is_refused(tmp_path, folder):
    manifest = json.loads((folder / "manifest.json").read_text())
    (tmp_path / "manifest.json").write_text(json.dumps({**manifest, "version": 0}))
    with pytest.raises(TagfillError, match="was made by another version of Tagfill; make it again"):
        FeatureCache.open(tmp_path)


def test_preprocessing_is_that_of_the_backbone(cache):
    assert cache.preprocessing == tiny().preprocessing
