from __future__ import annotations

from fractions import Fraction

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from losses.cases import LABELS, LOGITS, batches, modest
from reference.large_loss import large_loss as reference
from reference.large_loss import large_loss_mask as reference_entries
from tagfill.losses import assume_negative, ignore_unknown, large_loss, large_loss_mask
from tagfill.losses.large_loss import entry_count, large_loss_from_mask

MODES = ("reject", "correct")
percents = st.integers(0, 120)


@pytest.mark.parametrize(("mode", "value"), [("reject", 0.161399), ("correct", 0.307302)])
def test_worked_example(mode, value):
    assert large_loss(LOGITS, LABELS, rate=0.25, mode=mode).item() == pytest.approx(value, abs=1e-6)
    assert large_loss_mask(LOGITS, LABELS, rate=0.25).nonzero().tolist() == [[0, 2], [1, 3]]


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("candidates", ["unknown", "not_positive"])
@pytest.mark.parametrize("eps", [0.0, 1e-5])
@modest
@given(batch=batches(), percent=percents)
def test_equals_the_formula(mode, candidates, eps, batch, percent):
    loss = large_loss(
        batch.logits, batch.labels, rate=Fraction(percent, 100), mode=mode, candidates=candidates, eps=eps
    )
    rows = batch.logits.tolist(), batch.labels.tolist()
    expected = reference(*rows, percent, mode == "correct", candidates == "not_positive", eps)
    assert loss.item() == pytest.approx(expected, rel=1e-9, abs=1e-12)


@pytest.mark.parametrize("strict", [False, True])
@modest
@given(batch=batches(), percent=percents)
def test_chosen_entries_are_those_of_a_sort(strict, batch, percent):
    logits = batch.logits.round()  # many ties
    found = large_loss_mask(logits, batch.labels, rate=percent / 100, strict=strict)
    assert found.tolist() == reference_entries(logits.tolist(), batch.labels.tolist(), percent, strict=strict)


@pytest.mark.parametrize("mode", MODES)
@modest
@given(batch=batches())
def test_rate_zero_assumes_negatives(mode, batch):
    found = large_loss(batch.logits, batch.labels, rate=0, mode=mode, reduction="none")
    torch.testing.assert_close(found, assume_negative(batch.logits, batch.labels, reduction="none"))


@pytest.mark.parametrize("rate", [0.9, 1.0, 7.5])
def test_more_than_all_unknowns_leaves_the_known_alone(rate):
    """The released code would reject observed positives and negatives here."""
    assert torch.equal(large_loss_mask(LOGITS, LABELS, rate=rate), LABELS == -1)
    assert large_loss(LOGITS, LABELS, rate=rate) == ignore_unknown(LOGITS, LABELS)


def test_batch_without_unknowns_is_plain():
    known = torch.tensor([[1, 0, 1, 0], [0, 0, 1, 1]])
    assert not large_loss_mask(LOGITS, known, rate=1.0).any()
    assert large_loss(LOGITS, known, rate=1.0) == assume_negative(LOGITS, known)


@modest
@given(batch=batches(), percent=percents)
def test_observed_labels_are_never_chosen(batch, percent):
    large = large_loss_mask(batch.logits, batch.labels, rate=percent / 100)
    assert not large[batch.labels != -1].any()


def test_explicit_negatives_are_candidates_on_request():
    logits = torch.tensor([[9.0, 5.0, 1.0]])
    labels = torch.tensor([[1, 0, -1]])
    assert large_loss_mask(logits, labels, rate=1 / 3).tolist() == [[False, False, True]]
    assert large_loss_mask(logits, labels, rate=1 / 3, candidates="not_positive").tolist() == [[False, True, False]]


def test_all_ties_at_the_threshold_are_chosen():
    logits, labels = torch.tensor([[2.0, 1.0, 1.0, 1.0, 0.0]]), torch.full((1, 5), -1)
    assert large_loss_mask(logits, labels, rate=0.4).tolist() == [[True, True, True, True, False]]
    assert large_loss_mask(logits, labels, rate=0.4, strict=True).tolist() == [[True, False, False, False, False]]


def test_ranking_is_over_the_whole_batch():
    """Not per image and not per class: both largest losses lie in one image, and in one class."""
    logits = torch.tensor([[5.0, 4.0], [1.0, 0.0], [3.0, 2.0]])
    unknown = torch.full((3, 2), -1)
    assert large_loss_mask(logits, unknown, rate=1 / 3).nonzero().tolist() == [[0, 0], [0, 1]]
    assert large_loss_mask(logits.T.contiguous(), unknown.T, rate=1 / 3).nonzero().tolist() == [[0, 0], [1, 0]]


def test_the_share_is_of_all_entries():
    """25 % of eight entries are two, although only three are unknown."""
    labels = torch.tensor([[1, 0, 0, -1], [1, 0, -1, -1]])
    assert int(large_loss_mask(torch.arange(8.0).view(2, 4), labels, rate=0.25).sum()) == 2


@pytest.mark.parametrize(
    ("steps", "percent", "entries"), [(3, 0.1, 1000), (9, 0.5, 200), (7, 0.2, 500), (6, 0.1, 1000), (9, 0.1, 80 * 1000)]
)
def test_counts_are_not_rounded_up_by_floating_point(steps, percent, entries):
    exact = round(steps * percent * entries / 100)
    assert entry_count(steps * percent / 100, entries) == exact
    assert entry_count(Fraction(str(percent)) * steps / 100, entries) == exact


@given(thousandths=st.integers(0, 1000), steps=st.integers(0, 30), entries=st.integers(1, 2_000_000))
def test_counts_equal_those_of_integers(thousandths, steps, entries):
    exact = -(-thousandths * steps * entries // 100_000)
    assert entry_count(steps * (thousandths / 1000) / 100, entries) == exact


def test_a_little_more_than_a_whole_number_is_rounded_up():
    assert entry_count(0.0020001, 1000) == 3


@pytest.mark.parametrize("mode", MODES)
def test_chosen_entries_do_not_influence_a_rejection_and_pull_up_a_correction(mode):
    logits = LOGITS.clone().requires_grad_()
    large_loss(logits, LABELS, rate=0.25, mode=mode, reduction="sum").backward()
    pull = logits.grad[[0, 1], [2, 3]]
    if mode == "reject":
        assert not pull.any()
    else:
        torch.testing.assert_close(pull, LOGITS[[0, 1], [2, 3]].sigmoid() - 1)


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"mode": "flip"}, "no mode 'flip'. Known: reject, correct"),
        ({"candidates": "all"}, "no candidates 'all'. Known: unknown, not_positive"),
        ({"rate": -0.1}, "rate is -0.1; it is a share"),
    ],
)
def test_what_makes_no_sense_is_refused(options, sentence):
    with pytest.raises(ValueError, match=sentence):
        large_loss(LOGITS, LABELS, **{"rate": 0.1, **options})


def test_entries_of_another_shape_are_refused():
    with pytest.raises(ValueError, match="labels are 2×4 and the entries 1×4"):
        large_loss_from_mask(LOGITS, LABELS, LABELS[:1] == -1)
