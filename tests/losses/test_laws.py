"""What every loss promises, whatever its formula."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from losses.cases import LABELS, LOGITS, LOSSES, REDUCTIONS, arguments, batches, modest
from tagfill import losses

every_loss = pytest.mark.parametrize("name", LOSSES)
EXTRA = torch.tensor([[1.5, -0.5, 2.0, -1.0], [-2.0, -0.25, 0.5, 0.75]], dtype=torch.float64)

OF_THE_WHOLE_BATCH = {"epr", "epr-images", "role", "role-images", "role-half", "ll-r", "ll-ct", "two_way"}
SILENT_WITHOUT_LABELS = {
    *("binary", "binary-ls", "ignore_unknown", "weighted_known", "pairwise_rank"),
    *("p-asl", "p-asl-normalized", "zlpr", "two_way"),
}
HELD_STILL = {  # see the tests of their gradients
    *("role", "role-images", "asl", "focal-asl", "generalized_robust"),
    *("asymmetric", "selective", "p-asl", "p-asl-negative", "p-asl-normalized", "csl"),
}


def test_every_loss_is_held_to_the_laws(monkeypatch):
    """A loss of `tagfill.losses.__all__` that no case calls is missing in cases.py."""
    public, called = {name for name in losses.__all__ if arguments(name)}, set()
    for name in public:
        function = getattr(losses, name)

        def recorded(*args, name=name, function=function, **kwargs):
            called.add(name)
            return function(*args, **kwargs)

        monkeypatch.setattr(losses, name, recorded)
    for case in LOSSES.values():
        case(LOGITS, LABELS, EXTRA)
    assert called == public


@every_loss
@modest
@given(batch=batches(), random=st.randoms(use_true_random=False))
def test_order_of_images_and_classes_does_not_matter(name, batch, random):
    images, classes = (torch.tensor(random.sample(range(size), size)) for size in batch.labels.shape)
    shuffled = [values[images][:, classes] for values in (batch.logits, batch.labels, batch.extra)]

    entries = LOSSES[name](batch.logits, batch.labels, batch.extra, reduction="none")
    after = LOSSES[name](*shuffled, reduction="none")

    torch.testing.assert_close(after, entries[images][:, classes], rtol=1e-12, atol=1e-12)


@every_loss
@modest
@given(batch=batches())
def test_reductions_differ_by_what_they_divide_by(name, batch):
    loss = {r: LOSSES[name](batch.logits, batch.labels, batch.extra, reduction=r) for r in REDUCTIONS}
    known = max(int((batch.labels != -1).sum()), 1)

    assert loss["none"].shape == batch.logits.shape
    torch.testing.assert_close(loss["sum"], loss["none"].sum())
    torch.testing.assert_close(loss["mean"], loss["none"].mean())
    torch.testing.assert_close(loss["batchmean"], loss["sum"] / len(batch.labels))
    torch.testing.assert_close(loss["known"], loss["sum"] / known)


@every_loss
def test_mean_is_the_default(name):
    loss = LOSSES[name](LOGITS, LABELS, EXTRA)
    assert loss == LOSSES[name](LOGITS, LABELS, EXTRA, reduction="mean")


@pytest.mark.parametrize("name", sorted(LOSSES.keys() - OF_THE_WHOLE_BATCH))
@modest
@given(batch=batches())
def test_the_loss_of_an_image_does_not_depend_on_its_batch(name, batch):
    together = LOSSES[name](batch.logits, batch.labels, batch.extra, reduction="none")
    for row in range(len(batch.labels)):
        alone = LOSSES[name](
            batch.logits[row : row + 1], batch.labels[row : row + 1], batch.extra[row : row + 1], reduction="none"
        )
        torch.testing.assert_close(alone, together[row : row + 1], rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("name", sorted(SILENT_WITHOUT_LABELS))
@pytest.mark.parametrize("reduction", REDUCTIONS)
def test_a_batch_without_known_labels_has_no_gradient(name, reduction):
    logits = LOGITS.clone().requires_grad_()
    loss = LOSSES[name](logits, torch.full_like(LABELS, -1), EXTRA, reduction=reduction)
    (gradient,) = torch.autograd.grad(loss.sum(), logits)
    assert not loss.any()
    assert not gradient.any()


@every_loss
@pytest.mark.parametrize("reduction", REDUCTIONS)
def test_batch_without_known_labels_stays_finite(name, reduction):
    logits = LOGITS.clone().requires_grad_()
    loss = LOSSES[name](logits, torch.full_like(LABELS, -1), EXTRA, reduction=reduction)
    (gradient,) = torch.autograd.grad(loss.sum(), logits)
    assert loss.isfinite().all()
    assert gradient.isfinite().all()


@every_loss
@pytest.mark.parametrize("reduction", ["mean", "sum", "batchmean", "known"])
def test_batch_without_images_costs_nothing(name, reduction):
    logits = torch.zeros(0, 4, requires_grad=True)
    loss = LOSSES[name](logits, torch.zeros(0, 4, dtype=torch.int8), torch.zeros(0, 4), reduction=reduction)
    assert loss == 0


@every_loss
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64], ids=str)
@pytest.mark.parametrize("eps", [0.0, 1e-5])
def test_extreme_logits_stay_finite(name, dtype, eps):
    values = torch.tensor([-1e4, 1e4, 0.0, -100.0, 100.0, -20.0, 20.0])
    logits = values.repeat(3, 1).to(dtype).requires_grad_()
    labels = torch.tensor([[-1], [0], [1]], dtype=torch.int8).expand(3, 7)
    for extra in (values.flip(0), values, -values):
        for reduction in REDUCTIONS:
            loss = LOSSES[name](logits, labels, extra.to(dtype).repeat(3, 1), reduction=reduction, eps=eps)
            (gradient,) = torch.autograd.grad(loss.sum(), logits)
            assert loss.isfinite().all()
            assert gradient.isfinite().all()


@every_loss
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
def test_half_precision_is_computed_in_single(name, dtype):
    half = LOGITS.to(dtype)
    loss = LOSSES[name](half, LABELS, EXTRA.float())
    assert loss.dtype == torch.float32
    assert loss == LOSSES[name](half.float(), LABELS, EXTRA.float())


@every_loss
def test_double_precision_stays_double(name):
    assert LOSSES[name](LOGITS, LABELS, EXTRA).dtype == torch.float64


@pytest.mark.parametrize("name", sorted(LOSSES.keys() - HELD_STILL))
@pytest.mark.parametrize("eps", [0.0, 1e-5])
def test_gradient_is_that_of_the_value(name, eps):
    logits = LOGITS.clone().requires_grad_()
    assert torch.autograd.gradcheck(lambda g: LOSSES[name](g, LABELS, EXTRA, eps=eps), logits)


@every_loss
def test_labels_of_another_shape_are_refused(name):
    with pytest.raises(ValueError, match="one row per image"):
        LOSSES[name](LOGITS, LABELS[:1], EXTRA)


@every_loss
def test_other_integer_and_float_codings_of_labels_give_the_same(name):
    expected = LOSSES[name](LOGITS, LABELS, EXTRA)
    assert LOSSES[name](LOGITS, LABELS.long(), EXTRA) == expected
    assert LOSSES[name](LOGITS, LABELS.double(), EXTRA) == expected
