from __future__ import annotations

import numpy as np
import pytest
import torch

from memory.cases import single_positives, task_of
from tagfill.contract import Batch, Prediction
from tagfill.images.geometry import Geometry
from tagfill.labels import LabelMatrix
from tagfill.losses import role
from tagfill.memory import Estimates, Memory, Shard
from tagfill.methods import create

IMAGES, CLASSES, FEATURES, LR, KAPPA = 11, 4, 5, 1e-2, 1.5
LABELS = single_positives(IMAGES, CLASSES)
INPUTS = torch.randn(IMAGES, FEATURES, generator=torch.Generator().manual_seed(1))
VISITS = [[0, 3, 7], [7, 1, 0], [2, 3, 10], [0, 1, 2], [5, 7, 9], [3, 0, 10], [8, 4, 6]]
BATCHES = [torch.tensor(rows) for rows in VISITS]


def whole(seed: int = 7, **options) -> Estimates:
    return Estimates(LABELS, Shard(np.arange(IMAGES)), seed=seed, **options).allocate()


def table(estimates: Estimates) -> torch.Tensor:
    return estimates.values.detach()


def labels_of(index: torch.Tensor) -> torch.Tensor:
    return torch.from_numpy(LABELS.rows(index.numpy()))


def test_unknown_entries_start_between_four_and_six_tenths():
    unknown = table(whole()).sigmoid()[torch.from_numpy(LABELS.dense() == -1)]
    assert 0.4 <= unknown.min() < 0.45
    assert 0.55 < unknown.max() <= 0.6


@pytest.mark.parametrize(("state", "start"), [(1, 5.293305), (0, -5.293305)], ids=["present", "absent"])
def test_observed_entries_start_near_certainty(state, start):
    known = table(whole())[torch.from_numpy(LABELS.dense() == state)]
    assert len(known) > 0
    assert known.tolist() == pytest.approx([start] * len(known), abs=1e-6)


def test_another_seed_starts_elsewhere():
    assert not torch.equal(table(whole(7)), table(whole(8)))


def joint_training() -> list[tuple[torch.Tensor, torch.Tensor]]:
    """Classifier and table after each step, both in one Adam on the one scalar of the paper."""
    classifier = linear()
    estimates = torch.nn.Parameter(table(whole()).clone())
    adam = torch.optim.Adam([{"params": classifier.parameters(), "lr": LR}, {"params": [estimates], "lr": 10 * LR}])
    after = []
    for index in BATCHES:
        adam.zero_grad()
        role(classifier(INPUTS[index]), labels_of(index), estimates[index], expected=KAPPA).backward()
        adam.step()
        after.append((estimates.detach().clone(), classifier.weight.detach().clone()))
    return after


def linear() -> torch.nn.Linear:
    torch.manual_seed(5)
    return torch.nn.Linear(FEATURES, CLASSES)


def test_training_apart_equals_the_published_joint_adam_bit_for_bit():
    """The table is stepped after the classifier, by its own optimiser, and both end where one Adam would bring them."""
    memory = Memory(LABELS, np.arange(IMAGES), seed=7)
    method = create("role")
    method.setup(task_of(memory, LABELS, expected=KAPPA, lr=LR, width=FEATURES))
    classifier = linear()
    adam = torch.optim.Adam(classifier.parameters(), lr=LR)
    for index, (estimates, weight) in zip(BATCHES, joint_training(), strict=True):
        batch = Batch(index, labels_of(index), INPUTS[index], Geometry.whole(len(index)))
        adam.zero_grad()
        logits = classifier(batch.inputs)
        torch.stack(list(method.loss(batch, Prediction(logits)).values())).sum().backward()
        adam.step()
        with torch.no_grad():
            method.observe(batch, Prediction(logits.detach()))
        assert torch.equal(memory.estimates().values, estimates)
        assert torch.equal(classifier.weight, weight)


def step(estimates: Estimates, index: torch.Tensor, number: int) -> None:
    """A gradient that depends on the image alone, so that shards see the rows that the whole sees."""
    gradient = torch.sin(index[:, None] + torch.arange(CLASSES) + float(number))
    estimates.step(index, gradient, lr=0.1)


def test_rows_outside_the_batch_keep_moving():
    estimates = whole()
    step(estimates, torch.tensor([2]), 0)
    before = table(estimates).clone()
    step(estimates, torch.tensor([5]), 1)
    assert not torch.equal(table(estimates)[2], before[2])


def test_rows_never_visited_stay():
    estimates = whole()
    before = table(estimates).clone()
    step(estimates, torch.tensor([2, 5]), 0)
    untouched = [row for row in range(IMAGES) if row not in (2, 5)]
    assert torch.equal(table(estimates)[untouched], before[untouched])


@pytest.mark.parametrize("world", [2, 3])
def test_shards_hold_the_rows_of_the_whole(world):
    every = whole()
    shards = [Shard(np.arange(rank, IMAGES, world)) for rank in range(world)]
    parts = [Estimates(LABELS, shard, seed=7).allocate() for shard in shards]
    for number, index in enumerate(BATCHES):
        step(every, index, number)
        for rank, part in enumerate(parts):
            step(part, index[index % world == rank], number)
    for shard, part in zip(shards, parts, strict=True):
        assert torch.equal(table(part), table(every)[shard.index])


@pytest.mark.parametrize("saved_after", [0, 3])
def test_saved_estimates_go_on_as_if_nothing_had_happened(saved_after):
    unbroken, again = whole(), whole(seed=99)
    for number, index in enumerate(BATCHES):
        if number == saved_after:
            again.load_state_dict({name: value.clone() for name, value in unbroken.state_dict().items()})
        if number >= saved_after:
            step(again, index, number)
        step(unbroken, index, number)
    assert torch.equal(table(again), table(unbroken))


def test_loading_does_not_tie_the_two_together():
    origin, again = whole(), whole()
    step(origin, BATCHES[0], 0)
    again.load_state_dict(origin.state_dict())
    step(again, BATCHES[1], 1)
    third = whole()
    third.load_state_dict(origin.state_dict())
    step(third, BATCHES[1], 1)
    assert torch.equal(table(third), table(again))


def test_bytes_count_table_and_moments():
    labels, shard = LabelMatrix.from_dense(np.full((6, 5), -1, dtype=np.int8)), Shard(np.arange(0, 6, 2))
    estimates = Estimates(labels, shard, seed=0).allocate()
    step_index = torch.tensor([0])
    estimates.step(step_index, torch.ones(1, 5), lr=0.1)
    tables = {tensor.data_ptr(): tensor.nbytes for tensor in estimates.state_dict().values() if tensor.ndim == 2}
    assert estimates.bytes == sum(tables.values())


def test_the_start_of_an_image_does_not_depend_on_the_others():
    part = Estimates(LABELS, Shard(np.array([4, 9])), seed=7).allocate()
    assert torch.equal(table(part), table(whole())[[4, 9]])
