from __future__ import annotations

import pytest
import torch

from tagfill.losses import reduce


@pytest.mark.parametrize(
    ("reduction", "expected"), [("mean", 21 / 6), ("sum", 21), ("batchmean", 21 / 2), ("known", 21 / 4)]
)
def test_each_divides_by_its_own_count(reduction, expected):
    loss = torch.tensor([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]])
    labels = torch.tensor([[1, 0, -1], [-1, 0, 0]])
    assert reduce(loss, labels, reduction).item() == pytest.approx(expected)


def test_none_is_the_loss_itself():
    loss = torch.ones(2, 3)
    assert reduce(loss, torch.ones(2, 3), "none") is loss


def test_known_of_maps_counts_their_cells():
    maps = torch.ones(2, 3, 4, 4)
    labels = torch.tensor([[1, 0, -1], [-1, -1, -1]])
    assert reduce(maps, labels, "known").item() == 2 * 3 * 16 / (2 * 16)


def test_nothing_known_divides_by_one():
    assert reduce(torch.ones(1, 2), torch.tensor([[-1, -1]]), "known").item() == 2


def test_unknown_name_is_refused_with_the_known_ones():
    with pytest.raises(ValueError, match=r"no reduction 'average'. Known: mean, sum"):
        reduce(torch.ones(1, 1), torch.ones(1, 1), "average")
