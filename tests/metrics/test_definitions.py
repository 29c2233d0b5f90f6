"""The definitions of average precision, each by its own walk down the ranking."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from reference import interpolated_precision as reference
from tagfill.metrics import average_precision, mean_average_precision

modest = settings(max_examples=40, deadline=None)
SHAPES = st.tuples(st.integers(1, 25), st.just(2))
SCORES = st.one_of(st.sampled_from([0.0, 0.25, 0.5]), st.floats(-10, 10))


@pytest.mark.parametrize("definition", ["voc12", "voc07", "rank"])
@modest
@given(data=st.data())
def test_equals_the_definition(definition, data):
    shape = data.draw(SHAPES)
    scores = data.draw(arrays(np.float64, shape, elements=SCORES))
    labels = data.draw(arrays(np.int8, shape, elements=st.sampled_from([-1, 0, 1])))

    found = average_precision(scores, labels, definition=definition)

    for column, value in enumerate(found):
        if (labels[:, column] == 1).any():
            expected = getattr(reference, definition)(scores[:, column].tolist(), labels[:, column].tolist())
            assert value == pytest.approx(expected, abs=1e-12)
        else:
            assert np.isnan(value)


def test_one_ranking_by_all_definitions():
    relevance = np.array([[1, 0, 0, 1, 1, 0, 0, 1]]).T
    scores = np.arange(8, 0, -1.0)[:, None]

    found = {name: average_precision(scores, relevance, definition=name).item() for name in ("step", "voc12", "voc07")}

    assert found == pytest.approx({"step": 0.65, "voc12": 0.675, "voc07": 7.5 / 11}, abs=1e-12)


@modest
@given(data=st.data())
def test_interpolation_never_lowers(data):
    shape = data.draw(SHAPES)
    scores = data.draw(arrays(np.float64, shape, elements=SCORES))
    labels = np.ones(shape, np.int8)
    labels[::2] = 0
    labels[0] = 1

    assert (average_precision(scores, labels, definition="voc12") >= average_precision(scores, labels) - 1e-12).all()


def test_mean_takes_the_definition():
    scores, labels = np.arange(8, 0, -1.0)[:, None], np.array([[1, 0, 0, 1, 1, 0, 0, 1]]).T
    assert mean_average_precision(scores, labels, definition="voc12") == pytest.approx(0.675)


def test_unknown_definition_is_refused_with_the_known_ones():
    with pytest.raises(ValueError, match=r"no average precision 'voc10'\. Known: step, rank, voc12, voc07"):
        average_precision([[0.1]], [[1]], definition="voc10")
