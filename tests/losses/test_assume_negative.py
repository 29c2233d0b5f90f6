from __future__ import annotations

import pytest
import torch
from hypothesis import given

from losses.cases import LABELS, LOGITS, batches, modest
from reference.assume_negative import assume_negative as reference
from reference.pairwise_rank import pairwise_rank as pairwise_reference
from tagfill.losses import assume_negative, binary, pairwise_rank


@pytest.mark.parametrize(
    ("options", "value"),
    [
        ({}, 0.369802),
        ({"eps": 1e-5}, 0.369787),
        ({"smoothing": 0.1, "eps": 1e-5}, 0.488532),
        ({"negative_weight": 1 / 3, "eps": 1e-5}, 0.150622),
    ],
    ids=["AN", "AN eps", "AN-LS", "WAN"],
)
def test_worked_example(options, value):
    assert assume_negative(LOGITS, LABELS, **options).item() == pytest.approx(value, abs=1e-6)


@pytest.mark.parametrize("smoothing", [0.0, 0.2])
@pytest.mark.parametrize("negative_weight", [1.0, 0.25])
@pytest.mark.parametrize("eps", [0.0, 1e-5])
@modest
@given(batch=batches())
def test_equals_the_formula(smoothing, negative_weight, eps, batch):
    loss = assume_negative(batch.logits, batch.labels, smoothing=smoothing, negative_weight=negative_weight, eps=eps)
    expected = reference(batch.logits.tolist(), batch.labels.tolist(), smoothing, negative_weight, eps)
    assert loss.item() == pytest.approx(expected, rel=1e-12, abs=1e-12)


def test_is_cross_entropy_once_unknown_is_written_as_absent():
    absent = torch.where(LABELS == -1, 0, LABELS)
    assert assume_negative(LOGITS, LABELS) == binary(LOGITS, absent)


@modest
@given(batch=batches())
def test_equals_a_loop_over_all_pairs(batch):
    loss = pairwise_rank(batch.logits, batch.labels)
    expected = pairwise_reference(batch.logits.tolist(), batch.labels.tolist())
    assert loss.item() == pytest.approx(expected, rel=1e-12, abs=1e-12)


def test_one_positive_written_out():
    """f = 0.5 for all four classes: three rivals, each a margin of one short by exactly one."""
    assert pairwise_rank(torch.zeros(1, 4), torch.tensor([[1, -1, 0, -1]]), reduction="sum") == 3


def test_the_positive_rises_and_its_rivals_fall():
    logits = LOGITS.clone().requires_grad_()
    (gradient,) = torch.autograd.grad(pairwise_rank(logits, LABELS), logits)
    assert (gradient[LABELS == 1] < 0).all()
    assert (gradient[LABELS != 1] > 0).all()


def test_an_image_without_an_observed_positive_teaches_nothing():
    logits = LOGITS.clone().requires_grad_()
    labels = LABELS.masked_fill(LABELS == 1, -1)
    (gradient,) = torch.autograd.grad(pairwise_rank(logits, labels), logits)
    assert not gradient.any()


def test_memory_does_not_grow_with_the_square_of_the_classes():
    """Pairs of 20,000 classes would take 3 GB for two images."""
    logits, labels = torch.zeros(2, 20_000), torch.zeros(2, 20_000, dtype=torch.int8)
    labels[:, 0] = 1
    assert pairwise_rank(logits, labels, reduction="batchmean") == 19_999
