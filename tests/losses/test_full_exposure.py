from __future__ import annotations

import pytest
from hypothesis import given

from losses.cases import LABELS, LOGITS, batches, modest
from reference.full_exposure import full_exposure as reference
from tagfill.losses import assume_negative, full_exposure


def test_worked_example():
    assert full_exposure(LOGITS, LABELS, reduction="batchmean").item() == pytest.approx(2.135892, abs=1e-6)


@pytest.mark.parametrize("unknown_as", ["absent", "present"])
@pytest.mark.parametrize("eps", [0.0, 1e-5])
@modest
@given(batch=batches())
def test_equals_the_formula(unknown_as, eps, batch):
    options = {"positive_weight": 3.0, "unknown_as": unknown_as, "eps": eps}
    loss = full_exposure(batch.logits, batch.labels, reduction="batchmean", **options)
    expected = reference(batch.logits.tolist(), batch.labels.tolist(), **options)
    assert loss.item() == pytest.approx(expected, rel=1e-12, abs=1e-12)


def test_without_the_weight_it_assumes_negatives():
    assert full_exposure(LOGITS, LABELS, positive_weight=1.0) == assume_negative(LOGITS, LABELS)


def test_another_reading_is_refused():
    with pytest.raises(ValueError, match="cannot be treated as 'unsure'"):
        full_exposure(LOGITS, LABELS, unknown_as="unsure")
