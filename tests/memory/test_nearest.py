from __future__ import annotations

import sys

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from memory.cases import modest
from reference.soft_exposure import neighbours as reference
from tagfill.errors import TagfillError
from tagfill.memory import neighbors as module
from tagfill.memory.neighbors import nearest, unit_rows


def cloud(images: int, width: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).random((images, width)).astype(np.float32)


@modest
@given(images=st.integers(2, 30), seed=st.integers(0, 10**6), data=st.data())
def test_equals_a_loop_over_all_pairs(images, seed, data):
    """Few distinct features, so that many images are equally near."""
    features = np.random.default_rng(seed).integers(0, 3, (images, 3)).astype(np.float32)
    count = data.draw(st.integers(1, images - 1))
    found, distance = nearest(unit_rows(features), np.arange(images), count)
    unit = unit_rows(features).astype(np.float64)
    for n in range(images):
        expected = reference(unit.tolist(), n, count)
        similar = unit @ unit[n]
        assert similar[found[n]] == pytest.approx(similar[expected], abs=1e-7)
        assert n not in found[n]
        np.testing.assert_allclose(distance[n], np.clip(1 - similar[found[n]], 0, 2), atol=1e-6)
    clear = reference_with_gaps(unit, count)
    assert all(found[n].tolist() == clear[n] for n in clear)


def reference_with_gaps(unit: np.ndarray, count: int) -> dict[int, list[int]]:
    """Neighbours by exact fractions of the few that can be told apart or are the very same; others are left out."""
    similar = np.array([[float((a * b).sum()) for b in unit] for a in unit])
    result = {}
    for n, row in enumerate(similar):
        others = np.delete(np.arange(len(row)), n)
        gaps = np.abs(np.subtract.outer(row[others], row[others]))
        if not ((gaps > 0) & (gaps < 1e-9)).any():
            result[n] = sorted(others.tolist(), key=lambda m: (-row[m], m))[:count]
    return result


def test_ties_go_to_the_image_that_comes_first():
    features = np.array([[1, 0], [0, 2], [0, 1], [3, 0], [0, 7]], np.float32)
    found, distance = nearest(unit_rows(features), np.array([4, 0]), 3)
    assert found.tolist() == [[1, 2, 0], [3, 1, 2]]
    assert distance.tolist() == [[0, 0, 1], [0, 1, 1]]


def test_more_equals_than_candidates_are_told_apart_by_position():
    """Sixty images that look the same, in a shuffled crowd: the first ones are taken, whatever the blocks are."""
    features = cloud(200, 8)
    same = np.sort(np.random.default_rng(1).permutation(200)[:60])
    features[same] = features[same[0]]
    found, _ = nearest(unit_rows(features), same, 5)
    for row, query in zip(found, same, strict=True):
        assert row.tolist() == [image for image in same if image != query][:5]


@pytest.mark.parametrize("block", [1, 7, 64])
def test_the_size_of_blocks_does_not_matter(block, monkeypatch):
    unit = unit_rows(cloud(70, 16))
    whole = nearest(unit, np.arange(70), 6)
    monkeypatch.setattr(module, "_QUERIES", block)
    monkeypatch.setattr(module, "_IMAGES", block + 1)
    parts = nearest(unit, np.arange(70), 6)
    np.testing.assert_array_equal(parts[0], whole[0])
    np.testing.assert_array_equal(parts[1], whole[1])


def test_some_queries_get_what_all_get():
    unit, some = unit_rows(cloud(90, 5)), np.array([3, 88, 40])
    np.testing.assert_array_equal(nearest(unit, some, 4)[0], nearest(unit, np.arange(90), 4)[0][some])


def test_an_image_without_features_is_far_from_all():
    unit = unit_rows(np.array([[1, 1], [0, 0], [1, 2]], np.float32))
    found, distance = nearest(unit, np.array([1]), 2)
    assert found.tolist() == [[0, 2]]
    assert distance.tolist() == [[1, 1]]


def test_more_neighbours_than_images_are_refused():
    with pytest.raises(ValueError, match="3 images are too few for 3 neighbors"):
        nearest(unit_rows(cloud(3, 2)), np.arange(3), 3)


@pytest.mark.parametrize("images", [2, 40, 400])
def test_faiss_finds_the_same_in_small_data(images):
    unit = unit_rows(cloud(images, 12))
    count = min(10, images - 1)
    exact = nearest(unit, np.arange(images), count, search="exact")
    found = nearest(unit, np.arange(images), count, search="faiss")
    np.testing.assert_array_equal(found[0], exact[0])
    np.testing.assert_array_equal(found[1], exact[1])


def test_above_a_million_images_faiss_is_asked(monkeypatch):
    """Its absence is how the choice shows; a million is lowered to three."""
    monkeypatch.setattr(module, "MILLION", 3)
    monkeypatch.setitem(sys.modules, "faiss", None)
    nearest(unit_rows(cloud(3, 2)), np.arange(3), 1)
    with pytest.raises(TagfillError, match=r"Neighbors of 4 images need faiss; run: pip install 'tagfill"):
        nearest(unit_rows(cloud(4, 2)), np.arange(4), 1)
