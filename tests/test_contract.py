from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from reference.ranking import top_per_class
from tagfill.contract import Ranks

TIED = [0.0, 0.25, 0.5, 0.5009765625, 1.0]  # two of them are adjacent in half precision


class Together:
    """The sums of several ranks that run as threads of this process."""

    def __init__(self, world: int) -> None:
        self.barrier = threading.Barrier(world)
        self.parts: list[torch.Tensor | None] = [None] * world

    def sum(self, rank: int, values: torch.Tensor) -> torch.Tensor:
        self.parts[rank] = values
        self.barrier.wait(timeout=20)
        total = torch.stack([part for part in self.parts if part is not None]).sum(0)
        self.barrier.wait(timeout=20)
        return total


class ThreadRanks(Ranks):
    def __init__(self, rank: int, together: Together) -> None:
        self.rank, self.world, self._together = rank, len(together.parts), together

    def sum(self, values: torch.Tensor) -> torch.Tensor:
        return self._together.sum(self.rank, values)


@st.composite
def rankings(draw):
    images, classes = draw(st.integers(1, 12)), draw(st.integers(1, 4))
    values = [[draw(st.sampled_from(TIED)) for _ in range(classes)] for _ in range(images)]
    index = draw(st.permutations(range(3, 3 + 2 * images, 2)))
    counts = [draw(st.integers(0, images)) for _ in range(classes)]
    return values, list(index), counts


def halves(values: list[list[float]]) -> torch.Tensor:
    return torch.tensor(values, dtype=torch.float16)


@settings(max_examples=60, deadline=None)
@given(case=rankings())
def test_top_per_class_equals_sorting(case):
    values, index, counts = case
    chosen = Ranks().top_per_class(halves(values), torch.tensor(index), torch.tensor(counts))
    assert chosen.tolist() == top_per_class(values, index, counts)


def test_any_half_precision_score_is_ranked_by_its_value():
    values = torch.rand(300, 5, generator=torch.Generator().manual_seed(0)).half()
    values[::7] = values[::7] / 4096  # subnormal ones too
    counts = torch.tensor([0, 1, 37, 299, 300])
    chosen = Ranks().top_per_class(values, torch.arange(300), counts)
    assert chosen.tolist() == top_per_class(values.tolist(), list(range(300)), counts.tolist())


@pytest.mark.parametrize("world", [2, 3])
@settings(max_examples=25, deadline=None)
@given(case=rankings())
def test_several_ranks_choose_the_same_as_one(world, case):
    values, index, counts = case
    every = Ranks().top_per_class(halves(values), torch.tensor(index), torch.tensor(counts))
    together = Together(world)

    def share(rank: int) -> torch.Tensor:
        rows = slice(rank, None, world)
        mine = halves(values)[rows], torch.tensor(index)[rows], torch.tensor(counts)
        return ThreadRanks(rank, together).top_per_class(*mine)

    with ThreadPoolExecutor(world) as threads:
        parts = list(threads.map(share, range(world)))
    for rank, part in enumerate(parts):
        assert torch.equal(part, every[rank::world])


def test_nothing_is_chosen_where_nothing_is_wanted():
    chosen = Ranks().top_per_class(torch.ones(4, 2).half(), torch.arange(4), torch.tensor([0, 4]))
    assert chosen.sum(0).tolist() == [0, 4]


def test_a_single_process():
    values = torch.arange(3)
    ranks = Ranks()
    assert (ranks.rank, ranks.world) == (0, 1)
    assert torch.equal(ranks.sum(values), values)
    assert [part.tolist() for part in ranks.gather(values)] == [[0, 1, 2]]


def test_positions_up_to_2_to_the_31_are_distinct():
    index = torch.from_numpy(np.array([2**31 - 1, 2**31 - 2], dtype=np.int64))
    chosen = Ranks().top_per_class(torch.ones(2, 1).half(), index, torch.tensor([1]))
    assert chosen.flatten().tolist() == [False, True]
