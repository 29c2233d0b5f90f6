from __future__ import annotations

import numpy as np
import pytest
import torch

from memory.cases import single_positives
from tagfill.errors import TagfillError
from tagfill.memory import Memory, Neighbors, SavedPart, Shard
from tagfill.memory.neighbors import unit_rows

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


def test_saved_neighbours_come_back_and_are_ready():
    store, again = filled(np.arange(IMAGES)), Neighbors(LABELS, Shard(np.arange(IMAGES)), count=K).allocate()
    assert not again.ready
    again.load_state_dict(store.state_dict())
    assert again.ready
    for found, wanted in zip(again.read(torch.arange(IMAGES)), store.read(torch.arange(IMAGES)), strict=True):
        np.testing.assert_array_equal(found, wanted)


def test_neighbours_move_with_their_image():
    shards = [np.arange(0, IMAGES, 2), np.arange(1, IMAGES, 2)]
    parts = [SavedPart(Shard(shard), filled(shard).state_dict()) for shard in shards]
    moved = Neighbors(LABELS, Shard(np.arange(5)), count=K).allocate()
    moved.reshard(parts)
    np.testing.assert_array_equal(moved.read(torch.arange(5))[0], filled(np.arange(IMAGES)).read(torch.arange(5))[0])


def test_bytes_are_those_of_both_tables():
    store = filled(np.arange(9))
    assert store.bytes == store.index.nbytes + store.distance.nbytes


def test_fewer_other_images_than_asked_for_are_all_neighbours():
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
    assert not again.class_distances(prototype="mean", distance="cosine").ready  # nobody had asked for those
