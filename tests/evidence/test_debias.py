"""Debiased scores follow the reference, and a few laws."""

import numpy as np
import pytest

from evidence.cases import make_dataset, make_scores, make_truth
from reference import standardization as reference
from tagfill import TagfillError
from tagfill.evidence import Evidence, ScoreMatrix, class_trust, debias, evaluate_evidence, import_scores, standardize
from tagfill.evidence.scores import now
from tagfill.labels import LabelMatrix
from tagfill.metrics import mean_average_precision


def evidence(scores, scale="cosines", name="a"):
    return Evidence(name, scale, "a test", now(), ScoreMatrix.from_dense(np.asarray(scores, dtype=float)))


def dense(matrix):
    return matrix.rows(np.arange(len(matrix)))


def with_gaps(scores, share=0.3, seed=0):
    return np.where(np.random.default_rng(seed).random(scores.shape) < share, np.nan, scores)


@pytest.mark.parametrize("scale", ["cosines", "probabilities"])
def test_standardized_scores_are_those_of_the_reference(scale):
    scores = with_gaps(np.random.default_rng(1).random((9, 4)))
    raw = scores.astype(np.float32).astype(float)
    x = raw if scale == "cosines" else np.log(raw / (1 - raw))
    rows = [[None if np.isnan(value) else float(value) for value in row] for row in x]
    expected = np.array(reference.standardized(rows, image_effects=scale == "cosines"), dtype=float)
    np.testing.assert_allclose(dense(standardize(evidence(scores, scale))), expected, rtol=1e-4, atol=1e-5)


def test_a_bias_of_classes_and_the_unit_do_not_matter():
    scores = with_gaps(make_scores(make_truth(50)))
    biased = (0.3 * scores + [[0.1, -0.2, 0.0, 0.3]]) / 2
    np.testing.assert_allclose(
        dense(standardize(evidence(scores))), dense(standardize(evidence(biased))), rtol=1e-3, atol=1e-3
    )


def test_a_bias_of_images_hardly_matters():
    scores = make_scores(make_truth(200))
    shift = 0.2 * np.random.default_rng(5).normal(size=(200, 1))
    one, other = (dense(standardize(evidence(x))).ravel() for x in (scores, scores + shift))
    assert np.corrcoef(make_scores(make_truth(200)).ravel(), (scores + shift).ravel())[0, 1] < 0.5
    assert np.corrcoef(one, other)[0, 1] > 0.99


def test_trust_is_that_of_the_reference():
    rng = np.random.default_rng(0)
    z, known = rng.normal(size=(40, 3)).round(1), rng.choice([-1, -1, 0, 1], (40, 3))
    np.testing.assert_allclose(class_trust(z, known), reference.trust(z.tolist(), known.tolist()))
    assert (class_trust(z, np.full(z.shape, -1)) == 1).all()


def test_debiasing_ranks_better_than_raw_scores_and_expects_about_the_right_number(tmp_path):
    truth = make_truth()
    scores = make_scores(truth)
    labels = make_dataset(tmp_path / "data", truth).labels()
    found = debias(evidence(scores), labels)
    every = np.arange(len(truth))
    probability = found.probabilities(every, labels.dense())
    unknown = labels.dense() == -1
    judged = np.where(unknown, truth, -1)
    assert mean_average_precision(found.scores.rows(every), judged) > mean_average_precision(scores, judged) + 0.1
    assert 0.4 < probability[unknown].sum() / truth[unknown].sum() < 1.4  # four classes say little about the number
    assert found.trust.min() > 0.5


def test_a_stated_number_of_labels_is_met_with_and_without_tags(tmp_path):
    truth = make_truth()
    labels = make_dataset(tmp_path / "data", truth).labels()
    nothing = LabelMatrix.from_dense(np.full(truth.shape, -1))
    for known in (labels, nothing):
        found = debias(evidence(make_scores(truth)), known, expected=1.9)
        probability = found.probabilities(np.arange(len(truth)), known.dense())
        assert probability.sum(1).mean() == pytest.approx(1.9, abs=0.02)
    with pytest.raises(TagfillError, match=r"4\.0 labels per image cannot be expected of 4 classes"):
        debias(evidence(make_scores(truth)), labels, expected=4.0)


def test_noise_gets_little_weight_and_missing_pairs_stay_missing(tmp_path):
    truth = make_truth()
    labels = make_dataset(tmp_path / "data", truth).labels()
    noise = np.random.default_rng(3).normal(size=truth.shape) / 9
    scores = with_gaps(make_scores(truth))
    found = debias([evidence(scores, name="good"), evidence(with_gaps(noise, seed=1), name="noise")], labels)
    assert found.weights["good"] > 0.7
    missing = np.isnan(scores) & np.isnan(with_gaps(noise, seed=1))
    probability = found.probabilities(np.arange(len(truth)), labels.dense())
    assert (np.isnan(probability) == missing).all()


def test_evaluation_uses_the_complete_labels_of_a_simulated_dataset(tmp_path):
    import pyarrow as pa

    truth = make_truth()
    full = make_dataset(tmp_path / "full", truth)
    names, classes = full.names(), full.classes
    rows = [{"image": names[i], "label": classes[c], "present": bool(truth[i, c])} for i, c in np.ndindex(truth.shape)]
    full = full.with_records(rows).save(tmp_path / "full")
    data = make_dataset(tmp_path / "data", truth).replace(truth=full.folder).save(tmp_path / "data")
    table = pa.table({"image": names, **dict(zip(classes, make_scores(truth).T, strict=True))})
    import_scores(table, data, name="clip", scale="cosines")
    quality = evaluate_evidence(tmp_path / "data", "clip")
    assert quality.labels == "complete"
    assert quality.mean == pytest.approx(mean_average_precision(make_scores(truth).astype(np.float32), truth))
    assert quality.calibration_error < 0.2
