from __future__ import annotations

import contextlib
import json
import multiprocessing
import os
import shutil
import signal
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
import torch

from data.cases import (
    NAMES,
    TRAIN,
    VIEWS,
    InterruptionError,
    Stopping,
    bounded,
    every_row,
    files,
    read,
    scenes,
    small_shards,
    tiny,
)
from tagfill.data import FeatureCache, FeatureSource, extract
from tagfill.data.feature_cache import unpack_geometry
from tagfill.data.sources import ViewRequest, load_views
from tagfill.engines import create_engine
from tagfill.errors import TagfillError
from tagfill.images import EVAL, decode, render
from tagfill.io import exclusive_lock
from tagfill.progress import SILENT, Progress


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


def test_the_manifest_lists_what_was_done(whole):
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
def test_files_follow_the_documented_layout(whole, view):
    rows = every_row(scenes(), view)
    names = {"rows.npy", "geometry.npy", "pooled.npy", *(f"{shard:05d}.npy" for shard in range(-(-len(rows) // 5)))}
    assert {path.name for path in (whole / "views" / view).iterdir()} == names
    np.testing.assert_array_equal(array(whole, view, "rows.npy"), rows)
    assert array(whole, view, "geometry.npy").shape == (len(rows), 7)
    assert array(whole, view, "pooled.npy").dtype == np.float32
    assert maps_of(whole, view).shape == (len(rows), 2, 2, tiny().channels)


@pytest.mark.parametrize("view", NAMES)
def test_pooled_features_are_the_mean_of_the_maps(whole, view):
    np.testing.assert_allclose(
        array(whole, view, "pooled.npy"), maps_of(whole, view).mean((1, 2)), rtol=1e-5, atol=1e-6
    )


def test_features_of_the_eval_view_are_those_of_the_backbone(whole):
    (loaded,) = load_views(scenes(), [[ViewRequest(7, 7)]], EVAL, (64, 64), seed=0, workers=0)
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


def test_a_view_does_not_depend_on_the_other_views(tmp_path, whole):
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


def test_an_engine_makes_the_same_bytes(tmp_path, whole):
    engine = create_engine("joblib", workers=1)
    extract(scenes(), tiny(), tmp_path, views=VIEWS, dtype="float32", seed=3, engine=engine)
    assert files(tmp_path) == files(whole)


def test_an_engine_makes_only_what_is_missing_and_leaves_nothing_behind(tmp_path):
    extract(scenes(), bounded(), tmp_path / "unbroken", views="eval,pairs:1")
    with pytest.raises(InterruptionError):
        extract(scenes(), bounded(), tmp_path / "broken", views="eval,pairs:1", progress=Stopping(5))
    seen = Counting()
    extract(scenes(), bounded(), tmp_path / "broken", views="eval,pairs:1", engine=seen)
    assert files(tmp_path / "broken") == files(tmp_path / "unbroken")
    assert seen.items == 2 + 3 + 3  # the rest of eval, and both views of the training images


class Counting:
    """An engine that counts what it is given."""

    def __init__(self) -> None:
        self.items = 0

    def map(self, task, items):
        self.items += len(items)
        return map(task, items)


@pytest.mark.long
@pytest.mark.parametrize("name", ["joblib", "ray"])
def test_several_processes_make_the_same_bytes(tmp_path, whole, name):
    engine = create_engine(name, workers=2)
    extract(scenes(), tiny(), tmp_path, views=VIEWS, dtype="float32", seed=3, engine=engine)
    assert files(tmp_path) == files(whole)


def test_another_seed_gives_other_crops(tmp_path, whole):
    extract(scenes(), tiny(), tmp_path, views="eval,crops:1", dtype="float32", seed=4)
    assert not np.array_equal(array(tmp_path, "crop0", "geometry.npy"), array(whole, "crop0", "geometry.npy"))


def test_crops_of_one_image_differ(whole):
    assert not np.array_equal(array(whole, "crop0", "geometry.npy"), array(whole, "crop1", "geometry.npy"))


def test_quantized_features_are_within_half_a_step(tmp_path):
    backbone = bounded()
    extract(scenes(), backbone, tmp_path / "bytes", views="eval")
    extract(scenes(), backbone, tmp_path / "floats", views="eval", dtype="float32")
    stored, exact = maps_of(tmp_path / "bytes", "eval"), maps_of(tmp_path / "floats", "eval")
    assert stored.dtype == np.uint8
    assert exact.max() > 0
    scale = np.repeat(array(tmp_path / "bytes", "eval", "scales.npy"), 5, axis=0)[:, None, None, :]  # shards of 5 rows
    assert (np.abs(stored * scale - exact) <= scale / 2 * 1.0001).all()
    cache = FeatureCache.open(tmp_path / "bytes")
    features, _ = read(cache, [("eval", 17), ("eval", 3)], maps=True)
    np.testing.assert_array_equal(features.permute(0, 2, 3, 1).numpy(), (stored * scale)[[17, 3]])


def test_pooled_features_are_not_quantized(tmp_path):
    backbone = bounded()
    extract(scenes(), backbone, tmp_path / "bytes", views="eval")
    extract(scenes(), backbone, tmp_path / "floats", views="eval", dtype="float32")
    np.testing.assert_array_equal(
        array(tmp_path / "bytes", "eval", "pooled.npy"), array(tmp_path / "floats", "eval", "pooled.npy")
    )


def test_unbounded_features_are_stored_in_half_precision(tmp_path, whole):
    extract(scenes(), tiny(), tmp_path, views="eval")
    np.testing.assert_array_equal(maps_of(tmp_path, "eval"), maps_of(whole, "eval").astype(np.float16))


def test_uint8_is_refused_for_unbounded_features(tmp_path):
    with pytest.raises(TagfillError, match="test_resnet have no upper bound, so uint8 would clip them; choose float16"):
        extract(scenes(), tiny(), tmp_path, dtype="uint8")


def test_an_unknown_type_is_refused(tmp_path):
    with pytest.raises(TagfillError, match="'int4' is not a type of cached features"):
        extract(scenes(), tiny(), tmp_path, dtype="int4")


@pytest.mark.parametrize(
    ("what", "change"),
    [("fingerprint", {"backbone": tiny(seed=1)}), ("dtype", {"dtype": "float16"}), ("seed", {"seed": 4})],
    ids=["weights", "type", "seed"],
)
def test_a_different_cache_in_the_folder_is_refused(whole, what, change):
    arguments = {"backbone": tiny(), "dtype": "float32", "seed": 3, **change}
    with pytest.raises(TagfillError, match=f"already contains a feature cache with different {what}"):
        extract(scenes(), folder=whole, views=VIEWS, **arguments)


def reordered():
    """The same images in another order."""
    return scenes().replace(images=scenes().images.take(pa.array([1, 0, *range(2, 20)])), folder=None)


def test_a_cache_of_other_images_in_the_folder_is_refused(whole):
    with pytest.raises(TagfillError, match="already contains a feature cache with different images"):
        extract(reordered(), tiny(), whole, views=VIEWS, dtype="float32", seed=3)


def with_another_training_split():
    """The first training image and the first validation image change places; as many images train as before."""
    splits = scenes().split_of_images()
    first_val = scenes().split("val")[0]
    splits[0], splits[first_val] = "val", "train"
    return scenes().with_splits(splits).replace(folder=None)


@pytest.mark.parametrize("batches", [12, 10**6], ids=["interrupted", "complete"])
def test_another_training_split_of_the_same_size_gets_its_own_features(tmp_path, batches):
    """Rows done for the old split must not pass for rows of the new one."""
    changed = with_another_training_split()
    with contextlib.suppress(InterruptionError):
        extract(scenes(), tiny(), tmp_path / "cache", views="eval,flip", dtype="float32", progress=Stopping(batches))
    extract(changed, tiny(), tmp_path / "cache", views="eval,flip", dtype="float32")
    extract(changed, tiny(), tmp_path / "anew", views="eval,flip", dtype="float32")
    assert files(tmp_path / "cache") == files(tmp_path / "anew")


def test_requesting_fewer_views_keeps_the_others(tmp_path, whole):
    shutil.copytree(whole, tmp_path / "cache")
    again = extract(scenes(), tiny(), tmp_path / "cache", views="eval", seed=3, progress=Stopping(0))
    assert again.weak_views == NAMES
    assert files(tmp_path / "cache") == files(whole)


def test_only_views_that_are_missing_are_made(tmp_path):
    extract(scenes(), tiny(), tmp_path, views="eval,flip")
    seen = Stopping(10**6)
    extract(scenes(), tiny(), tmp_path, views="eval,crops:1", progress=seen)
    assert 10**6 - seen.left == 5  # of 12 rows in shards of 5: batches of 3, 2, 3, 2, 2
    assert FeatureCache.open(tmp_path).weak_views == ("eval", "flip", "crop0")


def test_an_incomplete_view_that_is_no_longer_requested_is_dropped(tmp_path):
    with pytest.raises(InterruptionError):
        extract(scenes(), tiny(), tmp_path, views="eval,flip", progress=Stopping(11))
    assert extract(scenes(), tiny(), tmp_path, views="eval").weak_views == ("eval",)


class Killing(Stopping):
    """A progress that ends the process without a word after so many batches."""

    def advance(self, steps: int = 1) -> None:
        self.left -= 1
        if self.left < 0:
            os.kill(os.getpid(), signal.SIGKILL)


@pytest.mark.parametrize("batches", [9, *(pytest.param(batches, marks=pytest.mark.long) for batches in (2, 14))])
def test_a_killed_extraction_ends_with_the_same_bytes(tmp_path, batches):
    def work(folder: Path, progress: Progress = SILENT) -> None:
        extract(scenes(), bounded(), folder, views="eval,pairs:1", progress=progress)

    killed = multiprocessing.get_context("fork").Process(target=work, args=(tmp_path / "killed", Killing(batches)))
    killed.start()
    killed.join()
    assert killed.exitcode == -signal.SIGKILL
    assert not json.loads((tmp_path / "killed" / "manifest.json").read_text())["views"]["strong0"]["files"]
    (tmp_path / "killed" / "views" / "eval" / ".00002.npy.1-1.tmp").write_bytes(b"half a shard")
    work(tmp_path / "killed")
    work(tmp_path / "unbroken")
    assert files(tmp_path / "killed") == files(tmp_path / "unbroken")


def test_a_second_process_is_refused(tmp_path):
    with exclusive_lock(tmp_path, "is making features"), pytest.raises(TagfillError, match="Another process is making"):
        extract(scenes(), tiny(), tmp_path, views="eval")


@pytest.fixture
def with_bad_images(tmp_path):
    """The scenes with two images that do not decode, one of them in training."""
    folder = tmp_path / "scenes"
    shutil.copytree(scenes().root, folder)
    dataset = scenes().replace(root=folder, folder=None)
    for row, content in ((4, b"no image"), (17, b"")):
        (folder / dataset.names()[row]).write_bytes(content)
    return dataset


class Listening(Stopping):
    """A progress that keeps what is said."""

    def __init__(self) -> None:
        super().__init__(10**6)
        self.said: list[str] = []

    def say(self, text: str) -> None:
        self.said.append(text)


def test_bad_images_are_listed_once_and_left_out(tmp_path, with_bad_images):
    progress = Listening()
    cache = extract(
        with_bad_images, tiny(), tmp_path / "cache", views="eval,flip", max_bad_images=0.2, progress=progress
    )
    names = with_bad_images.names()
    assert [(image.row, image.image) for image in cache.manifest.missing] == [(4, names[4]), (17, names[17])]
    assert [names[4] in progress.said[0], names[17] in progress.said[1], len(progress.said)] == [True, True, 2]
    told: list[str] = []
    source = FeatureSource(with_bad_images, cache, maps=True, seed=0, on_bad=lambda error: told.append(error.image))
    (batch,) = source.train([np.array([3, 4, 5])], epoch=1)
    assert batch.index.tolist() == [3, 5]
    assert batch.inputs.abs().sum((1, 2, 3)).min() > 0
    (batch,) = source.evaluate("test", np.arange(4))
    assert batch.index.tolist() == [0, 2, 3]
    assert told == [names[4], names[17]]


def test_bad_images_survive_an_interruption(tmp_path, with_bad_images):
    options = {"views": "eval,flip", "max_bad_images": 0.2}
    extract(with_bad_images, tiny(), tmp_path / "unbroken", **options)
    with pytest.raises(InterruptionError):
        extract(with_bad_images, tiny(), tmp_path / "broken", **options, progress=Stopping(5))
    extract(with_bad_images, tiny(), tmp_path / "broken", **options)
    assert files(tmp_path / "broken") == files(tmp_path / "unbroken")


def test_too_many_bad_images_stop_the_extraction(tmp_path, with_bad_images):
    with pytest.raises(TagfillError, match="2 images cannot be decoded, more than the 1 that max_bad_images allows"):
        extract(with_bad_images, tiny(), tmp_path / "cache", views="eval", max_bad_images=0.05)


def test_features_outside_their_bound_are_stored_in_half_precision(tmp_path):
    backbone, progress = bounded(), Listening()
    backbone.bound = 1e-3  # which its features exceed
    cache = extract(scenes(), backbone, tmp_path, views="eval", progress=progress)
    assert cache.manifest.dtype == "float16"
    assert "features are stored as float16: they range from" in progress.said[0]
    with pytest.raises(TagfillError, match="cannot be stored as uint8: they range from"):
        extract(scenes(), backbone, tmp_path / "bytes", views="eval", dtype="uint8")


def test_the_dtype_of_an_existing_cache_does_not_change(tmp_path):
    extract(scenes(), bounded(), tmp_path, views="eval", dtype="float16")
    assert extract(scenes(), bounded(), tmp_path, views="eval,flip").manifest.dtype == "float16"


def test_the_strong_view_of_a_pair_is_its_weak_view_distorted(tmp_path):
    cache = extract(scenes(), tiny(), tmp_path, views="eval,pairs:2", dtype="float32")
    assert cache.pairs == [("weak0", "strong0"), ("weak1", "strong1")]
    assert {name: view.role for name, view in cache.manifest.views.items()} == {
        "eval": "eval",
        "weak0": "weak",
        "strong0": "strong",
        "weak1": "weak",
        "strong1": "strong",
    }
    weak, strong = (unpack_geometry(array(tmp_path, name, "geometry.npy")) for name in ("weak0", "strong0"))
    np.testing.assert_array_equal(weak.box, strong.box)
    np.testing.assert_array_equal(weak.flip_x, strong.flip_x)
    assert weak.exact.all()
    assert not strong.exact.any()
    assert not np.array_equal(maps_of(tmp_path, "weak0"), maps_of(tmp_path, "strong0"))


# Class tokens beside the pooled features of a cache.


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("tokens")
    with pytest.MonkeyPatch.context() as patch:
        small_shards(patch)
        extract(scenes(), tiny(name="test_vit"), folder, views=VIEWS, seed=3)
    return folder


def without_tokens(folder, tmp_path):
    """The cache as made by the version without class tokens."""
    for name, content in files(folder).items():
        if not name.endswith(("token.npy", ".lock")):
            (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
            (tmp_path / name).write_bytes(content)
    manifest = json.loads((tmp_path / "manifest.json").read_text())
    del manifest["tokens"]
    manifest["version"] = 2
    for view in manifest["views"].values():
        del view["files"]["token.npy"]
    (tmp_path / "manifest.json").write_text(json.dumps(manifest))
    return tmp_path


@pytest.mark.parametrize("name", ["test_vit", "deit_tiny_distilled_patch16_224"])
def test_a_cached_token_is_that_of_the_image(tmp_path, name):
    """Of a distilled model too it is the class token, which the head takes on images."""
    backbone = tiny(name=name).eval()
    cache = extract(scenes(), backbone, tmp_path, views="eval,flip", dtype="float32")
    for view in ("eval", "flip"):
        rows = every_row(scenes(), view)[:2]
        found, geometry = cache.read([view], np.zeros(2, int), rows, maps=False, tokens=True)
        images = [decode(scenes().root, image) for image in scenes().names(rows)]
        views = [render(image, geometry.take(np.array([at])), (64, 64)) for at, image in enumerate(images)]
        with torch.inference_mode():
            expected = backbone.encode(torch.from_numpy(np.stack(views)).permute(0, 3, 1, 2), token=True).token
        torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-5)


def test_tokens_differ_from_means(folder):
    cache, rows = FeatureCache.open(folder, scenes()), np.arange(4)
    token, pooled = (cache.read(["eval"], np.zeros(4, int), rows, maps=False, tokens=t)[0] for t in (True, False))
    assert token.shape == pooled.shape
    assert (token - pooled).abs().max() > 0.1


def test_a_source_of_tokens_returns_only_tokens(folder):
    cache = FeatureCache.open(folder, scenes())
    (batch,) = FeatureSource(scenes(), cache, maps=True, tokens=True, seed=0).evaluate("test", np.arange(4))
    expected, _ = cache.read(["eval"], np.zeros(4, int), scenes().split("test"), maps=False, tokens=True)
    assert torch.equal(batch.inputs, expected)


def test_an_interrupted_extraction_ends_with_the_same_tokens(folder, tmp_path, monkeypatch):
    small_shards(monkeypatch)
    with pytest.raises(InterruptionError):
        extract(scenes(), tiny(name="test_vit"), tmp_path, views=VIEWS, seed=3, progress=Stopping(9))
    extract(scenes(), tiny(name="test_vit"), tmp_path, views=VIEWS, seed=3)
    assert files(tmp_path) == files(folder)


def test_a_backbone_without_a_class_token_stores_none(tmp_path):
    cache = extract(scenes(), tiny(), tmp_path, views="eval")
    assert not list(tmp_path.rglob("token.npy"))
    with pytest.raises(TagfillError, match="has no class tokens, which pool=token needs"):
        FeatureSource(scenes(), cache, maps=False, tokens=True, seed=0)


def test_an_old_cache_without_tokens_is_read_and_says_what_it_lacks(folder, tmp_path):
    cache = FeatureCache.open(without_tokens(folder, tmp_path), scenes())
    expected, _ = FeatureCache.open(folder).read(["eval"], np.zeros(3, int), np.arange(3), maps=True)
    assert torch.equal(cache.read(["eval"], np.zeros(3, int), np.arange(3), maps=True)[0], expected)
    with pytest.raises(TagfillError, match=r"has no class tokens, .* make a new one in another folder"):
        cache.require_tokens()


def test_an_old_cache_continues_without_tokens(folder, tmp_path, monkeypatch):
    small_shards(monkeypatch)
    before = files(without_tokens(folder, tmp_path))
    cache = extract(scenes(), tiny(name="test_vit"), tmp_path, views=VIEWS, seed=3)
    assert files(tmp_path) == before
    cache = extract(scenes(), tiny(name="test_vit"), tmp_path, views="eval,crops:3", seed=3)
    assert set(cache.manifest.views) == {*NAMES, "crop2"}
    assert not cache.manifest.tokens
    assert not list(tmp_path.rglob("token.npy"))
