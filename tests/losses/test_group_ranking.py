"""ZLPR and the two-way loss against their references, and what they compare."""

import pytest
import torch
from hypothesis import given

from losses.cases import LABELS, LOGITS, batches, modest
from reference.group_ranking import two_way as two_way_reference
from reference.group_ranking import zlpr as zlpr_reference
from tagfill.losses import two_way, zlpr


@pytest.mark.parametrize("unknown_as", ["ignored", "absent"])
@modest
@given(batch=batches())
def test_zlpr_compares_all_pairs(unknown_as, batch):
    loss = zlpr(batch.logits, batch.labels, unknown_as=unknown_as, reduction="batchmean")
    expected = zlpr_reference(batch.logits.tolist(), batch.labels.tolist(), unknown_as)
    assert loss.item() == pytest.approx(expected, rel=1e-12, abs=1e-12)


@pytest.mark.parametrize("unknown_as", ["ignored", "absent"])
@pytest.mark.parametrize("temperatures", [(4.0, 1.0), (1.0, 2.0)])
@modest
@given(batch=batches())
def test_two_way_is_the_reference(unknown_as, temperatures, batch):
    names = dict(zip(("positive_temperature", "negative_temperature"), temperatures, strict=True))
    loss = two_way(batch.logits, batch.labels, unknown_as=unknown_as, **names)
    expected = two_way_reference(batch.logits.tolist(), batch.labels.tolist(), unknown_as, *temperatures)
    assert loss.item() == pytest.approx(expected, rel=1e-12, abs=1e-12)


def test_one_present_class_alone_is_its_cross_entropy():
    logits, labels = torch.tensor([[2.0, -1.0]]), torch.tensor([[1, -1]])
    assert zlpr(logits, labels, reduction="sum").item() == pytest.approx(0.126928, abs=1e-6)
    assert two_way(logits, labels) == 0


@pytest.mark.parametrize("loss", [zlpr, two_way])
def test_present_classes_rise_absent_ones_fall_and_unknown_ones_stay(loss):
    logits = LOGITS.clone().requires_grad_()
    (gradient,) = torch.autograd.grad(loss(logits, LABELS), logits)
    assert gradient[0, 0] < 0 < gradient[0, 3]
    assert not gradient[LABELS == -1].any()


def test_a_class_is_compared_within_its_column():
    """No image has both kinds of labels, so only the columns teach."""
    logits = torch.tensor([[1.0], [2.0]], requires_grad=True)
    (gradient,) = torch.autograd.grad(two_way(logits, torch.tensor([[1], [0]])), logits)
    assert gradient[0] < 0 < gradient[1]


@pytest.mark.parametrize("name", ["positive_temperature", "negative_temperature"])
def test_a_temperature_is_positive(name):
    with pytest.raises(ValueError, match="must be above 0"):
        two_way(LOGITS, LABELS, **{name: 0.0})
