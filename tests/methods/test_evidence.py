"""Methods that learn from other taggers: against their references, and with evidence that changes or is missing."""

import numpy as np
import pytest
import torch

from methods.cases import DENSE, LABELS, batch_of, maps_of, task_of
from reference import evidence as reference
from tagfill.errors import TagfillError
from tagfill.evidence import Evidence, ScoreMatrix
from tagfill.evidence.scores import now
from tagfill.evidence.training_evidence import TrainingEvidence
from tagfill.methods import create

INDEX = [0, 1, 2, 3, 4, 5]
COSINES = (0.2 + 0.02 * np.random.default_rng(3).normal(size=DENSE.shape)).astype(np.float32)
COSINES[2, 0] = np.nan
COSINES[4] = np.nan
OURS = {"weight": 0.7, "negative_weight": 0.1, "alpha": 0.1}


def evidence_of(cosines=COSINES):
    piece = Evidence("clip", "cosines", "a test", now(), ScoreMatrix.from_dense(cosines))
    return TrainingEvidence((piece,), LABELS)


def method_of(name, evidence=None, **options):
    method = create(name, {name: options})
    found = evidence or evidence_of()
    method.setup(task_of(evidence=lambda names: found))
    method.begin_epoch(1)
    return method


def test_vlpl_is_its_reference():
    options = {"alpha": 0.2, "beta": 0.7, "smoothing": 0.1, "threshold": 0.3, "temperature": 0.01}
    prediction = maps_of(INDEX)
    cosines = [[None if np.isnan(x) else float(x) for x in row] for row in COSINES]
    expected = reference.vlpl(prediction.logits.tolist(), DENSE.tolist(), cosines, **options)
    method = method_of("vlpl")
    assert method.loss(batch_of(INDEX), prediction)["vlpl"].item() == pytest.approx(expected, rel=1e-5)
    decided = method.decisions()
    assert 0 < len(decided) < np.isfinite(COSINES).sum()
    assert (DENSE[decided.image, decided.label] == -1).all()


def test_vlpl_warms_up_with_entropy_maximization():
    warm = method_of("vlpl", warmup=1, alpha=0.1).loss(batch_of(INDEX), maps_of(INDEX))["vlpl"]
    torch.testing.assert_close(warm, method_of("em").loss(batch_of(INDEX), maps_of(INDEX))["em"])


def test_trusted_evidence_is_its_reference():
    found = evidence_of()
    prediction = maps_of(INDEX)
    share = found.trust * np.nan_to_num(found.probabilities(np.array(INDEX), DENSE))
    expected = reference.soft_positive(prediction.logits.tolist(), DENSE.tolist(), share, **OURS)
    value = method_of("evidence", found).loss(batch_of(INDEX), prediction)["evidence"].item()
    assert value == pytest.approx(expected, rel=1e-5)


def test_without_trust_it_is_entropy_maximization():
    value = method_of("evidence", trust=0.0, gamma=0.0).loss(batch_of(INDEX), maps_of(INDEX))["evidence"]
    torch.testing.assert_close(value, method_of("em").loss(batch_of(INDEX), maps_of(INDEX))["em"])


def test_soft_exposure_takes_distances_from_evidence():
    method = method_of("se-e")
    temperature = method.temperatures(torch.tensor(INDEX), torch.from_numpy(DENSE)).numpy()
    p = evidence_of().probabilities(np.array(INDEX), DENSE)
    asked = (DENSE == -1) & ~np.isnan(p)
    assert ((temperature != 0) == asked).all()
    assert (np.sign(temperature[asked]) == np.where(p[asked] > 0.5, 1, -1)).all()


@pytest.mark.parametrize("name", ["vlpl", "evidence", "se-e"])
def test_a_run_is_not_resumed_with_other_evidence(name):
    state = method_of(name).state_dict()
    method_of(name).load_state_dict(state)
    changed = COSINES.copy()
    changed[0, 1] += 0.01
    with pytest.raises(TagfillError, match="not that with which this run began"):
        method_of(name, evidence_of(changed)).load_state_dict(state)


@pytest.mark.parametrize("name", ["vlpl", "evidence", "se-e"])
def test_without_evidence_it_says_so(name):
    with pytest.raises(TagfillError, match="There is no evidence"):
        create(name).setup(task_of())


def test_softmax_leaves_out_missing_scores():
    found = evidence_of().softmax(np.array(INDEX), 0.01)
    assert (np.isnan(found) == np.isnan(COSINES)).all()
    np.testing.assert_allclose(np.nansum(found, 1), [1, 1, 1, 1, 0, 1], atol=1e-5)
