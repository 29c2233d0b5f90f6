from __future__ import annotations

import contextlib
import importlib
import json
import math
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
from tagfill.data import FeatureCache, FeatureSource, extract, verify_cache
from tagfill.data.extract import count_missing_views, features
from tagfill.data.feature_cache import unpack_geometry
from tagfill.data.sources import ViewRequest, load_views
from tagfill.engines import create_engine
from tagfill.errors import TagfillError, TagfillWarning
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

    def map(self, task, items, *, needs=()):
        assert all(path.exists() for path in needs)
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


def selected(rows):
    """A dataset of some of the scenes, in this order."""
    return scenes().replace(images=scenes().images.take(pa.array(rows)), folder=None)


def test_a_cache_of_other_images_in_the_folder_is_refused(tmp_path):
    extract(selected(range(8)), tiny(), tmp_path, views="eval")
    with pytest.raises(TagfillError, match="already contains a feature cache with different images"):
        extract(selected(range(8, 20)), tiny(), tmp_path, views="eval")


def with_another_training_split():
    """The first training image and the first validation image change places; as many images train as before."""
    splits = scenes().split_of_images()
    first_val = scenes().split("val")[0]
    splits[0], splits[first_val] = "val", "train"
    return scenes().with_splits(splits).replace(folder=None)


@pytest.mark.parametrize("batches", [12, 10**6], ids=["interrupted", "complete"])
def test_images_that_join_the_training_split_compute_only_their_own_views(tmp_path, whole, batches):
    """Rows done for the old split must not pass for rows of the new one, and are not made again."""
    changed = with_another_training_split()
    options = {"views": VIEWS, "dtype": "float32", "seed": 3}
    with contextlib.suppress(InterruptionError):
        extract(scenes(), tiny(), tmp_path / "cache", **options, progress=Stopping(batches))
    seen = Listening()
    cache = extract(changed, tiny(), tmp_path / "cache", **options, progress=seen)
    at_once = extract(changed, tiny(), tmp_path / "at once", **options)
    assert_same_features(cache, at_once, changed)
    if batches == 10**6:
        assert seen.batches == 3  # the only image that is new in the training split: flip and two crops
        assert seen.said == ["19 of 20 photos were there already."]


def assert_same_features(cache, other, dataset):
    """Bit for bit, in all views of every image."""
    for view in NAMES:
        wanted = [(view, int(row)) for row in every_row(dataset, view)]
        for maps in (False, True):
            (found, geometry), (expected, exact) = (read(one, wanted, maps=maps) for one in (cache, other))
            assert torch.equal(found, expected), view
            np.testing.assert_array_equal(geometry.box, exact.box)


def test_images_that_are_added_compute_only_their_own_features(tmp_path, whole):
    options = {"views": VIEWS, "dtype": "float32", "seed": 3}
    first = selected([*range(9), *range(12, 18)])
    extract(first, tiny(), tmp_path, **options)
    before, seen = files(tmp_path / "views"), Listening()
    appended = selected([*range(9), *range(12, 18), 9, 10, 11, 18, 19])
    assert count_missing_views(appended, tiny(), tmp_path, views=VIEWS, seed=3) == (5 + 3 * 3, 15)
    cache = extract(appended, tiny(), tmp_path, **options, progress=seen)
    assert seen.said == ["15 of 20 photos were there already."]
    assert seen.batches == 2 + 3 * 1  # of three images each: five for eval, three for each view of the training split
    after = files(tmp_path / "views")
    assert all(after[name] == before[name] for name in before if name.split("/")[-1][0].isdigit())
    with pytest.MonkeyPatch.context() as patch:
        small_shards(patch, rows=1024)
        at_once = extract(appended, tiny(), tmp_path / "at once", **options)
    assert_same_features(cache, at_once, appended)
    extract(first, tiny(), tmp_path, **options, progress=Stopping(0))  # still serves those that it was made for
    reordered = selected([19, 3, 11, 14])
    found, expected = (
        read(one, [("eval", row) for row in rows], maps=True)[0]
        for one, rows in ((extract(reordered, tiny(), tmp_path, **options, progress=Stopping(0)), [0, 1, 2, 3]),
                          (FeatureCache.open(whole), [19, 3, 11, 14]))
    )  # fmt: skip
    assert torch.equal(found, expected)


def test_bytes_of_added_images_are_within_half_a_step(tmp_path):
    """A shard of added images has its own scales."""
    extract(selected(range(17)), bounded(), tmp_path / "cache", views="eval")
    cache = extract(scenes(), bounded(), tmp_path / "cache", views="eval")
    exact = extract(scenes(), bounded(), tmp_path / "exact", views="eval", dtype="float32")
    assert cache.manifest.views["eval"].shards == [5, 5, 5, 2, 3]
    scale = np.repeat(array(tmp_path / "cache", "eval", "scales.npy"), [5, 5, 5, 2, 3], axis=0)[:, :, None, None]
    wanted = [("eval", row) for row in range(20)]
    stored, expected = (read(one, wanted, maps=True)[0].numpy() for one in (cache, exact))
    assert (np.abs(stored - expected) <= scale / 2 * 1.0001).all()
    pooled, means = (read(one, wanted, maps=False)[0] for one in (cache, exact))
    assert torch.equal(pooled, means)


def test_a_photo_that_was_replaced_is_computed_again(tmp_path):
    dataset = scenes().replace(root=shutil.copytree(scenes().root, tmp_path / "scenes"), folder=None)
    first = extract(dataset, tiny(), tmp_path / "cache", views="eval", dtype="float32")
    names, progress = dataset.names(), Listening()
    before = read(first, [("eval", 4), ("eval", 7)], maps=False)[0]
    shutil.copyfile(dataset.root / names[7], dataset.root / names[4])
    cache = extract(dataset, tiny(), tmp_path / "cache", views="eval", progress=progress)
    after = read(cache, [("eval", 4), ("eval", 7)], maps=False)[0]
    assert progress.said == ["19 of 20 photos were there already."]
    assert torch.equal(after, before[[1, 1]])
    shutil.rmtree(dataset.root)
    extract(dataset, tiny(), tmp_path / "cache", views="eval", progress=Stopping(0))  # without photos, as before


def test_a_photo_that_was_replaced_by_one_of_the_same_size_is_noticed(tmp_path):
    dataset = scenes().replace(root=shutil.copytree(scenes().root, tmp_path / "scenes"), folder=None)
    extract(dataset, tiny(), tmp_path / "cache", views="eval", dtype="float32")
    photo, touched = (dataset.root / dataset.names()[row] for row in (4, 5))
    content = bytearray(photo.read_bytes())
    content[-20] ^= 1
    photo.write_bytes(content)
    os.utime(touched, ns=(1, 1))  # another time alone does not count
    with pytest.warns(TagfillWarning, match=rf"1 photos were replaced .* such as '{dataset.names()[4]}'"):
        FeatureCache.open(tmp_path / "cache", dataset)
    progress = Listening()
    extract(dataset, tiny(), tmp_path / "cache", views="eval", progress=progress, max_bad_images=1.0)
    assert "19 of 20 photos were there already." in progress.said


def test_a_cache_of_an_older_version_grows(tmp_path):
    extract(selected(range(17)), tiny(), tmp_path, views="eval", dtype="float32")
    manifest = json.loads((tmp_path / "manifest.json").read_text()) | {"version": 3}
    del manifest["image_count"], manifest["views"]["eval"]["shards"]
    (tmp_path / "manifest.json").write_text(json.dumps(manifest))
    (tmp_path / "images.parquet").unlink()
    with pytest.raises(TagfillError, match="was made from other images by an older version of Tagfill"):
        FeatureCache.open(tmp_path, selected(range(5)))
    with pytest.raises(TagfillError, match="already contains a feature cache with different images"):
        extract(selected(range(5)), tiny(), tmp_path, views="eval")
    progress = Listening()
    cache = extract(scenes(), tiny(), tmp_path, views="eval", progress=progress)
    assert progress.said == ["17 of 20 photos were there already."]
    assert cache.manifest.version == 4
    FeatureCache.open(tmp_path, selected(range(5)))  # now it has a list of its images


def test_by_default_a_cache_grows_only_with_photos_of_the_same_size(tmp_path, monkeypatch):
    monkeypatch.setenv("TAGFILL_CACHE", str(tmp_path / "home"))
    options = {"backbone": "test_resnet", "pretrained": False, "image_size": 64, "views": "eval"}
    first = features(selected(range(15)), **options)
    assert features(selected([17, *range(15), 18]), **options).folder == first.folder
    mixed = shutil.copytree(scenes().root, tmp_path / "scenes")
    names = scenes().names()
    for name, other in zip(names, names[1:] + names[:1], strict=True):
        shutil.copyfile(scenes().root / other, mixed / name)
    others = selected(range(16)).replace(root=mixed)
    assert features(others, **options).folder != first.folder


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

    kill(work, tmp_path / "killed", batches)
    assert not json.loads((tmp_path / "killed" / "manifest.json").read_text())["views"]["strong0"]["files"]
    (tmp_path / "killed" / "views" / "eval" / ".00002.npy.1-1.tmp").write_bytes(b"half a shard")
    work(tmp_path / "killed")
    work(tmp_path / "unbroken")
    assert files(tmp_path / "killed") == files(tmp_path / "unbroken")


def kill(work, folder: Path, batches: int) -> None:
    """Do the work in another process, which is killed after a number of batches."""
    killed = multiprocessing.get_context("fork").Process(target=work, args=(folder, Killing(batches)))
    killed.start()
    killed.join()
    assert killed.exitcode == -signal.SIGKILL


@pytest.mark.parametrize("batches", [5, *(pytest.param(batches, marks=pytest.mark.long) for batches in (0, 2, 7))])
def test_growing_that_is_killed_ends_with_the_same_bytes(tmp_path, batches):
    """Twelve images are added in shards of five: three in eval, two in flip; batches have three images."""
    few = [0, 1, 2, 12, 13, 14, 15, 16]

    def grow(folder: Path, progress: Progress = SILENT) -> None:
        extract(scenes(), bounded(), folder, views="eval,flip", progress=progress)

    for name in ("killed", "unbroken"):
        extract(selected(few), bounded(), tmp_path / name, views="eval,flip")
    kill(grow, tmp_path / "killed", batches)
    for name in ("killed", "unbroken"):
        grow(tmp_path / name)
    assert files(tmp_path / "killed") == files(tmp_path / "unbroken")
    verify_cache(FeatureCache.open(tmp_path / "killed", scenes()))


def test_after_growing_was_killed_the_earlier_images_can_be_used(tmp_path):
    few = selected([0, 1, 2, 12, 13, 14, 15, 16])
    extract(few, tiny(), tmp_path / "cache", views="eval,flip", dtype="float32")
    with pytest.raises(InterruptionError):
        extract(scenes(), tiny(), tmp_path / "cache", views="eval,flip", progress=Stopping(3))
    seen = Listening()
    cache = extract(few, tiny(), tmp_path / "cache", views="eval,flip", progress=seen)
    assert seen.batches == 0
    verify_cache(cache)
    with pytest.raises(TagfillError, match="lacks 7 of the 20 images"):  # one shard of five was done
        FeatureCache.open(tmp_path / "cache", scenes())


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
    """A progress that keeps what is said and counts batches."""

    def __init__(self) -> None:
        super().__init__(10**6)
        self.said: list[str] = []

    @property
    def batches(self) -> int:
        return 10**6 - self.left

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
        if not name.endswith(("token.npy", ".lock", ".parquet")):
            (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
            (tmp_path / name).write_bytes(content)
    manifest = json.loads((tmp_path / "manifest.json").read_text())
    del manifest["tokens"], manifest["image_count"]
    manifest["version"] = 2
    for view in manifest["views"].values():
        del view["files"]["token.npy"], view["shards"]
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


@pytest.mark.parametrize("name", ["test_resnet", "test_vit"])
def test_an_inner_stage_is_stored_in_eight_bits_if_they_are_enough(tmp_path, name):
    """Within half a step of each channel; no means and tokens; added photos have scales and offsets of their own."""
    backbone, progress = tiny(name=name).eval(), Listening()
    at = backbone.default_stage()
    extract(selected(range(14)), backbone, tmp_path / "cache", views="eval,flip", at=at, progress=progress)
    cache = extract(scenes(), backbone, tmp_path / "cache", views="eval,flip", at=at)
    assert (cache.at, cache.manifest.dtype) == (at, "uint8")
    folder = tmp_path / "cache" / "views" / "eval"
    assert {"scales.npy", "offsets.npy"} <= {path.name for path in folder.iterdir()}
    assert not {"pooled.npy", "token.npy"} & {path.name for path in folder.iterdir()}
    row = math.prod(backbone.above(at).inner) + 36
    assert progress.said[0].startswith(f"{at} of {name} is ")
    assert f" {row:,} bytes per view as uint8; 26 views take {26 * row / 1e6:.1f} MB, and " in progress.said[0]

    found, _ = read(cache, [("eval", row) for row in range(20)], maps=True)
    (views,) = load_views(scenes(), [[ViewRequest(n, n) for n in range(20)]], EVAL, (64, 64), seed=0, workers=0)
    with torch.inference_mode():
        exact = backbone.below(views.pixels, at)
    scales = torch.from_numpy(np.load(folder / "scales.npy").max(0))[None, :, None, None]
    assert ((found - exact).abs() <= 0.51 * scales + 1e-5).all()


def test_a_cache_of_another_stage_in_the_folder_is_refused(tmp_path, whole):
    with pytest.raises(TagfillError, match="already contains a feature cache with different at"):
        extract(scenes(), tiny(), whole, views="eval", dtype="float32", seed=3, at="layer3")


def test_a_cache_larger_than_allowed_is_refused_before_anything_is_computed(tmp_path):
    with pytest.raises(TagfillError, match=r"20 views take 0\.1 MB, and --max-gb allows 0\.0 MB; cache fewer views"):
        extract(scenes(), tiny(), tmp_path / "cache", views="eval", at="layer3", max_gb=1e-6)
    assert not (tmp_path / "cache" / "views").exists()


@pytest.mark.parametrize(
    ("cores", "images", "engine", "expected"),
    [
        (2, 5000, None, 0),
        (3, 5000, None, 2),
        (8, 5000, None, 4),
        (64, 5000, None, 8),
        (8, 20, None, 0),
        (8, 5000, "ray", 0),
    ],
)
def test_several_processes_decode_where_there_are_cores(monkeypatch, cores, images, engine, expected):
    module = importlib.import_module("tagfill.data.extract")
    monkeypatch.setattr(module.os, "cpu_count", lambda: cores)
    assert module.default_workers(images, engine) == expected
