from __future__ import annotations

import pytest
import torch
from hypothesis import given

from losses.cases import LABELS, LOGITS, batches, modest
from reference.weighted_known import weighted_known as reference
from tagfill.losses import binary, weighted_known


def test_worked_example():
    assert weighted_known(LOGITS, LABELS).item() == pytest.approx(0.179958, abs=1e-6)


@pytest.mark.parametrize("eps", [0.0, 1e-5])
@modest
@given(batch=batches())
def test_equals_the_formula(eps, batch):
    loss = weighted_known(batch.logits, batch.labels, eps=eps)
    expected = reference(batch.logits.tolist(), batch.labels.tolist(), eps)
    assert loss.item() == pytest.approx(expected, rel=1e-12, abs=1e-12)


def test_a_complete_image_has_the_weight_one():
    complete = torch.where(LABELS == -1, 0, LABELS)
    torch.testing.assert_close(weighted_known(LOGITS, complete), binary(LOGITS, complete))


def test_an_image_of_ten_with_one_known_label_counts_five_times():
    logits, labels = torch.zeros(1, 10), torch.full((1, 10), -1)
    labels[0, 3] = 0
    ratio = weighted_known(logits, labels) / binary(logits, labels)
    assert ratio.item() == pytest.approx(5.005, abs=1e-4)
