from __future__ import annotations

import pytest
import torch

from methods.cases import DENSE, batch_of, maps_of, task_of
from tagfill.contract import Prediction
from tagfill.errors import TagfillError
from tagfill.losses import weighted_known
from tagfill.methods import create

ALL_IMAGES = [0, 1, 2, 3, 4, 5]
SURE = torch.tensor([[9.0, 9, 9], [-9, -9, 0], [0, 0, 0], [2, 2.3, -2.3], [-9, -9, -9], [9, -9, 2]])


def started(answers, **options):
    """A run whose model answers with these logits, in evaluation passes over two batches."""

    def predict(split):
        assert split == "train"
        for index in ([0, 1, 2], [3, 4, 5]):
            yield batch_of(index), Prediction(answers[index])

    method = create("curriculum", {"curriculum": options})
    method.setup(task_of(predict=predict))
    method.begin_epoch(1)
    return method


def labels_used(method):
    """What the loss takes for labels: those that make weighted cross-entropy equal to it."""
    method.loss(batch_of(ALL_IMAGES), maps_of(ALL_IMAGES))
    labels, decided = torch.from_numpy(DENSE.copy()), method.decisions()
    labels[decided.image, decided.label] = torch.from_numpy(decided.value)
    return labels


def test_the_first_epoch_has_the_known_labels_alone():
    method = started(SURE)
    batch, prediction = batch_of(ALL_IMAGES), maps_of(ALL_IMAGES)
    assert method.loss(batch, prediction) == {"curriculum": weighted_known(prediction.logits, batch.labels)}
    assert len(method.decisions()) == 0


def test_then_sure_answers_are_labels():
    """Probabilities of at least 0.9 (a logit of 2.2) and at most 0.1; known labels stay, whatever the model says."""
    method = started(SURE)
    method.begin_epoch(2)
    expected = torch.tensor([[1, 1, 0], [1, 0, -1], [-1, 1, -1], [-1, 1, 0], [0, 0, 1], [1, 0, 1]], dtype=torch.int8)
    assert torch.equal(labels_used(method), expected)
    prediction = maps_of(ALL_IMAGES)
    loss = method.loss(batch_of(ALL_IMAGES), prediction)["curriculum"]
    assert loss == weighted_known(prediction.logits, expected)


def test_decisions_name_the_pseudo_labels_of_the_last_step():
    method = started(SURE)
    method.begin_epoch(2)
    method.loss(batch_of([3, 1]), maps_of([3, 1]))
    decided = method.decisions()
    found = sorted(zip(decided.image.tolist(), decided.label.tolist(), decided.value.tolist(), strict=True))
    assert found == [(1, 1, 0), (3, 2, 0)]
    assert set(decided.kind) == {"pseudo-labelled"}


def test_an_answer_that_the_model_no_longer_stands_by_is_taken_back():
    answers = SURE.clone()
    method = started(answers)
    method.begin_epoch(2)
    answers.zero_()
    method.begin_epoch(3)
    assert torch.equal(labels_used(method), torch.from_numpy(DENSE))


def test_labels_stay_between_two_passes():
    answers = SURE.clone()
    method = started(answers, every=2)
    assert torch.equal(labels_used(method), torch.from_numpy(DENSE))
    method.begin_epoch(2)
    assert torch.equal(labels_used(method), torch.from_numpy(DENSE))
    method.begin_epoch(3)
    labeled = labels_used(method)
    answers.zero_()
    method.begin_epoch(4)
    assert torch.equal(labels_used(method), labeled)


def test_thresholds_can_be_moved_out_of_the_way():
    method = started(SURE, absent_below=-0.01)
    method.begin_epoch(2)
    labels = labels_used(method)
    assert (labels == 0).sum() == (DENSE == 0).sum()
    assert (labels == 1).sum() > (DENSE == 1).sum()


@pytest.mark.parametrize(
    ("options", "sentence"),
    [({"present_above": 0.1, "absent_below": 0.2}, "the first must be larger"), ({"every": 0}, "at least 1")],
)
def test_options_that_make_no_sense_are_refused(options, sentence):
    with pytest.raises(TagfillError, match=sentence):
        create("curriculum", {"curriculum": options})


def test_an_image_that_does_not_decode_gets_no_labels():
    def predict(split):
        yield batch_of([3, 4, 5]), Prediction(SURE[3:])

    method = create("curriculum")
    method.setup(task_of(predict=predict))
    method.begin_epoch(2)
    assert torch.equal(labels_used(method)[:3], torch.from_numpy(DENSE[:3]))
