"""GR against its reference, and where it becomes another loss."""

import pytest
import torch
from hypothesis import given

from losses.cases import LABELS, LOGITS, batches, modest
from reference.gr import generalized_robust as reference
from tagfill.losses import assume_negative, generalized_robust

OPTIONS = [
    {"slope": 0.0, "offset": -2.0, "center": 0.5, "spread": 2.0, "q_present": 0.01, "q_absent": 1.0},
    {"slope": 3.0, "offset": -1.0, "center": 0.8, "spread": 0.3, "q_present": 1.0, "q_absent": 0.3},
]


@pytest.mark.parametrize("options", OPTIONS)
@modest
@given(batch=batches())
def test_it_is_the_reference(options, batch):
    expected = reference(batch.logits.tolist(), batch.labels.tolist(), **options)
    assert generalized_robust(batch.logits, batch.labels, **options).item() == pytest.approx(expected, rel=1e-9)


def test_without_pseudo_labels_and_with_equal_weights_it_assumes_absence():
    found = generalized_robust(LOGITS, LABELS, slope=0.0, offset=-50.0, spread=1e6, q_absent=1e-9)
    torch.testing.assert_close(found, assume_negative(LOGITS, LABELS), rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("wrong", [{"q_present": 0.0}, {"q_absent": 1.5}, {"spread": 0.0}])
def test_impossible_options_are_refused(wrong):
    with pytest.raises(ValueError, match="must be above 0"):
        generalized_robust(LOGITS, LABELS, **wrong)
