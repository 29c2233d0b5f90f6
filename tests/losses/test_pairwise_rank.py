from __future__ import annotations

import pytest
import torch
from hypothesis import given

from losses.cases import LABELS, LOGITS, batches, modest
from reference.pairwise_rank import pairwise_rank as reference
from tagfill.losses import pairwise_rank


@modest
@given(batch=batches())
def test_equals_a_loop_over_all_pairs(batch):
    loss = pairwise_rank(batch.logits, batch.labels)
    expected = reference(batch.logits.tolist(), batch.labels.tolist())
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
