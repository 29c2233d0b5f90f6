"""Estimates of a few classes per image."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from memory.cases import single_positives, task_of
from reference import kept_estimates as reference
from tagfill.contract import Batch, Prediction
from tagfill.errors import TagfillError
from tagfill.images.geometry import Geometry
from tagfill.labels import LabelMatrix
from tagfill.losses import role
from tagfill.memory import Estimates, Memory, SavedPart, Shard
from tagfill.methods import create

IMAGES, CLASSES, K, KAPPA, LR = 8, 6, 3, 1.5, 1e-2
LABELS = single_positives(IMAGES, CLASSES)
EVERYBODY = torch.arange(IMAGES)
VISITS = [[0, 3, 7], [7, 1, 0], [2, 3, 6], [0, 1, 2], [4, 7, 3], [3, 0, 1]]


def logits_of(number: int) -> torch.Tensor:
    return torch.randn(len(VISITS[number]), CLASSES, generator=torch.Generator().manual_seed(number))


def table(shard: np.ndarray | None = None, *, count: int | None = K, seed: int = 7, **options) -> Estimates:
    kept = Shard(np.arange(IMAGES) if shard is None else shard)
    return Estimates(LABELS, kept, seed=seed, count=count, **options).allocate()


def visit(estimates: Estimates, number: int, images: list[int] | None = None) -> None:
    """A gradient that depends on the image alone, so that shards see the rows that the whole sees."""
    mine = [at for at, n in enumerate(VISITS[number]) if images is None or n in images]
    index = torch.tensor(VISITS[number])[mine]
    estimates.keep(index, logits_of(number)[mine])
    estimates.step(index, torch.sin(index[:, None] + torch.arange(CLASSES) + float(number)), lr=0.1)


def method_of(memory: Memory, **options):
    method = create("role", {"role": options})
    method.setup(task_of(memory, LABELS, expected=KAPPA, lr=LR))
    return method


def batch_of(number: int) -> Batch:
    index = torch.tensor(VISITS[number])
    labels = torch.from_numpy(LABELS.rows(index.numpy()))
    return Batch(index, labels, torch.zeros(len(index), 1), Geometry.whole(len(index)))


def test_training_equals_a_loop_over_entries():
    memory = Memory(LABELS, np.arange(IMAGES), seed=7)
    method = method_of(memory, classes_per_image=K)
    estimates = memory.estimates(classes_per_image=K)
    start = estimates.read(EVERYBODY).tolist()
    for number in range(len(VISITS)):
        method.observe(batch_of(number), Prediction(logits_of(number)))
    visits = [(images, logits_of(number).tolist()) for number, images in enumerate(VISITS)]
    expected = reference.trained(start, LABELS.dense().tolist(), visits, K, KAPPA, 10 * LR)
    torch.testing.assert_close(estimates.read(EVERYBODY), torch.tensor(expected), rtol=1e-3, atol=1e-4)
    assert int((estimates.read(EVERYBODY) < -11).sum()) == 7 * (CLASSES - K)  # image 5 was never visited


def test_the_classifier_is_taught_what_the_table_shows():
    memory = Memory(LABELS, np.arange(IMAGES), seed=7)
    method = method_of(memory, classes_per_image=K)
    for number in (0, 1):
        method.observe(batch_of(number), Prediction(logits_of(number)))
    batch, prediction = batch_of(0), Prediction(logits_of(3))
    estimates = memory.estimates(classes_per_image=K).read(batch.index)
    expected = role(prediction.logits, batch.labels, estimates, expected=KAPPA)
    assert float(sum(method.loss(batch, prediction).values())) == pytest.approx(float(expected))


def test_before_its_first_visit_an_image_shows_what_all_classes_start_with():
    assert torch.equal(table().read(EVERYBODY), table(count=None).read(EVERYBODY))


@pytest.mark.parametrize("optimizer", ["dense_adam", "sparse_adam", "sgd"])
def test_keeping_all_classes_is_the_dense_table_bit_for_bit(optimizer):
    few, every = table(count=CLASSES, optimizer=optimizer), table(count=None, optimizer=optimizer)
    for number in range(len(VISITS)):
        visit(few, number)
        visit(every, number)
    assert torch.equal(few.read(EVERYBODY), every.read(EVERYBODY))


@pytest.mark.parametrize("optimizer", ["dense_adam", "sparse_adam", "sgd"])
def test_given_the_same_gradients_kept_classes_move_as_in_the_dense_table(optimizer):
    few, every = table(optimizer=optimizer), table(count=None, optimizer=optimizer)
    for number in range(len(VISITS)):
        visit(few, number)
        visit(every, number)
    kept = few.classes[few.classes[:, 0] >= 0].long()
    seen = few.classes[:, 0] >= 0
    assert torch.equal(few.values[seen], every.values[seen].gather(1, kept))


def test_as_many_classes_as_there_are_is_all_of_them():
    assert Memory(LABELS, np.arange(3), seed=0).estimates(classes_per_image=CLASSES).classes is None


def test_annotated_classes_are_kept():
    estimates = table()
    estimates.keep(EVERYBODY, torch.where(torch.from_numpy(LABELS.dense() == 1), -9.0, 1.0))
    positive = torch.from_numpy(np.argmax(LABELS.dense() == 1, axis=1))
    assert (estimates.classes == positive[:, None]).any(1).all()


def test_more_annotated_classes_than_are_kept_are_refused():
    labels = LabelMatrix.from_dense(np.ones((2, 5), dtype=np.int8))
    with pytest.raises(TagfillError, match="The estimates are to keep 3 classes per image, but an image has 5"):
        Memory(labels, np.arange(2), seed=0).estimates(classes_per_image=3)


@pytest.mark.parametrize("saved_after", [0, 3])
def test_saved_estimates_go_on_as_if_nothing_had_happened(saved_after):
    unbroken, again = table(), table()
    for number in range(len(VISITS)):
        if number == saved_after:
            again.load_state_dict({name: value.clone() for name, value in unbroken.state_dict().items()})
        if number >= saved_after:
            visit(again, number)
        visit(unbroken, number)
    assert torch.equal(again.read(EVERYBODY), unbroken.read(EVERYBODY))


def test_shards_hold_the_rows_of_the_whole_and_move_with_their_image():
    every, shards = table(), [np.arange(rank, IMAGES, 2) for rank in range(2)]
    parts = [table(shard) for shard in shards]
    for number in range(3):
        visit(every, number)
        for shard, part in zip(shards, parts, strict=True):
            visit(part, number, shard.tolist())
    moved = table()
    moved.reshard(
        [SavedPart(Shard(s), part.state_dict(), dict[str, Path]()) for s, part in zip(shards, parts, strict=True)]
    )
    for estimates in (every, moved):
        visit(estimates, 3)
    assert torch.equal(moved.read(EVERYBODY), every.read(EVERYBODY))


@pytest.mark.parametrize("optimizer", ["dense_adam", "sparse_adam", "sgd"])
def test_bytes_are_those_of_all_tables(optimizer):
    estimates = table(optimizer=optimizer)
    visit(estimates, 0)
    kept = sum(tensor.nbytes for tensor in estimates.state_dict().values() if tensor.ndim)
    assert estimates.bytes == kept
