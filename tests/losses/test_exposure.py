from __future__ import annotations

from math import exp

import pytest
import torch
from hypothesis import given

from losses.cases import LABELS, LOGITS, batches, modest, signed
from reference.full_exposure import full_exposure as reference
from reference.soft_exposure import soft_exposure as soft_reference
from tagfill.losses import assume_negative, full_exposure, ignore_unknown, soft_exposure


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


TEMPERATURE = torch.tensor(
    [[9.0, exp(2.5), -exp(5), 9.0], [-1.0, 9.0, -exp(1.25), exp(5)]], dtype=torch.float64
)  # the nines belong to known labels


@pytest.mark.parametrize(("weight", "value"), [(5.0, 2.367259), (1.0, 1.710576)])
def test_soft_worked_example(weight, value):
    loss = soft_exposure(LOGITS, LABELS, TEMPERATURE, positive_weight=weight)
    assert loss.item() == pytest.approx(value, abs=1e-6)


@pytest.mark.parametrize("eps", [0.0, 1e-5])
@modest
@given(batch=batches())
def test_soft_equals_the_formula(eps, batch):
    temperature = signed(batch.extra)
    loss = soft_exposure(batch.logits, batch.labels, temperature, positive_weight=3.0, eps=eps)
    expected = soft_reference(batch.logits.tolist(), batch.labels.tolist(), temperature.tolist(), 3.0, eps)
    assert loss.item() == pytest.approx(expected, rel=1e-12, abs=1e-12)


def test_temperature_minus_one_reads_unknowns_as_absent():
    softest = soft_exposure(LOGITS, LABELS, -1.0, positive_weight=1.0, reduction="mean")
    assert softest.item() == pytest.approx(assume_negative(LOGITS, LABELS).item())


def test_full_exposure_is_the_worked_example_of_the_baseline():
    assert soft_exposure(LOGITS, LABELS, -1.0).item() == pytest.approx(2.135892, abs=1e-6)


def test_temperature_zero_leaves_a_label_out():
    logits = LOGITS.clone().requires_grad_()
    loss = soft_exposure(logits, LABELS, 0.0, positive_weight=1.0, reduction="mean")
    (gradient,) = torch.autograd.grad(loss, logits)
    assert loss.item() == pytest.approx(ignore_unknown(LOGITS, LABELS).item())
    assert not gradient[LABELS == -1].any()


@pytest.mark.parametrize("temperature", [2.0, -2.0, 148.4, -148.4])
def test_the_sign_says_where_to_and_the_size_how_hard(temperature):
    logits = LOGITS.clone().requires_grad_()
    (gradient,) = torch.autograd.grad(soft_exposure(logits, LABELS, temperature, reduction="sum"), logits)
    pushed = gradient[LABELS == -1]
    assert (pushed.sign() == -1 if temperature > 0 else pushed.sign() == 1).all()
    assert (pushed.abs() <= 1 / abs(temperature)).all()


@pytest.mark.parametrize("temperature", [1e-4, -9e-4, float("nan"), float("inf")])
def test_a_temperature_near_zero_or_not_a_number_is_refused(temperature):
    with pytest.raises(ValueError, match=r"neither 0 nor a finite number of magnitude 0\.001 or more"):
        soft_exposure(LOGITS, LABELS, torch.full_like(LOGITS, temperature))


def test_temperatures_of_known_labels_are_not_read():
    wrong = TEMPERATURE.masked_fill(LABELS != -1, float("nan"))
    assert soft_exposure(LOGITS, LABELS, wrong) == soft_exposure(LOGITS, LABELS, TEMPERATURE)


def test_batchmean_is_the_default():
    loss = soft_exposure(LOGITS, LABELS, TEMPERATURE)
    assert loss == soft_exposure(LOGITS, LABELS, TEMPERATURE, reduction="batchmean")


def test_temperatures_of_another_shape_are_refused():
    with pytest.raises(ValueError, match="labels are 2×4 and the temperatures 1×4"):
        soft_exposure(LOGITS, LABELS, TEMPERATURE[:1])
