from __future__ import annotations

import pytest
import torch

from methods.cases import batch_of, task_of, visit
from tagfill.contract import Prediction
from tagfill.losses import splc
from tagfill.methods import create

ALL_IMAGES = [0, 1, 2, 3, 4, 5]
LOGITS = torch.linspace(-2, 2, 18).view(6, 3)


def started(epoch: int, **options):
    method = create("splc", {"splc": options})
    method.setup(task_of())
    method.begin_epoch(epoch)
    return method


@pytest.mark.parametrize(("epoch", "warmup", "correct"), [(1, 1, False), (2, 1, True), (2, 2, False), (1, 0, True)])
def test_corrections_begin_after_the_warmup(epoch, warmup, correct):
    method = started(epoch, warmup=warmup)
    terms = visit(method, task_of(), ALL_IMAGES, Prediction(LOGITS))
    assert terms == {"splc": splc(LOGITS, batch_of(ALL_IMAGES).labels, correct=correct, reduction="sum")}
    assert (len(method.decisions()) > 0) == correct


def test_decisions_are_the_confident_unknowns():
    method = started(2, threshold=0.8)
    visit(method, task_of(), [5, 4], Prediction(LOGITS[[5, 4]]))
    decisions = method.decisions()
    assert list(zip(decisions.image.tolist(), decisions.label.tolist(), strict=True)) == [(5, 0), (5, 1)]
    assert set(decisions.kind.tolist()) == {"flipped"}
    assert set(decisions.value.tolist()) == {1}


def test_options_reach_the_loss():
    options = {"threshold": 0.7, "margin": 0.5, "gamma": 1.0}
    terms = visit(started(2, **options), task_of(), ALL_IMAGES, Prediction(LOGITS))
    assert terms["splc"] == splc(LOGITS, batch_of(ALL_IMAGES).labels, reduction="sum", **options)


def test_a_run_that_is_resumed_within_an_epoch_goes_on_correcting():
    again = create("splc")
    again.setup(task_of())
    again.load_state_dict(started(2).state_dict())
    visit(again, task_of(), ALL_IMAGES, Prediction(LOGITS))
    assert len(again.decisions()) > 0
