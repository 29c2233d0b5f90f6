from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from numpy.typing import NDArray
from sklearn.metrics import average_precision_score

from reference import interpolated_precision
from reference.average_precision import average_precision as reference
from tagfill.metrics import average_precision, counted_average_precision, group_means, mean_average_precision

modest = settings(max_examples=40, deadline=None)

SCORES = {
    "a few distinct": (np.float64, st.sampled_from([-1.5, 0.0, 0.25, 0.5])),
    "constant": (np.float64, st.just(0.3)),
    "double": (np.float64, st.floats(-1e6, 1e6)),
    "single": (np.float32, st.floats(0, 1, width=32)),
    "half": (np.float16, st.floats(-100, 100, width=16)),
}


def cases(kind: str, states: list[int]) -> st.SearchStrategy[tuple[NDArray[np.floating], NDArray[np.int8]]]:
    """Scores and labels of up to 40 images and 4 classes."""
    dtype, elements = SCORES[kind]
    shapes = st.tuples(st.integers(1, 40), st.integers(1, 4))
    return shapes.flatmap(
        lambda shape: st.tuples(
            arrays(dtype, shape, elements=elements), arrays(np.int8, shape, elements=st.sampled_from(states))
        )
    )


def judged(scores: NDArray[np.floating], labels: NDArray[np.int8]) -> NDArray[np.float64]:
    """scikit-learn's value of each class over its known labels, NaN without positives."""
    values = np.full(scores.shape[1], np.nan)
    for column in range(scores.shape[1]):
        known = labels[:, column] != -1
        if (labels[:, column] == 1).any():
            values[column] = average_precision_score(labels[known, column], scores[known, column])
    return values


@pytest.mark.parametrize("states", [[0, 1], [-1, 0, 1], [-1, 1]], ids=["complete", "partial", "positives only"])
@pytest.mark.parametrize("kind", SCORES)
@modest
@given(data=st.data())
def test_equals_scikit_learn(kind, states, data):
    scores, labels = data.draw(cases(kind, states))
    np.testing.assert_allclose(average_precision(scores, labels), judged(scores, labels), rtol=0, atol=1e-12)


@pytest.mark.parametrize("kind", SCORES)
@modest
@given(data=st.data())
def test_equals_the_definition(kind, data):
    scores, labels = data.draw(cases(kind, [-1, 0, 1]))
    expected = [reference(scores[:, i].tolist(), labels[:, i].tolist()) for i in range(scores.shape[1])]
    np.testing.assert_allclose(average_precision(scores, labels), expected, rtol=0, atol=1e-12)


@modest
@given(case=cases("a few distinct", [-1, 0, 1]), random=st.randoms(use_true_random=False))
def test_order_of_images_does_not_change_a_bit(case, random):
    scores, labels = case
    order = random.sample(range(len(scores)), len(scores))
    np.testing.assert_array_equal(average_precision(scores[order], labels[order]), average_precision(scores, labels))


@modest
@given(case=cases("a few distinct", [-1, 0, 1]))
def test_only_the_order_of_scores_matters(case):
    scores, labels = case
    np.testing.assert_array_equal(average_precision(np.exp(scores), labels), average_precision(scores, labels))


def test_ranking_from_the_literature():
    relevance = np.array([[1, 0, 0, 1, 1, 0, 0, 1]]).T
    scores = np.arange(8, 0, -1.0)[:, None]
    assert average_precision(scores, relevance).item() == pytest.approx(0.65, abs=1e-12)


def test_tied_images_count_together():
    assert average_precision([[0.5], [0.5], [0.5], [0.5]], [[1], [0], [0], [0]]).item() == 0.25


def test_class_of_positives_only_is_perfect():
    assert average_precision([[0.1], [0.9]], [[1], [1]]).item() == 1


def test_class_without_known_positive_is_nan():
    assert np.isnan(average_precision([[0.1, 0.2], [0.9, 0.3]], [[0, -1], [-1, -1]])).all()


def test_unknown_images_are_left_out():
    assert average_precision([[0.9], [0.8], [0.7]], [[-1], [1], [0]]).item() == 1


def test_infinite_scores_are_ranked():
    assert average_precision([[np.inf], [0.0], [-np.inf]], [[0], [1], [1]]).item() == pytest.approx((1 / 2 + 2 / 3) / 2)


def test_more_classes_than_are_read_at_once():
    random = np.random.default_rng(0)
    scores, labels = random.random((30, 150)), random.integers(-1, 2, (30, 150))
    np.testing.assert_allclose(average_precision(scores, labels), judged(scores, labels), rtol=0, atol=1e-12)


def test_nan_score_is_refused_and_located():
    scores = np.zeros((3, 70))
    scores[2, 65] = np.nan
    with pytest.raises(ValueError, match="score is NaN in row 2, column 65"):
        average_precision(scores, np.zeros((3, 70)))


def test_invalid_label_is_refused_and_located():
    with pytest.raises(ValueError, match="none of 1, 0, -1 in row 1, column 0"):
        average_precision([[0.1], [0.2]], [[1], [2]])


@pytest.mark.parametrize("labels", [[[1]], [1, 0], [[1, 0], [0, 1]]])
def test_shapes_must_agree(labels):
    with pytest.raises(ValueError, match=r"must both be \(images, classes\)"):
        average_precision([[0.1], [0.2]], labels)


def test_mean_skips_a_class_without_known_negatives_or_counts_it_one():
    scores, labels = np.array([[0.9, 0.9], [0.8, 0.1], [0.7, 0.2]]), np.array([[0, 1], [1, -1], [0, 1]])
    assert mean_average_precision(scores, labels) == 0.5
    assert mean_average_precision(scores, labels, empty="zero") == 0.75
    assert np.isnan(mean_average_precision(scores[:, 1:], labels[:, 1:]))


def test_mean_skips_classes_without_positives_or_counts_them_zero():
    scores, labels = np.eye(3), np.array([[1, 0, -1], [0, 0, -1], [0, 0, -1]])
    assert mean_average_precision(scores, labels) == 1
    assert mean_average_precision(scores, labels, empty="zero") == 0.5  # nothing is known of the third class


@modest
@given(case=cases("a few distinct", [0, 1]))
def test_mean_is_that_of_the_classes(case):
    scores, labels = case
    values = judged(scores, labels)
    np.testing.assert_allclose(
        mean_average_precision(scores, labels, empty="zero"), np.nan_to_num(values).mean(), rtol=0, atol=1e-12
    )


def test_mean_of_no_class_is_nan():
    assert np.isnan(mean_average_precision([[0.1]], [[-1]], empty="zero"))


def test_unknown_rule_is_refused_with_the_known_ones():
    with pytest.raises(ValueError, match="no rule 'one'"):
        mean_average_precision([[0.1]], [[1]], empty="one")


OTHER_SHAPES = st.tuples(st.integers(1, 25), st.just(2))
OTHER_SCORES = st.one_of(st.sampled_from([0.0, 0.25, 0.5]), st.floats(-10, 10))


@pytest.mark.parametrize("definition", ["voc12", "voc07", "rank"])
@modest
@given(data=st.data())
def test_equals_the_reference_of_each_definition(definition, data):
    shape = data.draw(OTHER_SHAPES)
    scores = data.draw(arrays(np.float64, shape, elements=OTHER_SCORES))
    labels = data.draw(arrays(np.int8, shape, elements=st.sampled_from([-1, 0, 1])))

    found = average_precision(scores, labels, definition=definition)

    for column, value in enumerate(found):
        if (labels[:, column] == 1).any():
            expected = getattr(interpolated_precision, definition)(
                scores[:, column].tolist(), labels[:, column].tolist()
            )
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
    shape = data.draw(OTHER_SHAPES)
    scores = data.draw(arrays(np.float64, shape, elements=OTHER_SCORES))
    labels = np.ones(shape, np.int8)
    labels[::2] = 0
    labels[0] = 1

    assert (average_precision(scores, labels, definition="voc12") >= average_precision(scores, labels) - 1e-12).all()


def test_mean_uses_the_definition():
    scores, labels = np.arange(8, 0, -1.0)[:, None], np.array([[1, 0, 0, 1, 1, 0, 0, 1]]).T
    assert mean_average_precision(scores, labels, definition="voc12") == pytest.approx(0.675)


def test_unknown_definition_is_refused_with_the_known_ones():
    with pytest.raises(ValueError, match=r"no average precision 'voc10'\. Known: step, rank, voc12, voc07"):
        average_precision([[0.1]], [[1]], definition="voc10")


def test_groups_go_from_rare_to_frequent():
    assert group_means([1.0, 2.0, 3.0, 4.0], [40, 30, 20, 10], groups=2).tolist() == [3.5, 1.5]


def test_a_class_without_value_stays_in_its_group():
    """Skipping it before the sort would move every rarer class of the next group down."""
    values, annotations = [0.1, np.nan, 0.3, 0.4, 0.5, 0.6], [1, 2, 3, 4, 5, 6]
    assert group_means(values, annotations, groups=3).tolist() == pytest.approx([0.1, 0.35, 0.55])


@pytest.mark.parametrize("definition", ["step", "voc12"])
def test_groups_of_equal_size_average_to_the_mean_if_empty_classes_count_as_zero(definition):
    random = np.random.default_rng(3)
    scores, labels = random.random((30, 10)), random.integers(-1, 2, (30, 10))
    labels[:, [1, 6]] = np.minimum(labels[:, [1, 6]], 0)  # no positive
    values = counted_average_precision(scores, labels, empty="zero", definition=definition)
    groups = group_means(values, random.permutation(10))
    mean = mean_average_precision(scores, labels, empty="zero", definition=definition)
    assert groups.mean() == pytest.approx(mean)
    assert np.nanmean(average_precision(scores, labels, definition=definition)) > mean


def test_a_group_without_values_is_nan():
    assert np.isnan(group_means([np.nan, 0.5], [1, 2], groups=2)[0])


def test_permuting_classes_changes_nothing():
    random = np.random.default_rng(0)
    values, annotations, order = random.random(23), random.permutation(23), random.permutation(23)
    np.testing.assert_allclose(
        group_means(values[order], annotations[order]), group_means(values, annotations), rtol=0, atol=1e-15
    )


def test_invalid_groups_are_refused():
    with pytest.raises(ValueError, match="must both be"):
        group_means([1.0], [1, 2])
    with pytest.raises(ValueError, match="2 classes do not make 3 groups"):
        group_means([1.0, 2.0], [1, 2], groups=3)
