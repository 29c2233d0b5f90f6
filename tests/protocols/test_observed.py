from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tagfill.protocols.simulate import flagged

FLAGS = st.none() | st.lists(st.sampled_from(["crowd", "difficult"]), max_size=2)


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(FLAGS, st.booleans()), min_size=1))
def test_chosen_rows_get_one_flag_more(rows):
    flags, chosen = [flag for flag, _ in rows], np.array([choice for _, choice in rows])

    found = flagged(pa.array(flags, pa.list_(pa.string())), chosen)

    assert found.to_pylist() == [[*(flag or []), "observed"] if choice else flag for flag, choice in rows]


@pytest.mark.parametrize("start", [0, 1, 2])
def test_slices_of_a_column_are_read_from_their_start(start):
    flags = pa.array([["crowd"], None, ["group", "difficult"]], pa.list_(pa.string())).slice(start)

    found = flagged(flags, np.ones(len(flags), dtype=bool))

    assert found.to_pylist() == [[*(flag or []), "observed"] for flag in flags.to_pylist()]
