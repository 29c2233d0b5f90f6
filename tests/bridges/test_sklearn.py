"""The scikit-learn classifier: its own checks of estimators, and what partly known labels teach it."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.metrics import average_precision_score
from sklearn.model_selection import GridSearchCV, KFold
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import parametrize_with_checks

from tagfill.errors import TagfillError
from tagfill.sklearn import PartialLabelClassifier

OTHER_LABELS = "passes labels other than 0, 1 and unknown: 2 classes named 1 and 2, or as text"
ONE_OUTPUT = "expects the shapes of one output: a flat target, or two columns of probabilities"
NOT_APPLYING = {
    "check_classifier_data_not_an_array": OTHER_LABELS,
    "check_classifier_not_supporting_multiclass": "expects scikit-learn's own words for a third label",
    "check_classifiers_classes": OTHER_LABELS,
    "check_classifiers_one_label": ONE_OUTPUT,
    "check_classifiers_regression_target": "expects scikit-learn's own words for labels that are numbers",
    "check_classifiers_train": ONE_OUTPUT,
    "check_decision_proba_consistency": ONE_OUTPUT,
    "check_estimators_dtypes": OTHER_LABELS,
    "check_fit2d_1feature": OTHER_LABELS,
}


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.SkipTestWarning")
@parametrize_with_checks([PartialLabelClassifier(epochs=1)], expected_failed_checks=lambda estimator: NOT_APPLYING)
def test_scikit_learn_checks_the_estimator(estimator, check):
    check(estimator)


@pytest.fixture(scope="module")
def data():
    random = np.random.default_rng(0)
    features = random.normal(size=(300, 6))
    complete = (features[:, :3] + 0.3 * random.normal(size=(300, 3)) > 0).astype(float)
    some = np.where(random.random(complete.shape) < 0.4, complete, np.nan)
    tags = np.where((random.random(complete.shape) < 0.5) & (complete == 1), 1.0, np.nan)
    return features, complete, some, tags


@pytest.mark.parametrize(("kind", "method"), [("complete", "bce"), ("some", "csl"), ("tags", "em")])
def test_auto_chooses_by_what_is_known_and_learns_from_it(data, kind, method):
    features, complete, some, tags = data
    known = {"complete": complete, "some": some, "tags": tags}[kind]
    model = PartialLabelClassifier(lr=0.01, epochs=20, random_state=0).fit(features, known)
    assert model.method_ == method
    assert model.score(features, complete) > 0.9
    expected = average_precision_score(complete, model.predict_proba(features), average="macro")
    assert model.score(features, complete) == pytest.approx(expected, abs=1e-12)


def test_nan_and_minus_one_are_the_same_and_a_seed_decides_everything(data):
    features, _, some, _ = data
    first = PartialLabelClassifier("ll-r", epochs=2, random_state=3).fit(features, some)
    second = PartialLabelClassifier("ll-r", epochs=2, random_state=3).fit(features, np.nan_to_num(some, nan=-1))
    np.testing.assert_array_equal(first.coef_, second.coef_)
    other = PartialLabelClassifier("ll-r", epochs=2, random_state=4).fit(features, some)
    assert not np.array_equal(first.coef_, other.coef_)


def test_unknown_labels_do_not_count_in_the_score(data):
    features, complete, some, _ = data
    model = PartialLabelClassifier(epochs=2, random_state=0).fit(features, some)
    scores = model.predict_proba(features)
    known = ~np.isnan(some)
    expected = np.mean([average_precision_score(some[known[:, c], c], scores[known[:, c], c]) for c in range(3)])
    assert model.score(features, some) == pytest.approx(expected, abs=1e-12)
    assert model.score(features, complete) != pytest.approx(expected, abs=1e-12)


def test_coefficients_are_those_of_the_features_as_given(data):
    features, _, some, _ = data
    scaled = features * [1, 10, 100, 1, 1, 1] + 5
    plain = PartialLabelClassifier(epochs=3, standardize=True, random_state=0).fit(features, some)
    other = PartialLabelClassifier(epochs=3, standardize=True, random_state=0).fit(scaled, some)
    np.testing.assert_allclose(plain.decision_function(features), other.decision_function(scaled), atol=1e-4)


def test_searches_and_pipelines_work(data):
    features, _, some, _ = data
    steps = make_pipeline(StandardScaler(), PartialLabelClassifier("em", epochs=3, random_state=0))
    search = GridSearchCV(steps, {"partiallabelclassifier__lr": [1e-5, 1e-2]}, cv=KFold(2)).fit(features, some)
    assert search.best_params_ == {"partiallabelclassifier__lr": 1e-2}


def test_what_arrays_do_not_have_is_said(data):
    features, _, some, _ = data
    with pytest.raises(TagfillError, match="Method 'patchml' needs maps and marks"):
        PartialLabelClassifier("patchml").fit(features, some)
    with pytest.raises(TagfillError, match="needs expected_positives"):
        PartialLabelClassifier("role").fit(features, some)
    with pytest.raises(ValueError, match="No label is known to be present"):
        PartialLabelClassifier().fit(features, np.full((300, 3), np.nan))
    with pytest.raises(ValueError, match="1 present, 0 absent, and NaN or -1 unknown"):
        PartialLabelClassifier().fit(features, np.full((300, 3), 2.0))
