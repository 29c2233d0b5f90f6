"""Soft positives against their reference, and without any share."""

import pytest
import torch
from hypothesis import given

from losses.cases import LABELS, LOGITS, batches, modest
from reference.evidence import soft_positive as reference
from tagfill.losses import assume_negative, entropy_maximization, soft_positive


@modest
@given(batch=batches())
def test_it_is_the_reference(batch):
    share = batch.extra.sigmoid()
    options = {"weight": 0.6, "negative_weight": 0.2, "alpha": 0.3}
    expected = reference(batch.logits.tolist(), batch.labels.tolist(), share.tolist(), **options)
    found = soft_positive(batch.logits, batch.labels, share, **options).item()
    assert found == pytest.approx(expected, rel=1e-9, abs=1e-12)


def test_without_a_share_it_is_entropy_maximization_or_assumes_absence():
    nothing = torch.zeros_like(LOGITS)
    undecided = soft_positive(LOGITS, LABELS, nothing, negative_weight=0.0)
    torch.testing.assert_close(undecided, entropy_maximization(LOGITS, LABELS, use_negatives=True))
    absent = soft_positive(LOGITS, LABELS, nothing, negative_weight=1.0, alpha=0.0)
    torch.testing.assert_close(absent, assume_negative(LOGITS, LABELS))


def test_shapes_must_agree():
    with pytest.raises(ValueError, match="2×4 and the shares 2×3"):
        soft_positive(LOGITS, LABELS, LOGITS[:, :3])
