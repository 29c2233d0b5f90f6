from __future__ import annotations

import numpy as np
import torch
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from memory.cases import modest
from tagfill.memory import EntrySet, Shard

SHARD = Shard(np.array([1, 4, 5, 8]))


def test_nothing_is_in_the_set_at_first():
    assert not EntrySet(SHARD, 3).allocate().read(torch.tensor([4, 8])).any()


@modest
@given(mask=arrays(np.bool_, (4, 3)), asked=st.lists(st.sampled_from([1, 4, 5, 8]), max_size=6))
def test_reading_equals_a_dense_mask(mask, asked):
    entries = EntrySet(SHARD, 3).allocate()
    entries.replace([(0, torch.from_numpy(mask))])
    expected = [mask[[1, 4, 5, 8].index(image)].tolist() for image in asked]
    assert entries.read(torch.tensor(asked, dtype=torch.int64)).tolist() == expected


def test_replacing_forgets_what_was_there():
    entries = EntrySet(SHARD, 3).allocate()
    entries.replace([(0, torch.ones(4, 3, dtype=torch.bool))])
    entries.replace([(0, torch.zeros(4, 3, dtype=torch.bool))])
    assert len(entries) == 0


def test_saved_entries_come_back():
    entries, again = EntrySet(SHARD, 3).allocate(), EntrySet(SHARD, 3).allocate()
    entries.replace([(0, torch.tensor([[1, 0, 1], [0, 0, 0], [0, 1, 0], [0, 0, 1]], dtype=torch.bool))])
    again.load_state_dict(entries.state_dict())
    assert torch.equal(again.read(torch.from_numpy(SHARD.index)), entries.read(torch.from_numpy(SHARD.index)))
