from __future__ import annotations

from math import exp

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from memory.cases import modest
from reference.soft_exposure import taken
from tagfill.labels import LabelMatrix
from tagfill.methods import soft_exposure
from tagfill.methods.soft_exposure import TemperatureRule, distances_to_images, distances_to_labels

each_reduction = pytest.mark.parametrize(("nearest", "reduce"), [(1, "min"), (5, "median5")])
apart = st.sampled_from([0.0, 0.125, 0.25, 0.5, 0.75, 1.0])


@each_reduction
@modest
@given(
    between=arrays(np.float32, (8, 8), elements=apart), known=arrays(np.bool_, (3, 8)), step=st.sampled_from([1, 99])
)
def test_distances_to_known_labels_equal_a_loop(nearest, reduce, between, known, step):
    between = np.minimum(between, between.T)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(soft_exposure, "_ENTRIES", step)
        found = distances_to_labels(between, known, nearest)
    for n in range(3):
        for c in range(8):
            expected = taken([float(between[c, o]) for o in range(8) if known[n, o]], reduce)
            assert found[n, c] == (np.inf if expected is None else expected)


@each_reduction
@modest
@given(
    labels=arrays(np.int8, (9, 3), elements=st.sampled_from([-1, 0, 1])),
    index=arrays(np.int64, (4, 7), elements=st.integers(0, 8)),
    distance=arrays(np.float32, (4, 7), elements=apart),
    state=st.sampled_from([0, 1]),
)
def test_distances_to_alike_images_equal_a_loop(nearest, reduce, labels, index, distance, state):
    found = distances_to_images(index, distance, LabelMatrix.from_dense(labels), state, nearest)
    for n in range(4):
        for c in range(3):
            with_label = [float(d) for m, d in zip(index[n], distance[n], strict=True) if labels[m, c] == state]
            expected = taken(with_label, reduce)
            assert found[n, c] == (np.inf if expected is None else expected)


def test_what_was_looked_at_and_could_not_be_told_is_no_evidence():
    undecided = LabelMatrix.from_entries(np.array([1]), np.array([0]), np.array([-1]), (2, 1))
    for state in (0, 1):
        assert np.isinf(distances_to_images(np.array([[1]]), np.array([[0.1]], np.float32), undecided, state)).all()


def one_row(present: list[float], absent: list[float], **options) -> list[float]:
    asked = np.ones((1, len(present)), dtype=bool)
    rows = np.array([present], np.float32), np.array([absent], np.float32)
    return TemperatureRule(**options).temperatures(*rows, asked)[0].tolist()


@pytest.mark.parametrize(
    ("distance", "size"), [(0.0, 148.413), (0.25, 42.521), (0.5, 12.182), (0.75, 3.490), (1.0, 1.0)]
)
def test_worked_example_of_temperatures(distance, size):
    assert one_row([2.0, distance], [distance, 1.0], normalise="separate")[0] == pytest.approx(-size, abs=1e-3)


def test_nearer_to_present_is_positive_and_a_tie_is_negative():
    signs = np.sign(one_row([0.2, 0.5, 0.5, 1.0], [0.5, 0.2, 0.5, 1.0]))
    assert signs.tolist() == [1, -1, -1, -1]


def test_no_evidence_at_all_is_a_hard_negative():
    assert one_row([np.inf, 0.3], [np.inf, 1.0])[0] == -1


def test_one_maximum_for_both_signs_keeps_their_order_and_two_do_not():
    present, absent = [0.4, 0.4], [0.5, 1.0]
    assert np.sign(one_row(present, absent)).tolist() == [1, 1]
    assert np.sign(one_row(present, absent, normalise="separate")).tolist() == [-1, -1]


def test_the_farthest_label_of_an_image_is_scaled_to_one():
    assert one_row([0.1, 0.5], [0.2, 0.3])[1] == pytest.approx(-exp(5 * (1 - 0.3 / 0.5)), rel=1e-5)


def test_labels_that_are_not_asked_for_have_no_temperature_and_no_say():
    rows = np.array([[0.1, 9.0]], np.float32), np.array([[0.2, 9.0]], np.float32)
    found = TemperatureRule().temperatures(*rows, np.array([[True, False]]))[0]
    assert found.tolist() == pytest.approx([exp(5 * 0.5), 0], rel=1e-5)


def test_inverse_is_hard_where_the_paper_is_soft():
    assert one_row([0.0, 1.0], [1.0, 1.0], temperature="inverse") == pytest.approx([1.0, -exp(5)])


def test_gamma_is_added_to_both_signs():
    assert one_row([0.0, 1.0], [1.0, 1.0], gamma=0.25) == pytest.approx([exp(5) + 0.25, -0.75])


def test_distances_of_zero_throughout_are_not_divided_by():
    assert one_row([0.0], [0.0]) == pytest.approx([-exp(5)])


def test_any_beta_gives_numbers():
    assert np.isfinite(one_row([0.0, 1.0], [1.0, 0.5], beta=1e4)).all()
