from __future__ import annotations

import pytest
import torch
from hypothesis import given

from losses.cases import LABELS, LOGITS, batches, modest
from reference.selective import selective as reference
from tagfill.losses import assume_negative, ignore_unknown, selective, top_k_mask

GAMMAS = (0.0, 1.0, 4.0)
MODES = ("negative", "ignore", "ignore_normalized", "ignore_normalised")


@pytest.mark.parametrize(("mode", "value"), [("ignore", 0.330646), ("negative", 0.531494)])
def test_worked_example(mode, value):
    loss = selective(LOGITS, LABELS, gammas=GAMMAS, mode=mode, reduction="sum")
    assert loss.item() == pytest.approx(value, abs=1e-6)


def test_worked_example_of_selecting():
    ignored = top_k_mask(LOGITS.flatten(), (LABELS == -1).flatten(), 2).view_as(LABELS)
    assert ignored.nonzero().tolist() == [[0, 2], [1, 3]]
    loss = selective(LOGITS, LABELS, gammas=GAMMAS, ignore=ignored, reduction="sum")
    assert loss.item() == pytest.approx(0.341942, abs=1e-6)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("clip", [0.0, 0.05])
@pytest.mark.parametrize("eps", [0.0, 1e-8, 1e-2])
@modest
@given(batch=batches())
def test_equals_the_formula(mode, clip, eps, batch):
    gammas, alphas, mask = (0.5, 1.0, 4.0), (2.0, 1.0, 0.5), batch.extra > 0
    options = {"gammas": gammas, "alphas": alphas, "clip": clip, "mode": mode, "eps": eps}
    loss = selective(batch.logits, batch.labels, ignore=mask, reduction="sum", **options)
    expected = reference(batch.logits.tolist(), batch.labels.tolist(), ignore=mask.tolist(), **options)
    assert loss.item() == pytest.approx(expected, rel=1e-9, abs=1e-12)


def test_focal_weights_have_no_gradient():
    """What is left is the cross-entropy's own gradient, weighted: −(1−f)^γ₊ (1−f), (1−q)^γ f."""
    logits = LOGITS.clone().requires_grad_()
    selective(logits, LABELS, gammas=(1.0, 2.0, 3.0), reduction="sum").backward()
    f = LOGITS.sigmoid()
    gamma = torch.tensor([[1.0, 3.0, 3.0, 2.0], [3.0, 1.0, 3.0, 3.0]], dtype=torch.float64)
    expected = torch.where(LABELS == 1, -((1 - f) ** gamma) * (1 - f), f**gamma * f)
    torch.testing.assert_close(logits.grad, expected)


@pytest.mark.parametrize(("mode", "plain"), [("negative", assume_negative), ("ignore", ignore_unknown)])
def test_without_focus_it_is_cross_entropy(mode, plain):
    loss = selective(LOGITS, LABELS, gammas=(0.0, 0.0, 0.0), mode=mode)
    assert loss.item() == pytest.approx(plain(LOGITS, LABELS).item(), rel=1e-12)


def test_ignoring_speaks_of_unknown_labels_only():
    everything = torch.ones_like(LABELS, dtype=torch.bool)
    assert selective(LOGITS, LABELS, ignore=everything) == selective(LOGITS, LABELS, mode="ignore")


def test_images_with_few_known_labels_get_more_weight():
    logits, labels = torch.zeros(2, 3), torch.tensor([[1, -1, -1], [1, 1, 1]])
    rows = selective(logits, labels, gammas=GAMMAS, mode="ignore_normalized", reduction="none")
    plain = selective(logits, labels, gammas=GAMMAS, mode="ignore", reduction="none")
    torch.testing.assert_close(rows[0], plain[0] * 1.5)
    torch.testing.assert_close(rows[1], plain[1] * 1.25)


def test_clamped_logarithms_are_flat_below_eps():
    logits = torch.tensor([[-30.0]], dtype=torch.float64, requires_grad=True)
    loss = selective(logits, torch.tensor([[1]]), eps=1e-8)
    loss.backward()
    assert loss.item() == pytest.approx(18.420681, abs=1e-6)
    assert not logits.grad.any()


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"mode": "select"}, "no mode 'select'. Known: negative, ignore, ignore_normalized"),
        ({"ignore": LABELS[:1] == 1}, "labels are 2×4 and the ignored 1×4"),
    ],
)
def test_what_makes_no_sense_is_refused(options, sentence):
    with pytest.raises(ValueError, match=sentence):
        selective(LOGITS, LABELS, **options)


def test_the_likeliest_of_each_row_the_first_among_equals():
    logits = torch.tensor([[5.0, 1.0, 3.0, 3.0], [0.0, 0.0, 0.0, 0.0]])
    among = torch.tensor([[False, True, True, True], [False, False, False, True]])
    assert top_k_mask(logits, among, 1).tolist() == [[False, False, True, False], [False, False, False, True]]
    assert top_k_mask(logits, among, 9).equal(among)
    assert not top_k_mask(logits, among, 0).any()
