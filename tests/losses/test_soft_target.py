"""Soft targets against their reference, and at both ends of trust."""

import pytest
import torch
from hypothesis import given

from losses.cases import LABELS, LOGITS, batches, modest
from reference.evidence import soft_target as reference
from tagfill.losses import entropy_maximization, soft_target


@modest
@given(batch=batches())
def test_it_is_the_reference(batch):
    targets, trust = batch.extra.sigmoid(), (batch.extra.abs() / 3).clamp(0, 1)
    expected = reference(
        batch.logits.tolist(), batch.labels.tolist(), targets.tolist(), trust.tolist(), alpha=0.3
    )  # fmt: skip
    found = soft_target(batch.logits, batch.labels, targets, trust, alpha=0.3).item()
    assert found == pytest.approx(expected, rel=1e-9, abs=1e-12)


def test_without_trust_it_is_entropy_maximization():
    nothing = torch.zeros_like(LOGITS)
    found = soft_target(LOGITS, LABELS, torch.full_like(LOGITS, torch.nan), nothing)
    torch.testing.assert_close(found, entropy_maximization(LOGITS, LABELS, use_negatives=True))


def test_shapes_must_agree():
    with pytest.raises(ValueError, match="2×4 and the trust 2×3"):
        soft_target(LOGITS, LABELS, LOGITS, LOGITS[:, :3])
