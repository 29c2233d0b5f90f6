from __future__ import annotations

import pytest
import torch
from hypothesis import given

from losses.cases import LABELS, LOGITS, batches, modest
from reference.expected_negative import expected_negative as reference
from tagfill.losses import assume_negative, expected_negative, ignore_unknown

EXPECTED = torch.tensor([[1, 0, 1, 0], [0, 1, 0, 0]], dtype=torch.bool)
NOBODY = torch.zeros(2, 4, dtype=torch.bool)
EVERYBODY = ~NOBODY


def test_worked_example():
    assert expected_negative(LOGITS, LABELS, EXPECTED).item() == pytest.approx(0.248043, abs=1e-6)


@pytest.mark.parametrize("also_positive", [False, True])
@pytest.mark.parametrize("literal", [False, True])
@pytest.mark.parametrize("eps", [0.0, 1e-5])
@modest
@given(batch=batches())
def test_equals_the_formula(also_positive, literal, eps, batch):
    mask = batch.extra > 0
    loss = expected_negative(batch.logits, batch.labels, mask, also_positive=also_positive, literal=literal, eps=eps)
    expected = reference(batch.logits.tolist(), batch.labels.tolist(), mask.tolist(), also_positive, literal, eps)
    assert loss.item() == pytest.approx(expected, rel=1e-12, abs=1e-12)


def test_first_epoch_assumes_negatives():
    assert expected_negative(LOGITS, LABELS, LABELS == 1) == assume_negative(LOGITS, LABELS)


def test_expecting_everybody_leaves_only_the_known_labels():
    assert expected_negative(LOGITS, LABELS, EVERYBODY) == ignore_unknown(LOGITS, LABELS)


def test_unknown_and_all_expected_teaches_nothing():
    logits = LOGITS.clone().requires_grad_()
    loss = expected_negative(logits, torch.full_like(LABELS, -1), EVERYBODY)
    loss.backward()
    assert loss == 0
    assert not logits.grad.any()


def test_observed_positive_outside_the_ranking_is_not_penalised():
    protected = expected_negative(LOGITS, LABELS, NOBODY, reduction="none")
    literal = expected_negative(LOGITS, LABELS, NOBODY, literal=True, reduction="none")
    assert protected[0, 0].item() == pytest.approx(torch.nn.functional.softplus(-LOGITS[0, 0]).item())
    assert literal[0, 0].item() == pytest.approx(
        protected[0, 0].item() + torch.nn.functional.softplus(LOGITS[0, 0]).item()
    )


def test_explicit_negative_is_penalised_whatever_the_ranking_says():
    loss = expected_negative(LOGITS, LABELS, EVERYBODY, also_positive=True, reduction="none")
    assert loss[0, 3].item() == pytest.approx(torch.nn.functional.softplus(LOGITS[0, 3]).item())


def test_mask_of_another_shape_is_refused():
    with pytest.raises(ValueError, match="labels are 2×4 and the expected positives 1×4"):
        expected_negative(LOGITS, LABELS, EXPECTED[:1])
