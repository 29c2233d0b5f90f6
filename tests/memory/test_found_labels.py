from __future__ import annotations

import numpy as np
import pytest
import torch

from tagfill.errors import TagfillError
from tagfill.labels import LabelMatrix
from tagfill.memory import FoundLabels, Memory, SavedPart, Shard

LABELS = LabelMatrix.from_dense(np.full((4, 3), -1, np.int8))
FOUND = (
    np.array([3, 0, 3, 2]),
    np.array([1, 2, 0, 1]),
    np.array([1, 0, 0, 1], np.int8),
    np.array([7, 0, 3, 5], np.int16),
)


def filled(index: list[int]) -> FoundLabels:
    store = FoundLabels(Shard(np.array(index)), 3, limit=3).allocate()
    store.replace(*FOUND)
    return store


def test_labels_and_cells_of_images_in_any_order():
    labels, cells = filled([0, 1, 2, 3]).read(torch.tensor([3, 1, 0]))
    assert labels.tolist() == [[0, 1, -1], [-1, -1, -1], [-1, -1, 0]]
    assert cells[0].tolist() == [3, 7, 0]


def test_a_rank_keeps_what_is_about_its_images():
    assert len(filled([0, 2])) == 2
    assert filled([2]).read(torch.tensor([2]))[0].tolist() == [[-1, 1, -1]]


def test_state_comes_back():
    saved, empty = filled([0, 1, 2, 3]).state_dict(), FoundLabels(Shard(np.arange(4)), 3, limit=3).allocate()
    assert not empty.made
    empty.load_state_dict(saved)
    assert empty.made
    assert all(np.array_equal(saved[name], empty.state_dict()[name]) for name in saved)


def test_resharding_moves_labels_with_their_images():
    parts = [SavedPart(Shard(np.array(index)), filled(index).state_dict()) for index in ([0, 3], [1, 2])]
    store = FoundLabels(Shard(np.array([2, 3])), 3, limit=3).allocate()
    store.reshard(parts)
    assert store.made
    assert store.read(torch.tensor([2, 3]))[0].tolist() == filled([2, 3]).read(torch.tensor([2, 3]))[0].tolist()


def test_it_says_what_it_takes_before_it_is_made():
    assert FoundLabels(Shard(np.arange(10)), 5000, limit=100).bytes == 11 * 1000
    with pytest.raises(TagfillError, match="'found_labels' takes"):
        Memory(LABELS, np.arange(len(LABELS)), seed=0, budget=10).found_labels(limit=100)
