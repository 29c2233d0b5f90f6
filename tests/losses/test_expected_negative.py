from __future__ import annotations

from math import log

import pytest
import torch
from hypothesis import given

from losses.cases import LABELS, LOGITS, batches, modest
from reference.consistency import consistency as consistency_reference
from reference.expected_negative import expected_negative as reference
from tagfill.losses import assume_negative, consistency, expected_negative, ignore_unknown

EXPECTED = torch.tensor([[1, 0, 1, 0], [0, 1, 0, 0]], dtype=torch.bool)
NOBODY = torch.zeros(2, 4, dtype=torch.bool)
ALL_IMAGES = ~NOBODY


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


def test_expecting_all_images_leaves_only_the_known_labels():
    assert expected_negative(LOGITS, LABELS, ALL_IMAGES) == ignore_unknown(LOGITS, LABELS)


def test_unknown_and_all_expected_teaches_nothing():
    logits = LOGITS.clone().requires_grad_()
    loss = expected_negative(logits, torch.full_like(LABELS, -1), ALL_IMAGES)
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
    loss = expected_negative(LOGITS, LABELS, ALL_IMAGES, also_positive=True, reduction="none")
    assert loss[0, 3].item() == pytest.approx(torch.nn.functional.softplus(LOGITS[0, 3]).item())


def test_mask_of_another_shape_is_refused():
    with pytest.raises(ValueError, match="labels are 2×4 and the expected positives 1×4"):
        expected_negative(LOGITS, LABELS, EXPECTED[:1])


each_distance = pytest.mark.parametrize("distance", ["l1", "l2", "jsd"])


@pytest.mark.parametrize(("reduction", "value"), [("mean", 0.279650), ("batchmean", 1.118599)])
def test_consistency_worked_example(reduction, value):
    first_scores = (LABELS == 1).double()
    assert consistency(LOGITS, LABELS, first_scores, reduction=reduction).item() == pytest.approx(value, abs=1e-6)


@each_distance
@pytest.mark.parametrize("eps", [0.0, 1e-5])
@modest
@given(batch=batches())
def test_consistency_equals_the_formula(distance, eps, batch):
    target = batch.extra.sigmoid()
    loss = consistency(batch.logits, batch.labels, target, distance=distance, eps=eps)
    expected = consistency_reference(batch.logits.tolist(), target.tolist(), distance, eps)
    assert loss.item() == pytest.approx(expected, rel=1e-12, abs=1e-12)


@each_distance
def test_is_zero_at_the_target(distance):
    loss = consistency(LOGITS, LABELS, LOGITS.sigmoid(), distance=distance)
    assert loss.item() == pytest.approx(0, abs=1e-15)


@pytest.mark.parametrize(("distance", "farthest"), [("l1", 1.0), ("l2", 1.0), ("jsd", log(2))])
def test_certain_and_wrong_is_farthest(distance, farthest):
    logits = torch.tensor([[1e4, -1e4]], dtype=torch.float64)
    loss = consistency(logits, torch.tensor([[-1, -1]]), torch.tensor([[0.0, 1.0]]), distance=distance)
    assert loss.item() == pytest.approx(farthest)


@each_distance
def test_maps_are_compared_cell_by_cell(distance):
    generator = torch.Generator().manual_seed(0)
    maps = torch.randn(2, 4, 3, 3, generator=generator, dtype=torch.float64)
    heatmaps = torch.rand(2, 4, 3, 3, generator=generator, dtype=torch.float64)
    loss = consistency(maps, LABELS, heatmaps, distance=distance)
    expected = consistency_reference(maps.flatten(1).tolist(), heatmaps.flatten(1).tolist(), distance)
    assert loss.item() == pytest.approx(expected, rel=1e-12)


def test_no_gradient_flows_into_the_target():
    logits, target = LOGITS.clone().requires_grad_(), torch.full_like(LOGITS, 0.5).requires_grad_()
    consistency(logits, LABELS, target).backward()
    assert target.grad is None


def test_target_of_another_shape_is_refused():
    with pytest.raises(ValueError, match="logits are 2×4 and the target 2×4×3×3"):
        consistency(LOGITS, LABELS, torch.zeros(2, 4, 3, 3))


def test_unknown_distance_is_refused_with_the_known_ones():
    with pytest.raises(ValueError, match=r"no distance 'cosine'. Known: l1, l2, jsd"):
        consistency(LOGITS, LABELS, torch.zeros(2, 4), distance="cosine")
