from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from data.cases import VIEWS, files, read, scenes, small_shards, tiny
from tagfill.data import FeatureCache, extract, verify_cache
from tagfill.data.feature_cache import (
    dequantize,
    pack_geometry,
    quantization_error,
    quantization_problem,
    quantize,
    unpack_geometry,
)
from tagfill.errors import TagfillError
from tagfill.images import Geometry


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("cache")
    with pytest.MonkeyPatch.context() as patch:
        small_shards(patch)
        extract(scenes(), tiny(), folder, views=VIEWS, dtype="float32", seed=3)
    return folder


@pytest.fixture
def cache(folder):
    return FeatureCache.open(folder, scenes())


def stored(folder, view: str) -> np.ndarray:
    """All maps of a view in the order of its rows, cells last."""
    return np.concatenate([np.load(path) for path in sorted((folder / "views" / view).glob("[0-9]*.npy"))])


WANTED = [("crop1", 4), ("eval", 17), ("flip", 4), ("eval", 0), ("crop1", 11), ("crop1", 5)]


def test_maps_come_in_the_requested_order(folder, cache):
    features, _ = read(cache, WANTED, maps=True)
    expected = [stored(folder, view)[row] for view, row in WANTED]  # training rows come first in the image table
    np.testing.assert_array_equal(features.permute(0, 2, 3, 1).numpy(), expected)


def test_pooled_features_come_in_the_requested_order(folder, cache):
    features, _ = read(cache, WANTED, maps=False)
    expected = [np.load(folder / "views" / view / "pooled.npy")[row] for view, row in WANTED]
    np.testing.assert_array_equal(features.numpy(), expected)


def test_geometry_comes_with_them(folder, cache):
    _, geometry = read(cache, WANTED, maps=False)
    expected = np.stack([np.load(folder / "views" / view / "geometry.npy")[row] for view, row in WANTED])
    np.testing.assert_array_equal(pack_geometry(geometry), expected)
    assert geometry.exact.all()


def test_the_flipped_view_says_so(cache):
    _, geometry = read(cache, [("flip", 0), ("eval", 0)], maps=False)
    assert geometry.flip_x.tolist() == [True, False]
    assert geometry.box.tolist() == [[0, 0, 1, 1]] * 2


def test_geometry_survives_packing():
    box = np.array([[0.1, 0.2, 0.7, 1.0], [0, 0, 1, 1]], dtype=np.float32)
    geometry = Geometry(box, np.array([True, False]), np.array([False, True]), np.array([True, False]))
    again = unpack_geometry(pack_geometry(geometry))
    for name in ("box", "flip_x", "flip_y", "exact"):
        np.testing.assert_array_equal(getattr(again, name), getattr(geometry, name))


def test_an_unknown_view_is_refused(cache):
    with pytest.raises(TagfillError, match="has no view 'crop7'; it has eval, flip, crop0, crop1"):
        cache.view("crop7")


@pytest.mark.parametrize("row", [12, 19])
def test_images_that_a_view_does_not_cover_are_refused(cache, row):
    with pytest.raises(TagfillError, match="'flip' of the feature cache does not cover all requested images"):
        read(cache, [("flip", row)], maps=False)


def selected(rows: list[int]):
    """A dataset of some of the scenes, in this order."""
    return scenes().replace(images=scenes().images.take(pa.array(rows)), folder=None)


def test_a_cache_serves_some_of_its_images_in_any_order(folder, cache):
    """Images are found by name: one that was removed or moved to another place does not change the others."""
    rows = [19, 4, 0, 11]
    other = FeatureCache.open(folder, selected(rows))
    for maps in (True, False):
        found, geometry = read(other, [("eval", 0), ("crop1", 1), ("flip", 2), ("crop1", 3)], maps=maps)
        expected = read(cache, [("eval", 19), ("crop1", 4), ("flip", 0), ("crop1", 11)], maps=maps)
        np.testing.assert_array_equal(found, expected[0])
        np.testing.assert_array_equal(geometry.box, expected[1].box)
    assert other.covers("flip", np.array([1, 2, 3]))
    assert not other.covers("flip", np.array([0]))


def test_a_cache_that_lacks_images_is_refused(folder):
    renamed = ["new.jpg", *scenes().names()[1:]]
    table = scenes().images.set_column(0, "image", pa.array(renamed))
    with pytest.raises(TagfillError, match="lacks 1 of the 20 images of dataset scenes; add them with 'tagfill feat"):
        FeatureCache.open(folder, scenes().replace(images=table, folder=None))


def test_a_view_that_grows_while_it_is_open_still_reads(copy, cache):
    opened = FeatureCache.open(copy)
    for name in ("pooled", "geometry", "rows"):
        path = copy / "views" / "flip" / f"{name}.npy"
        content = np.load(path)
        np.save(path, np.concatenate([content, content[:1]]))
    found, expected = (read(one, [("flip", 3), ("flip", 11)], maps=False)[0] for one in (opened, cache))
    np.testing.assert_array_equal(found, expected)


def test_changed_labels_do_not_touch_a_cache(folder):
    FeatureCache.open(folder, scenes().replace(annotations=scenes().rows().slice(3), folder=None))


def test_preprocessing_is_that_of_the_backbone(cache):
    assert cache.preprocessing == tiny().preprocessing


@pytest.fixture
def copy(tmp_path, folder):
    """A cache to damage."""
    return Path(shutil.copytree(folder, tmp_path / "copy"))


@pytest.mark.parametrize("name", ["00001.npy", "pooled.npy", "rows.npy", "geometry.npy"])
def test_a_truncated_file_is_found_on_opening(copy, name):
    path = copy / "views" / "flip" / name
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(TagfillError, match=rf"flip/{name} .* has [\d,]+ bytes instead of [\d,]+; delete the folder"):
        FeatureCache.open(copy)


def test_a_file_that_is_gone_is_found_on_opening(copy):
    (copy / "views" / "eval" / "00000.npy").unlink()
    with pytest.raises(TagfillError, match=r"00000\.npy of the feature cache is missing"):
        FeatureCache.open(copy)


def test_a_damaged_view_is_made_again(copy, folder):
    path = copy / "views" / "flip" / "00001.npy"
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.MonkeyPatch.context() as patch:
        small_shards(patch)
        extract(scenes(), tiny(), copy, views=VIEWS, dtype="float32", seed=3)
    assert files(copy) == files(folder)


def test_a_wrong_header_is_found_on_reading(copy):
    """A file of the right length that is none of ours."""
    path = copy / "views" / "flip" / "00001.npy"
    path.write_bytes(bytes(len(path.read_bytes())))
    with pytest.raises(TagfillError, match=r"00001\.npy of the feature cache cannot be read"):
        read(FeatureCache.open(copy), [("flip", 0)], maps=True)


def test_verifying_reads_every_byte(copy, folder):
    cache = FeatureCache.open(copy)
    assert verify_cache(cache) == sum(len(content) for name, content in files(copy).items() if name.endswith(".npy"))
    path = copy / "views" / "crop1" / "00001.npy"
    content = bytearray(path.read_bytes())
    content[-5] ^= 1
    path.write_bytes(content)
    with pytest.raises(TagfillError, match=r"crop1/00001\.npy .* does not contain the bytes that were written"):
        verify_cache(cache)


def bounded_features(rows: int = 70, channels: int = 6) -> np.ndarray:
    """As after a ReLU6, with channels of different size and one that is always 0."""
    drawn = np.random.default_rng(0).normal(0, 3, (rows, 2, 2, channels)) * np.linspace(0, 1, channels)
    return np.clip(drawn, 0, 6).astype(np.float32)


def test_each_channel_is_within_half_a_step_of_its_own():
    cells = bounded_features()
    stored, scale = quantize(cells)
    again = np.empty_like(cells)
    for row in range(len(cells)):
        dequantize(stored[row], scale, again[row])
    for channel in range(cells.shape[-1]):
        step = cells[..., channel].max() / 255
        assert np.abs(again[..., channel] - cells[..., channel]).max() <= step / 2 * 1.0001


def test_the_largest_value_of_a_channel_is_not_clipped():
    cells = bounded_features()
    stored, scale = quantize(cells)
    np.testing.assert_allclose((stored * scale).max((0, 1, 2)), cells.max((0, 1, 2)), rtol=1e-6)


def test_zeros_stay_zeros():
    stored, scale = quantize(np.zeros((3, 2, 2, 4), np.float32))
    assert not stored.any()
    assert np.isfinite(scale).all()


def test_features_within_their_bound_can_be_quantized():
    assert quantization_problem(bounded_features(), 6.0) is None
    assert quantization_error(bounded_features()) < 0.01


@pytest.mark.parametrize(
    ("change", "sentence"),
    [(lambda cells: cells * 2, "to 12, outside 0 to 6"), (lambda cells: cells - 1, "from -1 to 5, outside 0 to 6")],
)
def test_features_outside_their_bound_cannot_be_quantized(change, sentence):
    problem = quantization_problem(change(bounded_features()), 6.0)
    assert problem is not None
    assert sentence in problem


def test_features_with_too_coarse_steps_cannot_be_quantized():
    cells = np.full((4096, 1, 1, 1), 0.04, np.float32)
    cells[0] = 6.0
    problem = quantization_problem(cells, 6.0)
    assert problem is not None
    assert "8 bits would change them by" in problem
