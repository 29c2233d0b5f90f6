from __future__ import annotations

import numpy as np
import pytest

from tagfill.data.feature_cache import dequantize, quantization_error, quantization_problem, quantize


def bounded_features(rows: int = 70, channels: int = 6) -> np.ndarray:
    """As after a ReLU6, with channels of different size and one that is always 0."""
    drawn = np.random.default_rng(0).normal(0, 3, (rows, 2, 2, channels)) * np.linspace(0, 1, channels)
    return np.clip(drawn, 0, 6).astype(np.float32)


def test_each_channel_is_within_half_a_step_of_its_own():
    cells = bounded_features()
    stored, scale = quantize(cells)
    again = np.empty_like(cells)
    for row in range(len(cells)):
        dequantize(stored[row], scale, again[row])
    for channel in range(cells.shape[-1]):
        step = cells[..., channel].max() / 255
        assert np.abs(again[..., channel] - cells[..., channel]).max() <= step / 2 * 1.0001


def test_the_largest_value_of_a_channel_is_not_cut_off():
    cells = bounded_features()
    stored, scale = quantize(cells)
    np.testing.assert_allclose((stored * scale).max((0, 1, 2)), cells.max((0, 1, 2)), rtol=1e-6)


def test_zeros_stay_zeros():
    stored, scale = quantize(np.zeros((3, 2, 2, 4), np.float32))
    assert not stored.any()
    assert np.isfinite(scale).all()


def test_features_within_their_bound_may_be_bytes():
    assert quantization_problem(bounded_features(), 6.0) is None
    assert quantization_error(bounded_features()) < 0.01


@pytest.mark.parametrize(
    ("change", "sentence"),
    [(lambda cells: cells * 2, "to 12, outside 0 to 6"), (lambda cells: cells - 1, "from -1 to 5, outside 0 to 6")],
)
def test_features_beyond_their_bound_may_not(change, sentence):
    problem = quantization_problem(change(bounded_features()), 6.0)
    assert problem is not None
    assert sentence in problem


def test_features_whose_steps_would_be_too_coarse_may_not():
    cells = np.full((4096, 1, 1, 1), 0.04, np.float32)
    cells[0] = 6.0
    problem = quantization_problem(cells, 6.0)
    assert problem is not None
    assert "8 bits would change them by" in problem
