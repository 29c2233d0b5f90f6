from __future__ import annotations

import numpy as np
import torch
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from memory.cases import modest, single_positives
from tagfill.memory import PseudoLabels, SavedPart, Shard

LABELS = single_positives(9, 3)
SHARD = Shard(np.array([1, 4, 5, 8]))


def test_there_is_nothing_at_first():
    labels = PseudoLabels(LABELS, SHARD).allocate()
    assert not labels.given.any()
    assert (labels.read(torch.tensor([4, 8])) == -1).all()


@modest
@given(
    first=arrays(np.bool_, (4, 3)),
    second=arrays(np.bool_, (4, 3)),
    asked=st.lists(st.sampled_from([1, 4, 5, 8]), max_size=6),
)
def test_reading_equals_a_table(first, second, asked):
    """Values are given twice; the later one stands."""
    soft = np.arange(12, dtype=np.float32).reshape(4, 3) / 16  # exact in half precision
    labels = PseudoLabels(LABELS, SHARD).allocate()
    labels.assign(torch.from_numpy(first), torch.from_numpy(soft))
    labels.assign(torch.from_numpy(second), 1.0)
    table = np.where(second, 1.0, np.where(first, soft, -1.0))
    expected = [table[[1, 4, 5, 8].index(image)].tolist() for image in asked]
    assert labels.read(torch.tensor(asked, dtype=torch.int64)).tolist() == expected


def test_everything_can_be_forgotten():
    labels = PseudoLabels(LABELS, SHARD).allocate()
    labels.assign(torch.ones(4, 3, dtype=torch.bool), 0.0)
    assert labels.given.all()
    labels.clear()
    assert not labels.given.any()


def filled(shard: Shard) -> PseudoLabels:
    """Values that depend on the image alone."""
    labels = PseudoLabels(LABELS, shard).allocate()
    values = torch.from_numpy(shard.index)[:, None] / 16 + torch.tensor([0.0, 0.125, 0.25])
    labels.assign(values > 0.2, values)
    return labels


def test_saved_labels_come_back():
    again = PseudoLabels(LABELS, SHARD).allocate()
    again.load_state_dict(filled(SHARD).state_dict())
    assert torch.equal(again.values, filled(SHARD).values)


def test_labels_move_with_their_image():
    parts = [Shard(np.arange(rank, 9, 2)) for rank in range(2)]
    saved = [SavedPart(part, filled(part).state_dict()) for part in parts]
    for rank in range(3):
        shard = Shard(np.arange(rank, 9, 3))
        moved = PseudoLabels(LABELS, shard).allocate()
        moved.reshard(saved)
        assert torch.equal(moved.values, filled(shard).values)


def test_bytes_are_those_of_the_table():
    assert PseudoLabels(LABELS, SHARD).bytes == PseudoLabels(LABELS, SHARD).allocate().values.nbytes
