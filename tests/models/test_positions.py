from __future__ import annotations

import numpy as np
import pytest
import torch

from reference import query as reference
from tagfill.models.query import sine_positions


@pytest.mark.parametrize(("height", "width", "channels"), [(7, 7, 16), (3, 5, 8), (5, 3, 8), (1, 1, 4), (14, 14, 32)])
def test_the_table_is_that_of_the_formula(height, width, channels):
    expected = reference.positions(height, width, channels)
    np.testing.assert_allclose(sine_positions(height, width, channels).numpy(), expected, rtol=0, atol=1e-6)


def test_a_few_values_by_hand():
    """The last row is one full turn; with d = 8 the frequencies of a half are 1 and 1/100."""
    table = sine_positions(4, 2, 8).reshape(4, 2, 8)
    turn = 2 * np.pi
    torch.testing.assert_close(table[3, 0, :2], torch.tensor([0.0, 1.0]), rtol=0, atol=2e-6)
    torch.testing.assert_close(table[0, 0, :2], torch.tensor([1.0, 0.0]), rtol=0, atol=2e-6)
    assert table[3, 0, 2].item() == pytest.approx(np.sin(turn / 100), abs=1e-6)
    assert table[2, 0, 4].item() == pytest.approx(np.sin(turn / 2), abs=2e-6)


def test_a_table_made_in_inference_serves_training():
    with torch.inference_mode():
        sine_positions(2, 9, 8)
    weight = torch.ones(8, requires_grad=True)
    (sine_positions(2, 9, 8) * weight).sum().backward()
    assert weight.grad is not None
