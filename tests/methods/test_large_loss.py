from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
import torch

from memory.cases import single_positives
from methods.cases import DENSE, LABELS, batch_of, task_of, visit
from tagfill.contract import Prediction
from tagfill.errors import TagfillError
from tagfill.labels import LabelMatrix
from tagfill.losses import assume_negative, large_loss, large_loss_mask
from tagfill.memory import Memory
from tagfill.methods import create

NAMES = ("ll-r", "ll-ct", "ll-cp")
MODES = {"ll-r": "reject", "ll-ct": "correct", "ll-cp": "correct"}
ALL_IMAGES = [0, 1, 2, 3, 4, 5]
LOGITS = torch.tensor(
    [
        [3.0, -1.0, 5.0],
        [2.0, -2.0, -3.0],
        [-1.0, 1.0, 1.0],
        [4.0, -4.0, -2.0],
        [-3.0, 2.5, 2.0],
        [-2.0, 0.5, -9.0],
    ]
)

each_method = pytest.mark.parametrize("name", NAMES)


def started(task, name, epoch=1, **options):
    method = create(name, {name: options})
    method.setup(task)
    method.begin_epoch(epoch)
    return method


def decided(method) -> list[tuple[int, int]]:
    decisions = method.decisions()
    return list(zip(decisions.image.tolist(), decisions.label.tolist(), strict=True))


@each_method
def test_the_first_epoch_is_assume_negative(name):
    task = task_of()
    method = started(task, name)
    terms = visit(method, task, ALL_IMAGES, Prediction(LOGITS))
    assert list(terms) == [name]
    assert terms[name] == assume_negative(LOGITS, batch_of(ALL_IMAGES).labels)
    assert len(method.decisions()) == 0


@pytest.mark.parametrize(
    ("name", "shares"),
    [("ll-r", [0, "0.5", 1, "4.5"]), ("ll-ct", [0, "0.2", "0.4", "1.8"]), ("ll-cp", [0, "0.1", "0.1", "0.1"])],
)
def test_published_rates(name, shares):
    """In epochs 1, 2, 3 and 10, in percent; exactly."""
    method = started(task_of(), name)
    found = []
    for epoch in (1, 2, 3, 10):
        method.begin_epoch(epoch)
        found.append(method.share())
    assert found == [Fraction(str(share)) / 100 for share in shares]


@each_method
def test_later_epochs_treat_the_largest_losses_apart(name):
    """A tenth of 18 entries are two: (3, 0) and (4, 1). (0, 2) is larger, but known to be absent."""
    task = task_of()
    method = started(task, name, epoch=2, rate=10)
    terms = visit(method, task, ALL_IMAGES, Prediction(LOGITS))
    assert decided(method) == [(3, 0), (4, 1)]
    expected = large_loss(LOGITS, batch_of(ALL_IMAGES).labels, rate=0.1, mode=MODES[name])
    assert terms[name] == expected


@pytest.mark.parametrize(("name", "kind", "value"), [("ll-r", "rejected", -1), ("ll-ct", "flipped", 1)])
def test_decisions_say_what_became_of_a_label(name, kind, value):
    task = task_of()
    method = started(task, name, epoch=2, rate=10)
    assert method.decisions() is None
    visit(method, task, [3, 4, 1], Prediction(LOGITS[[3, 4, 1]]))
    decisions = method.decisions()
    assert decisions.image.tolist() == [3]
    assert decisions.kind.tolist() == [kind]
    assert decisions.value.tolist() == [value]


@each_method
def test_observed_labels_are_never_touched_however_high_the_rate(name):
    task = task_of()
    method = started(task, name, epoch=3, rate=100)
    visit(method, task, ALL_IMAGES, Prediction(-LOGITS))
    assert decided(method) == [tuple(entry) for entry in np.argwhere(DENSE == -1).tolist()]


@each_method
def test_images_without_any_label_take_part(name):
    labels = LabelMatrix.from_dense(np.full((4, 3), -1, dtype=np.int8))
    task = task_of(labels)
    method = started(task, name, epoch=2, rate=20)
    logits = LOGITS[:4].clone().requires_grad_()
    (term,) = visit(method, task, [0, 1, 2, 3], Prediction(logits)).values()
    (gradient,) = torch.autograd.grad(term, logits)
    assert len(method.decisions()) == 3
    assert gradient.isfinite().all()


@each_method
def test_explicit_negatives_are_candidates_on_request(name):
    task = task_of()
    method = started(task, name, epoch=2, rate=10, candidates="not_positive")
    visit(method, task, ALL_IMAGES, Prediction(LOGITS))
    assert decided(method) == [(0, 2), (3, 0)]


@each_method
def test_the_ranking_is_over_what_the_loss_sees(name):
    """Two halves of a batch, as of two processes or two parts, choose for themselves."""
    task = task_of()
    method = started(task, name, epoch=2, rate=10)
    chosen = []
    for half in (ALL_IMAGES[:3], ALL_IMAGES[3:]):
        visit(method, task, half, Prediction(LOGITS[half]))
        chosen += decided(method)
    assert chosen == [(2, 2), (3, 0)]


@each_method
def test_a_run_that_is_resumed_within_an_epoch_keeps_its_rate(name):
    method = started(task_of(), name, epoch=4)
    again = create(name)
    again.setup(task_of())
    again.load_state_dict(method.state_dict())
    assert again.share() == method.share() > 0


@each_method
@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"rate": 0}, "options.{name}.rate is 0; it is in percent, above 0 and at most 100"),
        ({"rate": 101}, "options.{name}.rate is 101; it is in percent"),
        ({"candidates": "all"}, "candidates='all' of method '{name}'"),
    ],
)
def test_what_makes_no_sense_is_refused(name, options, sentence):
    with pytest.raises(TagfillError, match=sentence.format(name=name)):
        create(name, {name: options})


def test_permanent_corrections_are_positives_at_the_next_visit():
    task = task_of()
    method = started(task, "ll-cp", epoch=2, rate=10)
    visit(method, task, ALL_IMAGES, Prediction(LOGITS))
    corrected = batch_of(ALL_IMAGES).labels.clone()
    corrected[3, 0] = corrected[4, 1] = 1

    method.begin_epoch(3)
    terms = visit(method, task, ALL_IMAGES, Prediction(LOGITS))
    assert terms["ll-cp"] == large_loss(LOGITS, corrected, rate=0.1, mode="correct")
    assert decided(method) == [(2, 2), (5, 1)]


def test_permanent_corrections_hold_where_nothing_new_is_corrected():
    """As in the first epoch of a stage that takes them over: exactly AN with two more positives."""
    task = task_of()
    method = started(task, "ll-cp", epoch=2, rate=10)
    visit(method, task, ALL_IMAGES, Prediction(LOGITS))
    corrected = batch_of(ALL_IMAGES).labels.clone()
    corrected[3, 0] = corrected[4, 1] = 1
    following = started(task, "ll-cp")
    assert following.loss(batch_of(ALL_IMAGES), Prediction(-LOGITS))["ll-cp"] == assume_negative(-LOGITS, corrected)


def test_permanent_corrections_survive_a_restart():
    task = task_of()
    method = started(task, "ll-cp", epoch=2, rate=10)
    visit(method, task, ALL_IMAGES, Prediction(LOGITS))
    restored = task_of(memory=Memory(LABELS, np.arange(6), seed=0, saved=task.memory.state_dict()))
    again = create("ll-cp", {"ll-cp": {"rate": 10}})
    again.setup(restored)
    again.load_state_dict(method.state_dict())
    for each, its_task in ((method, task), (again, restored)):
        each.begin_epoch(3)
        terms = visit(each, its_task, ALL_IMAGES, Prediction(LOGITS))
        assert terms["ll-cp"] != large_loss(LOGITS, batch_of(ALL_IMAGES).labels, rate=0.1, mode="correct")
    assert decided(again) == decided(method)


def test_computing_the_loss_changes_no_label():
    task = task_of()
    method = started(task, "ll-cp", epoch=2, rate=10)
    for _ in range(2):
        method.loss(batch_of(ALL_IMAGES), Prediction(LOGITS))
        assert decided(method) == [(3, 0), (4, 1)]


def test_each_epoch_corrects_new_labels():
    labels = single_positives(40, 10)
    task = task_of(labels)
    method = started(task, "ll-cp", rate=1)
    draws = torch.Generator().manual_seed(3)
    dense = torch.from_numpy(labels.dense())
    counts = []
    for epoch in (1, 2, 3, 4):
        method.begin_epoch(epoch)
        for start in range(0, 40, 10):
            index = list(range(start, start + 10))
            logits = torch.randn(10, 10, generator=draws)
            expected = large_loss_mask(logits, dense[index], rate=0.01 if epoch > 1 else 0)
            visit(method, task, index, Prediction(logits))
            assert decided(method) == [(index[row], label) for row, label in expected.nonzero().tolist()]
            dense[index] = dense[index].masked_fill(expected, 1)
        counts.append(len(task.memory.overlay(changes=0)))
    assert counts == [0, 4, 8, 12]


@pytest.mark.parametrize(("strict", "kept"), [(False, 2), (True, 1)])
def test_entries_at_the_threshold_are_kept_unless_strict(strict, kept):
    """Strict speaks of what is kept; the loss of the step itself corrects both."""
    task = task_of()
    method = started(task, "ll-cp", epoch=2, rate=10, strict=strict)
    visit(method, task, ALL_IMAGES, Prediction(LOGITS))
    assert len(method.decisions()) == 2
    assert len(task.memory.overlay(changes=0)) == kept


def test_expected_size_is_stated_before_the_run():
    """(T−1)·Δ·L changes per image, nine bytes each."""
    task = task_of(single_positives(100, 8), epochs=11)
    started(task, "ll-cp", rate=5)
    assert task.memory.sizes() == {"overlay": 10 * 5 * 8 * 9}
