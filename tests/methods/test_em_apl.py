from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import torch

from memory.cases import single_positives
from methods.cases import batch_of, maps_of, task_of
from tagfill.contract import Prediction
from tagfill.errors import TagfillError
from tagfill.labels import LabelMatrix
from tagfill.losses import entropy_maximization
from tagfill.memory import Memory
from tagfill.methods import create
from test_contract import ThreadRanks, Together

IMAGES, CLASSES = 20, 3
MANY = single_positives(IMAGES, CLASSES)


def predicting(answers, labels=MANY, shard=None):
    """Evaluation passes over a shard, answered with these logits."""

    def predict(split):
        assert split == "train"
        index = (np.arange(len(answers)) if shard is None else shard).tolist()
        for part in (index[:7], index[7:]):
            yield batch_of(part, labels), Prediction(answers[part])

    return predict


def started(answers, labels=MANY, epochs=10, **options):
    method = create("em-apl", {"em-apl": options})
    task = task_of(labels, predict=predicting(answers, labels), epochs=epochs)
    method.setup(task)
    return task, method


def reference(answers: list[torch.Tensor], labels: np.ndarray, count: list[int]) -> list[list[float]]:
    """Soft negatives after a pass with each of these logits: class by class, the lowest of those still unlabeled."""
    soft = [[-1.0] * labels.shape[1] for _ in labels]
    for logits in answers:
        scores = logits.sigmoid().half()
        for label in range(labels.shape[1]):
            free = [row for row in range(len(labels)) if labels[row, label] == -1 and soft[row][label] < 0]
            free.sort(key=lambda row, label=label: (scores[row, label].item(), row))
            for row in free[: count[label]]:
                soft[row][label] = scores[row, label].item()
    return soft


def draws(number: int) -> list[torch.Tensor]:
    generator = torch.Generator().manual_seed(1)
    return [torch.randn(IMAGES, CLASSES, generator=generator) for _ in range(number)]


def test_it_begins_as_entropy_maximisation():
    task, method = started(draws(1)[0])
    for epoch in range(1, 6):
        method.begin_epoch(epoch)
    batch, prediction = batch_of([0, 1, 2], MANY), maps_of([0, 1, 2])
    expected = entropy_maximization(prediction.logits, batch.labels, alpha=0.1, use_negatives=True)
    assert method.loss(batch, prediction) == {"em-apl": expected}
    assert len(method.decisions()) == 0
    assert not task.memory.pseudo_labels().given.any()


def test_after_the_warm_up_the_least_likely_labels_become_soft_negatives():
    """U_i unknown labels and T − t_w = 5 passes: ⌊0.9 U_i / 5⌋ a pass, each from the model as it is then."""
    answers = draws(5)
    current = answers[0].clone()
    task, method = started(current)
    unknown = IMAGES - MANY.known
    counts = [int(0.9 * count / 5) for count in unknown]
    assert min(counts) >= 1
    for number, epoch in enumerate(range(6, 11)):
        current.copy_(answers[number])
        method.begin_epoch(epoch)
        soft = reference(answers[: number + 1], MANY.dense(), counts)
        assert task.memory.pseudo_labels().values.tolist() == soft
        batch, prediction = batch_of([3, 0, 9], MANY), maps_of([3, 0, 9])
        expected = entropy_maximization(
            prediction.logits,
            batch.labels,
            soft_labels=torch.tensor(soft)[[3, 0, 9]],
            alpha=0.1,
            soft_weight=0.9,
            use_negatives=True,
        )
        assert method.loss(batch, prediction)["em-apl"] == expected


def test_decisions_are_the_soft_negatives_of_the_last_step():
    task, method = started(draws(1)[0])
    method.begin_epoch(6)
    method.loss(batch_of([3, 0, 9], MANY), maps_of([3, 0, 9]))
    decided = method.decisions()
    given = task.memory.pseudo_labels().given
    assert {(int(i), int(c)) for i, c in zip(decided.image, decided.label, strict=True)} == {
        (i, int(c)) for i in (3, 0, 9) for c in given[i].nonzero()
    }
    assert set(decided.value) <= {0}


def test_never_more_than_are_left():
    """Two images whose label is unknown and a count of one: the third pass finds nothing."""
    dense = np.array([[1], [-1], [-1], [0]], dtype=np.int8)
    answers = torch.tensor([[-30.0], [30.0], [30.0], [-30.0]])  # 1 − f is zero in half precision where it is unknown
    labels = LabelMatrix.from_dense(dense)
    task, method = started(answers, labels, epochs=2, warmup=1)
    for _ in range(4):
        method.begin_epoch(2)
    assert task.memory.pseudo_labels().given.flatten().tolist() == [False, True, True, False]


@pytest.mark.parametrize(("epochs", "warmup"), [(10, 10), (1, None), (5, 0)])
def test_a_warm_up_that_leaves_no_epoch_is_refused(epochs, warmup):
    with pytest.raises(TagfillError, match="soft negatives from the end of epoch"):
        started(draws(1)[0], epochs=epochs, warmup=warmup)


def test_the_table_is_announced():
    task, _ = started(draws(1)[0])
    assert task.memory.sizes() == {"pseudo_labels": 2 * IMAGES * CLASSES}


def test_pseudo_labels_come_back_after_loading():
    task, method = started(draws(1)[0])
    method.begin_epoch(6)
    again = task_of(MANY, epochs=10, memory=Memory(MANY, np.arange(IMAGES), seed=0, saved=task.memory.state_dict()))
    create("em-apl").setup(again)
    assert torch.equal(again.memory.pseudo_labels().values, task.memory.pseudo_labels().values)


@pytest.mark.parametrize("world", [2, 3])
def test_ranks_together_choose_what_one_would(world):
    """Each keeps a part of the images; the lowest scores of a class are those over all parts, ties included."""
    answers = draws(1)[0].round()  # many equal scores
    task, alone = started(answers)
    alone.begin_epoch(6)
    together = Together(world)

    def one(rank: int) -> tuple[np.ndarray, torch.Tensor]:
        shard = np.sort(np.random.default_rng(0).permutation(IMAGES)[rank::world])
        mine = task_of(
            MANY,
            epochs=10,
            shard=shard,
            ranks=ThreadRanks(rank, together),
            memory=Memory(MANY, shard, seed=0),
            predict=predicting(answers, shard=shard),
        )
        method = create("em-apl")
        method.setup(mine)
        method.begin_epoch(6)
        return shard, mine.memory.pseudo_labels().values

    with ThreadPoolExecutor(world) as pool:
        for shard, values in pool.map(one, range(world)):
            assert torch.equal(values, task.memory.pseudo_labels().values[shard])
