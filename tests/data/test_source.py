from __future__ import annotations

import numpy as np
import pytest

from tagfill.data import chunks


@pytest.mark.parametrize(("size", "lengths"), [(0, []), (3, [3]), (4, [4]), (9, [4, 4, 1])])
def test_chunks_hold_everything_in_order(size, lengths):
    parts = chunks(np.arange(size), 4)
    assert [len(part) for part in parts] == lengths
    assert [number for part in parts for number in part] == list(range(size))
