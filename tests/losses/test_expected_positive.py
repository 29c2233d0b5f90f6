from __future__ import annotations

import pytest
import torch
from hypothesis import given

from losses.cases import LABELS, LOGITS, batches, modest
from reference import expected_positive as reference
from tagfill.losses import expected_positive, positive_count_penalty


def test_worked_example():
    assert reference.positive_count(LOGITS.tolist()) == pytest.approx(1.816971, abs=1e-6)
    assert positive_count_penalty(LOGITS.sigmoid(), 1.5).item() == pytest.approx(0.006279, abs=1e-6)
    assert expected_positive(LOGITS, LABELS, expected=1.5, eps=1e-5).item() == pytest.approx(0.047319, abs=1e-6)


@pytest.mark.parametrize("weight", [1.0, 0.5])
@pytest.mark.parametrize("eps", [0.0, 1e-5])
@modest
@given(batch=batches())
def test_equals_the_formula(weight, eps, batch):
    loss = expected_positive(batch.logits, batch.labels, expected=1.5, weight=weight, eps=eps)
    expected = reference.expected_positive(batch.logits.tolist(), batch.labels.tolist(), 1.5, weight, eps)
    assert loss.item() == pytest.approx(expected, rel=1e-12, abs=1e-12)


def test_penalty_is_zero_at_the_expected_count():
    probabilities = torch.tensor([[0.5, 0.5, 1.0], [1.0, 0.0, 0.0]])
    assert positive_count_penalty(probabilities, expected=1.5) == 0


def test_penalty_is_of_the_batch_and_not_of_an_image():
    uneven = torch.tensor([[1.0, 1.0, 1.0], [0.0, 0.0, 0.0]])
    assert positive_count_penalty(uneven, expected=1.5) == 0
    assert positive_count_penalty(uneven[:1], expected=1.5) == 0.25


def test_form_without_the_number_of_classes():
    images, classes = LABELS.shape
    positives = torch.nn.functional.softplus(-LOGITS[LABELS == 1]).sum() / images
    expected = positives + positive_count_penalty(LOGITS.sigmoid(), 1.5)
    loss = expected_positive(LOGITS, LABELS, expected=1.5, weight=1 / classes, reduction="batchmean")
    torch.testing.assert_close(loss, expected)
