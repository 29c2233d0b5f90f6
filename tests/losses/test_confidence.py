from __future__ import annotations

import pytest
import torch
from hypothesis import given

from losses.cases import LABELS, LOGITS, batches, modest
from reference.splc import splc as reference
from tagfill.losses import assume_negative, confident_unknowns, splc


@pytest.mark.parametrize(("correct", "value"), [(False, 0.733074), (True, 0.423236)], ids=["epoch 0", "epoch 1"])
def test_worked_example(correct, value):
    assert splc(LOGITS, LABELS, correct=correct, reduction="sum").item() == pytest.approx(value, abs=1e-6)


@pytest.mark.parametrize("correct", [False, True])
@pytest.mark.parametrize("eps", [0.0, 1e-5])
@modest
@given(batch=batches())
def test_equals_the_formula(correct, eps, batch):
    options = {"correct": correct, "threshold": 0.65, "margin": 0.5, "gamma": 3.0, "eps": eps}
    loss = splc(batch.logits, batch.labels, reduction="sum", **options)
    expected = reference(batch.logits.tolist(), batch.labels.tolist(), **options)
    assert loss.item() == pytest.approx(expected, rel=1e-9, abs=1e-12)


def test_without_margin_and_focus_the_first_epoch_assumes_negatives():
    loss = splc(LOGITS, LABELS, correct=False, margin=0.0, gamma=0.0)
    assert loss.item() == pytest.approx(assume_negative(LOGITS, LABELS).item(), rel=1e-12)


def test_observed_labels_are_not_corrected():
    """However sure the model is; an explicit negative stays one."""
    labels = torch.tensor([[1, 0, -1]])
    sure = torch.full((1, 3), 9.0)
    assert confident_unknowns(sure, labels).tolist() == [[False, False, True]]
    assert splc(sure, labels, reduction="none")[0, 1] > 8


def test_a_corrected_label_has_no_margin():
    logits, unknown = torch.tensor([[2.0]]), torch.tensor([[-1]])
    assert splc(logits, unknown) == splc(logits, torch.tensor([[1]]), margin=0.0)


@pytest.mark.parametrize(("logit", "sure"), [(0.40, False), (0.41, True)])
def test_threshold_is_a_probability(logit, sure):
    assert confident_unknowns(torch.tensor([[logit]]), torch.tensor([[-1]])).item() is sure
