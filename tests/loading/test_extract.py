from __future__ import annotations

import contextlib
import json

import numpy as np
import pyarrow as pa
import pytest
import torch

from loading.cases import (
    NAMES,
    TRAIN,
    VIEWS,
    InterruptionError,
    Stopping,
    bounded,
    every_row,
    files,
    scenes,
    small_shards,
    tiny,
)
from tagfill.errors import TagfillError
from tagfill.images import EVAL
from tagfill.loading import FeatureCache, extract, parse_views
from tagfill.loading.pixels import Item, load


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """The folder of a float32 cache in several shards, made without interruption."""
    folder = tmp_path_factory.mktemp("cache") / "whole"
    with pytest.MonkeyPatch.context() as patch:
        small_shards(patch)
        extract(scenes(), tiny(), folder, views=VIEWS, dtype="float32", seed=3)
    return folder


@pytest.fixture(autouse=True)
def _small(monkeypatch):
    small_shards(monkeypatch)


def array(folder, view: str, name: str) -> np.ndarray:
    return np.load(folder / "views" / view / name, allow_pickle=False)


def maps_of(folder, view: str) -> np.ndarray:
    return np.concatenate([np.load(path) for path in sorted((folder / "views" / view).glob("[0-9]*.npy"))])


def test_the_manifest_says_what_was_done(whole):
    manifest = json.loads((whole / "manifest.json").read_text())
    assert manifest["images"] == scenes().identities["images"]
    assert manifest["fingerprint"] == tiny().fingerprint()
    assert {name: (view["role"], view["rows"], view["done"]) for name, view in manifest["views"].items()} == {
        "eval": ("eval", 20, 20),
        "flip": ("weak", TRAIN, TRAIN),
        "crop0": ("weak", TRAIN, TRAIN),
        "crop1": ("weak", TRAIN, TRAIN),
    }


@pytest.mark.parametrize("view", NAMES)
def test_files_lie_where_the_layout_says(whole, view):
    rows = every_row(scenes(), view)
    names = {"rows.npy", "geometry.npy", "pooled.npy", *(f"{shard:05d}.npy" for shard in range(-(-len(rows) // 5)))}
    assert {path.name for path in (whole / "views" / view).iterdir()} == names
    np.testing.assert_array_equal(array(whole, view, "rows.npy"), rows)
    assert array(whole, view, "geometry.npy").shape == (len(rows), 6)
    assert array(whole, view, "pooled.npy").dtype == np.float32
    assert maps_of(whole, view).shape == (len(rows), 2, 2, tiny().channels)


@pytest.mark.parametrize("view", NAMES)
def test_pooled_features_are_the_mean_of_the_maps(whole, view):
    np.testing.assert_allclose(
        array(whole, view, "pooled.npy"), maps_of(whole, view).mean((1, 2)), rtol=1e-5, atol=1e-6
    )


def test_plain_features_are_those_of_the_backbone(whole):
    (loaded,) = load(scenes(), [[Item(7, 7)]], EVAL, (64, 64), seed=0, workers=0)
    with torch.no_grad():
        features = tiny().eval()(loaded.pixels)
    np.testing.assert_allclose(maps_of(whole, "eval")[7], features[0].permute(1, 2, 0).numpy(), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("batches", [0, 4, 13])
def test_an_interrupted_extraction_ends_with_the_same_bytes(tmp_path, whole, batches):
    with pytest.raises(InterruptionError):
        extract(scenes(), tiny(), tmp_path, views=VIEWS, dtype="float32", seed=3, progress=Stopping(batches))
    extract(scenes(), tiny(), tmp_path, views=VIEWS, dtype="float32", seed=3)
    assert files(tmp_path) == files(whole)


def test_shards_that_are_done_are_not_made_again(tmp_path):
    """Batches of three and shards of five rows: the first shard takes two batches, the third belongs to the second."""
    with pytest.raises(InterruptionError):
        extract(scenes(), tiny(), tmp_path, views="eval", progress=Stopping(3))
    seen = Stopping(10**6)
    extract(scenes(), tiny(), tmp_path, views="eval", progress=seen)
    assert 10**6 - seen.left == 6


def test_a_complete_cache_is_only_opened(tmp_path):
    extract(scenes(), tiny(), tmp_path, views="eval")
    extract(scenes(), tiny(), tmp_path, views="eval", progress=Stopping(0))


def test_an_incomplete_cache_does_not_open(tmp_path):
    with pytest.raises(InterruptionError):
        extract(scenes(), tiny(), tmp_path, views="eval", progress=Stopping(3))
    with pytest.raises(TagfillError, match=r"is not complete \(view 'eval'\); run 'tagfill features' again"):
        FeatureCache.open(tmp_path)


def test_a_view_is_the_same_whatever_is_made_beside_it(tmp_path, whole):
    extract(scenes(), tiny(), tmp_path, views="eval,crops:1", dtype="float32", seed=3)
    np.testing.assert_array_equal(array(tmp_path, "crop0", "geometry.npy"), array(whole, "crop0", "geometry.npy"))


def test_views_can_be_added_later(tmp_path, whole):
    extract(scenes(), tiny(), tmp_path, views="eval,crops:1", dtype="float32", seed=3)
    extract(scenes(), tiny(), tmp_path, views=VIEWS, dtype="float32", seed=3)
    assert files(tmp_path) == files(whole)


def test_the_number_of_workers_changes_nothing(tmp_path, whole):
    extract(scenes(), tiny(), tmp_path, views="eval,crops:1", dtype="float32", seed=3, workers=2)
    assert {name: content for name, content in files(tmp_path).items() if "views" in name} == {
        name: content for name, content in files(whole).items() if "eval" in name or "crop0" in name
    }


def test_another_seed_gives_other_crops(tmp_path, whole):
    extract(scenes(), tiny(), tmp_path, views="eval,crops:1", dtype="float32", seed=4)
    assert not np.array_equal(array(tmp_path, "crop0", "geometry.npy"), array(whole, "crop0", "geometry.npy"))


def test_crops_of_one_image_differ(whole):
    assert not np.array_equal(array(whole, "crop0", "geometry.npy"), array(whole, "crop1", "geometry.npy"))


def test_bytes_are_within_half_a_step_of_the_features(tmp_path):
    backbone = bounded()
    extract(scenes(), backbone, tmp_path / "bytes", views="eval")
    extract(scenes(), backbone, tmp_path / "floats", views="eval", dtype="float32")
    stored, exact = maps_of(tmp_path / "bytes", "eval"), maps_of(tmp_path / "floats", "eval")
    assert stored.dtype == np.uint8
    assert exact.max() > 0
    step = json.loads((tmp_path / "bytes" / "manifest.json").read_text())["step"]
    assert step == pytest.approx(6 / 255)
    assert np.abs(stored * np.float32(step) - exact).max() <= step / 2 * 1.0001


def test_pooled_features_are_not_rounded_to_bytes(tmp_path):
    backbone = bounded()
    extract(scenes(), backbone, tmp_path / "bytes", views="eval")
    extract(scenes(), backbone, tmp_path / "floats", views="eval", dtype="float32")
    np.testing.assert_array_equal(
        array(tmp_path / "bytes", "eval", "pooled.npy"), array(tmp_path / "floats", "eval", "pooled.npy")
    )


def test_unbounded_features_are_kept_in_half_precision(tmp_path, whole):
    extract(scenes(), tiny(), tmp_path, views="eval")
    np.testing.assert_array_equal(maps_of(tmp_path, "eval"), maps_of(whole, "eval").astype(np.float16))


def test_bytes_are_refused_where_features_have_no_bound(tmp_path):
    with pytest.raises(TagfillError, match="test_resnet have no upper bound, so uint8 would cut them; choose float16"):
        extract(scenes(), tiny(), tmp_path, dtype="uint8")


def test_an_unknown_type_is_refused(tmp_path):
    with pytest.raises(TagfillError, match="'int4' is not a type of cached features"):
        extract(scenes(), tiny(), tmp_path, dtype="int4")


@pytest.mark.parametrize(
    ("what", "change"),
    [("fingerprint", {"backbone": tiny(seed=1)}), ("dtype", {"dtype": "float16"}), ("seed", {"seed": 4})],
    ids=["weights", "type", "seed"],
)
def test_a_folder_of_another_making_is_refused(whole, what, change):
    arguments = {"backbone": tiny(), "dtype": "float32", "seed": 3, **change}
    with pytest.raises(TagfillError, match=f"already holds a feature cache with other {what}"):
        extract(scenes(), folder=whole, views=VIEWS, **arguments)


def reordered():
    """The same images in another order."""
    return scenes().replace(images=scenes().images.take(pa.array([1, 0, *range(2, 20)])), folder=None)


def test_a_folder_of_other_images_is_refused(whole):
    with pytest.raises(TagfillError, match="already holds a feature cache with other images"):
        extract(reordered(), tiny(), whole, views=VIEWS, dtype="float32", seed=3)


def with_another_training_split():
    """The first training image and the first validation image change places; as many images train as before."""
    splits = scenes().images["split"].to_pylist()
    first_val = splits.index("val")
    splits[0], splits[first_val] = "val", "train"
    return scenes().replace(images=scenes().images.set_column(1, "split", pa.array(splits, pa.string())), folder=None)


@pytest.mark.parametrize("batches", [12, 10**6], ids=["interrupted", "complete"])
def test_another_training_split_of_the_same_size_gets_features_of_its_own(tmp_path, batches):
    """Rows done for the old split must not pass for rows of the new one."""
    changed = with_another_training_split()
    with contextlib.suppress(InterruptionError):
        extract(scenes(), tiny(), tmp_path / "cache", views="eval,flip", dtype="float32", progress=Stopping(batches))
    extract(changed, tiny(), tmp_path / "cache", views="eval,flip", dtype="float32")
    extract(changed, tiny(), tmp_path / "anew", views="eval,flip", dtype="float32")
    assert files(tmp_path / "cache") == files(tmp_path / "anew")


@pytest.mark.parametrize("text", ["", "eval,", "eval,zoom", "crops", "eval,crops:0", "eval,crops:x", "eval:2"])
def test_a_word_that_is_no_view_is_refused(text):
    with pytest.raises(TagfillError, match="is not a view; write views as in eval,flip,crops:2"):
        parse_views(text)


@pytest.mark.parametrize("text", ["flip", "eval,eval", "eval,crops:1,crops:2"])
def test_views_hold_eval_and_each_once(text):
    with pytest.raises(TagfillError, match="must hold eval, and each view once"):
        parse_views(text)
