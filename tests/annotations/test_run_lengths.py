from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import array_shapes, arrays

from reference.rle import decode
from tagfill.annotations.run_lengths import pixels


def characters(number: int) -> bytes:
    """A signed number in characters of five bits."""
    digits = []
    while True:
        digit, number = number % 32, number // 32
        done = number == (-1 if digit >= 16 else 0)
        digits.append(48 + digit + (0 if done else 32))
        if done:
            return bytes(digits)


def encode(mask: np.ndarray) -> bytes:
    runs, turn = [0], False
    for pixel in mask.ravel(order="F"):
        if bool(pixel) is not turn:
            runs.append(0)
            turn = not turn
        runs[-1] += 1
    return b"".join(characters(run - (runs[at - 2] if at > 2 else 0)) for at, run in enumerate(runs))


@given(arrays(np.bool_, array_shapes(min_dims=2, max_dims=2, max_side=40), elements=st.booleans()))
@settings(deadline=None)
def test_runs_cover_every_pixel(mask):
    rle = encode(mask)
    assert np.array_equal(decode(rle, *mask.shape), mask)
    assert pixels(rle) == mask.size


@pytest.mark.parametrize("rle", [b"", b"\x00", b"\xff", b"2P", b"O", b"o" * 40 + b"0"])
def test_bytes_that_are_no_run_lengths(rle):
    assert pixels(rle) is None
