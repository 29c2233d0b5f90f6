from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from protocols.cases import made
from tagfill.errors import DatasetError
from tagfill.protocols import budget, describe, summary
from tagfill.protocols.simulate import add_flag

FLAGS = st.none() | st.lists(st.sampled_from(["crowd", "difficult"]), max_size=2)


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(FLAGS, st.booleans()), min_size=1))
def test_the_flag_is_appended_to_chosen_rows(rows):
    flags, chosen = [flag for flag, _ in rows], np.array([choice for _, choice in rows])

    found = add_flag(pa.array(flags, pa.list_(pa.string())), chosen)

    assert found.to_pylist() == [[*(flag or []), "observed"] if choice else flag for flag, choice in rows]


@pytest.mark.parametrize("start", [0, 1, 2])
def test_sliced_columns(start):
    flags = pa.array([["crowd"], None, ["group", "difficult"]], pa.list_(pa.string())).slice(start)

    found = add_flag(flags, np.ones(len(flags), dtype=bool))

    assert found.to_pylist() == [[*(flag or []), "observed"] for flag in flags.to_pylist()]


DATA = made()


def test_summary_adds_shares_to_the_record():
    part = budget(DATA, percent=50, kind="I", seed=4)

    facts = summary(part)

    assert facts["name"] == "budget"
    assert facts["kept"]["share"] == 0.5
    assert facts["kept"]["positives_per_image"] == facts["kept"]["positives"] / 60


def test_description():
    part = budget(DATA, percent=50, kind="I", seed=4)
    kept = part.protocol["kept"]

    lines = describe(part).splitlines()

    assert lines[0].startswith("budget (percent=50, kind=I, ")
    assert lines[0].endswith("seed=4) of made")
    assert lines[1] == "images: train 60, val 20, test 10"
    assert lines[2] == (
        f"kept for training: {kept['positives']} positives, {kept['negatives']} negatives; 240 unknown (50 % known)"
    )
    assert lines[4] == "annotation time: 240 s"


def test_a_dataset_that_was_not_simulated_is_refused():
    with pytest.raises(DatasetError, match="made was not simulated"):
        summary(DATA)
