from __future__ import annotations

import numpy as np
import pytest
import torch

from tagfill.memory import Shard


def test_rows_follow_the_ascending_order_of_positions():
    assert Shard(np.array([7, 2, 9])).rows(torch.tensor([9, 2, 7])).tolist() == [2, 0, 1]


def test_the_same_image_may_be_asked_for_twice():
    assert Shard(np.array([2, 7])).rows(torch.tensor([7, 7])).tolist() == [1, 1]


@pytest.mark.parametrize("foreign", [0, 5, 12], ids=["before", "between", "after"])
def test_images_of_another_process_are_refused(foreign):
    with pytest.raises(IndexError, match="kept by another process"):
        Shard(np.array([2, 7, 9])).rows(torch.tensor([7, foreign]))


def test_an_empty_shard_refuses_every_image():
    with pytest.raises(IndexError):
        Shard(np.array([], dtype=np.int64)).rows(torch.tensor([0]))


def test_an_empty_batch_has_no_rows():
    assert Shard(np.array([3])).rows(torch.tensor([], dtype=torch.int64)).tolist() == []
