from __future__ import annotations

import pytest
import torch
from hypothesis import given

from losses.cases import LABELS, LOGITS, batches, modest
from reference.assume_negative import assume_negative as reference
from tagfill.losses import assume_negative, binary


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
