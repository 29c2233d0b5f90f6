from __future__ import annotations

import sys

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from memory.cases import modest, single_positives
from reference.soft_exposure import class_distances as class_reference
from reference.soft_exposure import neighbors as reference
from tagfill.errors import TagfillError
from tagfill.labels import LabelMatrix
from tagfill.memory import ClassDistances, Memory, Neighbors, SavedPart, Shard
from tagfill.memory import neighbors as module
from tagfill.memory.neighbors import class_prototypes, nearest, prototype_distances, unit_rows


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


def test_more_equals_than_candidates_are_ordered_by_position():
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


def test_more_neighbors_than_images_are_refused():
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


IMAGES, K = 23, 4
LABELS = single_positives(IMAGES, 3)
UNIT = unit_rows(np.random.default_rng(0).random((IMAGES, 6)))


def filled(shard: np.ndarray) -> Neighbors:
    store = Neighbors(LABELS, Shard(shard), count=K).allocate()
    store.fill(UNIT)
    return store


def test_shards_hold_the_rows_of_the_whole():
    every, mine = filled(np.arange(IMAGES)), np.array([20, 3, 11])
    for found, wanted in zip(
        filled(mine).read(torch.from_numpy(mine)), every.read(torch.from_numpy(mine)), strict=True
    ):
        np.testing.assert_array_equal(found, wanted)


def test_loaded_neighbors_are_ready():
    store, again = filled(np.arange(IMAGES)), Neighbors(LABELS, Shard(np.arange(IMAGES)), count=K).allocate()
    assert not again.ready
    again.load_state_dict(store.state_dict())
    assert again.ready
    for found, wanted in zip(again.read(torch.arange(IMAGES)), store.read(torch.arange(IMAGES)), strict=True):
        np.testing.assert_array_equal(found, wanted)


def test_neighbors_move_with_their_image():
    shards = [np.arange(0, IMAGES, 2), np.arange(1, IMAGES, 2)]
    parts = [SavedPart(Shard(shard), filled(shard).state_dict()) for shard in shards]
    moved = Neighbors(LABELS, Shard(np.arange(5)), count=K).allocate()
    moved.reshard(parts)
    np.testing.assert_array_equal(moved.read(torch.arange(5))[0], filled(np.arange(IMAGES)).read(torch.arange(5))[0])


def test_bytes_are_those_of_both_tables():
    store = filled(np.arange(9))
    assert store.bytes == store.index.nbytes + store.distance.nbytes


def test_with_few_images_all_others_are_neighbors():
    store = Neighbors(single_positives(3, 2), Shard(np.arange(3)), count=10).allocate()
    store.fill(UNIT[:3])
    assert store.read(torch.tensor([1]))[0].tolist() == [sorted([0, 2], key=lambda n: -float(UNIT[n] @ UNIT[1]))]


def test_memory_states_their_bytes_and_refuses_them_above_the_budget():
    memory = Memory(LABELS, np.arange(IMAGES), seed=0, budget=8 * IMAGES * K + 4 * 9)
    memory.neighbors(count=K), memory.class_distances(prototype="median", distance="cosine")
    assert memory.sizes() == {"neighbours": 8 * IMAGES * K, "class_distances": 4 * 9}
    with pytest.raises(TagfillError, match="'neighbours' takes"):
        Memory(LABELS, np.arange(IMAGES), seed=0, budget=8 * IMAGES * K - 1).neighbors(count=K)


def test_what_was_saved_is_not_found_again():
    memory = Memory(LABELS, np.arange(IMAGES), seed=0)
    memory.neighbors(count=K).fill(UNIT)
    again = Memory(LABELS, np.arange(IMAGES), seed=0, saved=memory.state_dict())
    assert again.neighbors(count=K).ready
    assert not again.class_distances(prototype="mean", distance="cosine").ready  # was not saved


@pytest.mark.parametrize("kind", ["median", "mean"])
@pytest.mark.parametrize("distance", ["cosine", "euclidean"])
@modest
@given(
    features=arrays(np.float32, (7, 3), elements=st.integers(0, 4).map(float)),
    labels=arrays(np.int8, (7, 4), elements=st.sampled_from([-1, 0, 1])),
)
def test_equals_a_loop_over_classes(kind, distance, features, labels):
    psi, defined = class_prototypes(unit_rows(features), LabelMatrix.from_dense(labels), kind)
    found = prototype_distances(psi, defined, distance)
    expected = class_reference(features.tolist(), labels.tolist(), kind, distance)
    for a in range(4):
        for b in range(4):
            if a != b:
                assert found[a, b] == pytest.approx(expected[a][b], abs=2e-4 if distance == "euclidean" else 1e-6)


def test_a_class_without_positives_is_at_distance_one_from_all():
    labels = LabelMatrix.from_dense(np.array([[1, 0, -1], [1, 0, 1]]))
    found = prototype_distances(*class_prototypes(unit_rows(np.array([[1.0, 0], [1.0, 0.1]])), labels))
    assert found[1].tolist() == [1, 1, 1]
    assert found[0, 2] < 0.01


def test_large_classes_are_taken_in_parts(monkeypatch):
    unit = unit_rows(np.random.default_rng(0).random((40, 9)))
    labels = LabelMatrix.from_dense(np.ones((40, 1), dtype=np.int8))
    whole, _ = class_prototypes(unit, labels)
    monkeypatch.setattr(module, "_VALUES", 100)
    np.testing.assert_array_equal(class_prototypes(unit, labels)[0], whole)
    np.testing.assert_array_equal(whole[0], np.median(unit, axis=0))


def test_saved_distances_come_back_on_any_rank():
    labels = LabelMatrix.from_dense(np.eye(3, dtype=np.int8) * 2 - 1)
    store = ClassDistances(Shard(np.arange(3)), 3).allocate()
    store.fill(unit_rows(np.random.default_rng(1).random((3, 4))), labels, prototype="mean", distance="cosine")
    again, moved = ClassDistances(Shard(np.arange(3)), 3).allocate(), ClassDistances(Shard(np.arange(3)), 3).allocate()
    again.load_state_dict(store.state_dict())
    moved.reshard([SavedPart(Shard(np.arange(2)), store.state_dict())])
    for one in (again, moved):
        assert one.ready
        assert one.values.tolist() == store.values.tolist()
