"""The table of estimates under its other optimisers, and at the beginning of another stage."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from memory.cases import single_positives
from tagfill.memory import Estimates, Memory, SavedPart, Shard

IMAGES, CLASSES = 7, 3
LABELS = single_positives(IMAGES, CLASSES)
VISITS = [torch.tensor(rows) for rows in ([0, 3, 6], [3, 1], [6, 0, 2], [3, 4], [0, 6])]
ROW_WISE = ["sparse_adam", "sgd"]


def whole(optimizer: str, seed: int = 7, index: np.ndarray | None = None) -> Estimates:
    return Estimates(
        LABELS, Shard(np.arange(IMAGES) if index is None else index), seed=seed, optimizer=optimizer
    ).allocate()


def gradient(index: torch.Tensor, number: int) -> torch.Tensor:
    return torch.sin(index[:, None] + torch.arange(CLASSES) + float(number))


def lazy_adam(start: list[list[float]], lr: float) -> list[list[float]]:
    """Adam with b1 = 0.9 and b2 = 0.999, entry by entry: rows outside of a batch keep value and moments."""
    table = [list(row) for row in start]
    first, second = ([[0.0] * CLASSES for _ in table] for _ in range(2))
    for number, index in enumerate(VISITS):
        slopes = gradient(index, number).tolist()
        for row, slope in zip(index.tolist(), slopes, strict=True):
            for label, g in enumerate(slope):
                first[row][label] = 0.9 * first[row][label] + 0.1 * g
                second[row][label] = 0.999 * second[row][label] + 0.001 * g * g
                mean = first[row][label] / (1 - 0.9 ** (number + 1))
                spread = (second[row][label] / (1 - 0.999 ** (number + 1))) ** 0.5
                table[row][label] -= lr * mean / (spread + 1e-8)
    return table


def test_sparse_adam_equals_the_formula_on_the_rows_of_a_batch():
    estimates = whole("sparse_adam")
    start = estimates.values.tolist()
    for number, index in enumerate(VISITS):
        estimates.step(index, gradient(index, number), lr=0.1)
    torch.testing.assert_close(estimates.values.detach(), torch.tensor(lazy_adam(start, 0.1)), rtol=1e-4, atol=1e-5)


def test_sgd_moves_against_the_gradient():
    estimates = whole("sgd")
    start = estimates.values.detach().clone()
    estimates.step(VISITS[0], gradient(VISITS[0], 0), lr=0.1)
    start[VISITS[0]] -= 0.1 * gradient(VISITS[0], 0)
    torch.testing.assert_close(estimates.values.detach(), start)


@pytest.mark.parametrize("optimizer", ROW_WISE)
def test_rows_outside_the_batch_stand_still(optimizer):
    estimates = whole(optimizer)
    estimates.step(torch.tensor([2]), gradient(torch.tensor([2]), 0), lr=0.1)
    before = estimates.values.detach().clone()
    estimates.step(torch.tensor([5]), gradient(torch.tensor([5]), 1), lr=0.1)
    still = [row for row in range(IMAGES) if row != 5]
    assert torch.equal(estimates.values[still], before[still])


@pytest.mark.parametrize("optimizer", ROW_WISE)
@pytest.mark.parametrize("saved_after", [0, 3])
def test_saved_estimates_go_on_as_if_nothing_had_happened(optimizer, saved_after):
    unbroken, again = whole(optimizer), whole(optimizer, seed=99)
    for number, index in enumerate(VISITS):
        if number == saved_after:
            again.load_state_dict({name: value.clone() for name, value in unbroken.state_dict().items()})
        if number >= saved_after:
            again.step(index, gradient(index, number), lr=0.1)
        unbroken.step(index, gradient(index, number), lr=0.1)
    assert torch.equal(again.values, unbroken.values)


@pytest.mark.parametrize("optimizer", ROW_WISE)
def test_estimates_move_with_their_image(optimizer):
    everybody, parts = torch.arange(IMAGES), [np.arange(rank, IMAGES, 2) for rank in range(2)]
    saved = []
    for part in parts:
        estimates, index = whole(optimizer, index=part), torch.from_numpy(part)
        estimates.step(index, gradient(index, 0), lr=0.1)
        saved.append(SavedPart(Shard(part), estimates.state_dict()))
    moved, expected = whole(optimizer, seed=99), whole(optimizer)
    moved.reshard(saved)
    expected.step(everybody, gradient(everybody, 0), lr=0.1)
    for estimates in (moved, expected):
        estimates.step(everybody, gradient(everybody, 1), lr=0.1)
    assert torch.equal(moved.values, expected.values)


@pytest.mark.parametrize(("optimizer", "tables"), [("dense_adam", 3), ("sparse_adam", 3), ("sgd", 1)])
def test_bytes_count_what_the_optimiser_keeps(optimizer, tables):
    estimates = whole(optimizer)
    estimates.step(VISITS[0], gradient(VISITS[0], 0), lr=0.1)
    kept = [estimates.values, *estimates.state_dict().values()]
    found = {tensor.data_ptr(): tensor.nbytes for tensor in kept if tensor.shape == estimates.values.shape}
    assert estimates.bytes == sum(found.values())
    assert len(found) == tables


def extreme(memory: Memory) -> Estimates:
    """A table that is certain of much, and an optimiser that has gathered momentum."""
    estimates = memory.estimates()
    for number, index in enumerate(VISITS):
        estimates.step(index, gradient(index, number), lr=10.0)
    return estimates


def test_a_new_stage_begins_with_the_bounded_probabilities_and_no_momentum():
    """φ = logit(clip(q, 1e-5, 1 − 1e-5)); a step without a gradient then moves nothing."""
    memory = Memory(LABELS, np.arange(IMAGES), seed=7)
    estimates = extreme(memory)
    before = estimates.values.detach().double().clone()
    memory.begin_stage()
    clipped = before.sigmoid().clamp(1e-5, 1 - 1e-5).logit().float()
    torch.testing.assert_close(estimates.values.detach(), clipped, rtol=1e-4, atol=1e-5)
    assert before.abs().max() > 12
    estimates.step(torch.tensor([0]), torch.zeros(1, CLASSES), lr=1.0)
    torch.testing.assert_close(estimates.values.detach(), clipped, rtol=1e-4, atol=1e-5)


def test_the_same_from_what_the_best_epoch_saved():
    one = Memory(LABELS, np.arange(IMAGES), seed=7)
    extreme(one)
    saved = {name: value.clone() for name, value in one.state_dict().items()}
    one.begin_stage()
    warm = Memory(LABELS, np.arange(IMAGES), seed=7, saved=saved, warm=True).estimates()
    assert torch.equal(warm.values, one.estimates().values)


def test_a_run_that_is_resumed_keeps_its_momentum():
    one = Memory(LABELS, np.arange(IMAGES), seed=7)
    estimates = extreme(one)
    resumed = Memory(LABELS, np.arange(IMAGES), seed=7, saved=one.state_dict()).estimates()
    for table in (estimates, resumed):
        table.step(torch.tensor([0]), torch.zeros(1, CLASSES), lr=1.0)
    assert torch.equal(resumed.values, estimates.values)


def test_a_stage_may_ask_for_a_table_that_the_one_before_did_not_have():
    Memory(LABELS, np.arange(IMAGES), seed=7, saved={}, warm=True).estimates()
