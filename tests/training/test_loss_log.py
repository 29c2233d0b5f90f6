"""Losses of an epoch: read together, summed, and saved within the epoch."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from tagfill.contract import Decisions, Ranks
from tagfill.training.loss_log import PendingLoss, Totals, merge_counts, read_losses


def pending(step: int, *values: float, names: tuple[str, ...] | None = ("a", "b")) -> PendingLoss:
    return PendingLoss(step, 1.0, torch.tensor([step]), names, torch.tensor(values))


def test_losses_of_many_steps_are_read_with_their_names() -> None:
    waiting = [pending(3, 1.0, 2.0), pending(4, 5.0, names=("c",)), pending(4, 0.5, names=None)]

    first, second, norm = read_losses(waiting)

    assert (first.step, first.terms, second.terms) == (3, {"a": 1.0, "b": 2.0}, {"c": 5.0})
    assert (norm.is_norm, norm.terms) == (True, {"norm": 0.5})
    assert not waiting
    assert read_losses(waiting) == []


def test_a_term_that_is_not_finite_is_named() -> None:
    fine, bad = read_losses([pending(1, 0.0, 1.0), pending(2, 0.0, float("nan"))])

    assert (fine.not_finite, bad.not_finite) == (None, "b")


def decided(kinds: list[str]) -> Decisions:
    return Decisions(np.arange(len(kinds)), np.arange(len(kinds)), np.array(kinds), np.zeros(len(kinds), np.int8))


def test_means_weigh_micro_batches_by_their_images() -> None:
    totals = Totals()
    totals.add({"a": 1.0, "b": 4.0}, 3)
    totals.add({"a": 5.0, "b": 0.0}, 1)

    assert totals.means(Ranks()) == {"a": 2.0, "b": 3.0}


@pytest.mark.parametrize("kinds", [None, [], ["rejected"], ["flipped", "rejected", "flipped"]])
def test_totals_come_back_from_a_checkpoint(kinds: list[str] | None) -> None:
    totals = Totals()
    totals.add({"a": 1 / 3}, 7)
    if kinds is not None:
        totals.add_decisions(decided(kinds))

    assert Totals.from_state(totals.state_dict()) == totals


def test_decisions_of_ranks_add_up() -> None:
    assert merge_counts([None, None]) is None
    assert merge_counts([None, {}]) == {}
    assert merge_counts([{"rejected": 2}, {"flipped": 1, "rejected": 3}]) == {"flipped": 1, "rejected": 5}
