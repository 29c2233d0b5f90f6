from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from losses.cases import LABELS, LOGITS, batches, modest
from reference.patch import focal_entry
from tagfill.losses import focal, ignore_unknown, likeliest

EVERYBODY = torch.ones(2, 4, dtype=torch.bool)


@modest
@given(batches(), st.tuples(*[st.floats(0, 4)] * 3), st.tuples(*[st.floats(0, 3)] * 3), st.sampled_from([0.0, 1e-5]))
def test_equals_the_formula(batch, gammas, weights, eps):
    chosen = batch.extra > 0
    loss = focal(
        batch.logits, batch.labels, gammas=gammas, weights=weights, as_negative=chosen, reduction="none", eps=eps
    )
    rows = zip(batch.logits.tolist(), batch.labels.tolist(), chosen.tolist(), strict=True)
    expected = [[focal_entry(*entry, gammas, weights, eps) for entry in zip(*row, strict=True)] for row in rows]
    torch.testing.assert_close(loss, torch.tensor(expected, dtype=torch.float64).view_as(loss), rtol=1e-9, atol=1e-12)


def test_without_focus_it_is_cross_entropy_of_what_is_known():
    assert focal(LOGITS, LABELS, gammas=(0, 0, 0)).item() == pytest.approx(ignore_unknown(LOGITS, LABELS).item())


def test_the_focal_factor_has_no_gradient_of_its_own():
    logits = LOGITS.clone().requires_grad_()
    focal(logits, LABELS, gammas=(1, 2, 3), as_negative=EVERYBODY, reduction="sum").backward()
    f = LOGITS.sigmoid()
    expected = torch.where(LABELS == 1, -((1 - f) ** 2), torch.where(LABELS == 0, f**3, f**4))
    torch.testing.assert_close(logits.grad, expected)


def test_a_choice_of_another_shape_is_refused():
    with pytest.raises(ValueError, match="labels are 2×4 and as_negative is 1×4"):
        focal(LOGITS, LABELS, as_negative=EVERYBODY[:1])


def test_the_likeliest_of_each_row_the_first_among_equals():
    logits = torch.tensor([[5.0, 1.0, 3.0, 3.0], [0.0, 0.0, 0.0, 0.0]])
    among = torch.tensor([[False, True, True, True], [False, False, False, True]])
    assert likeliest(logits, among, 1).tolist() == [[False, False, True, False], [False, False, False, True]]
    assert likeliest(logits, among, 9).equal(among)
    assert not likeliest(logits, among, 0).any()
