from __future__ import annotations

from functools import partial

import numpy as np
import pytest
import torch

from methods.cases import DENSE, batch_of, maps_of, task_of
from tagfill import losses
from tagfill.errors import TagfillError
from tagfill.labels import LabelMatrix
from tagfill.losses import binary
from tagfill.methods import create
from tagfill.methods.baselines import BASELINES

COMPLETE = LabelMatrix.from_dense(np.where(DENSE == -1, 0, DENSE))
ASL = partial(losses.asymmetric, reduction="sum")

# Method, its options, the loss that it is, and the labels that it takes.
CASES = [
    ("bce", {}, losses.binary),
    ("bce-ls", {}, partial(losses.binary, smoothing=0.1)),
    ("bce-ls", {"smoothing": 0.2}, partial(losses.binary, smoothing=0.2)),
    ("ignore", {}, losses.binary),
    ("ignore", {"reduction": "batchmean"}, partial(losses.binary, reduction="batchmean")),
    ("wne", {}, losses.weighted_known),
    ("wne", {"reduction": "batchmean"}, partial(losses.weighted_known, reduction="batchmean")),
    ("fe", {}, partial(losses.full_exposure, reduction="batchmean")),
    (
        "fe",
        {"unknown_as": "present", "positive_weight": 1.0},
        partial(losses.full_exposure, positive_weight=1, unknown_as="present", reduction="batchmean"),
    ),
    ("an", {}, losses.assume_negative),
    ("an", {"eps": 1e-5}, partial(losses.assume_negative, eps=1e-5)),
    ("an-ls", {}, partial(losses.assume_negative, smoothing=0.1)),
    ("wan", {}, partial(losses.assume_negative, negative_weight=1 / 2)),
    ("wan", {"negative_weight": 0.3}, partial(losses.assume_negative, negative_weight=0.3)),
    ("pr", {}, losses.pairwise_rank),
    ("zlpr", {}, partial(losses.zlpr, reduction="batchmean")),
    ("zlpr", {"unknown_as": "absent"}, partial(losses.zlpr, unknown_as="absent", reduction="batchmean")),
    ("two-way", {}, losses.two_way),
    ("two-way", {"positive_temperature": 1.0}, partial(losses.two_way, positive_temperature=1)),
    ("asl", {}, partial(ASL, gamma_positive=0, gamma_negative=4, margin=0.05)),
    ("asl", {"focal_gradient": True}, ASL),
    ("focal", {}, partial(ASL, gamma_positive=2, gamma_negative=2, margin=0)),
    ("hill", {}, partial(losses.hill, reduction="sum")),
    ("epr", {}, partial(losses.expected_positive, expected=1.5)),
    ("epr", {"expected": 2.5, "weight": 0.1}, partial(losses.expected_positive, expected=2.5, weight=0.1)),
    ("epr", {"positive_term": "batchmean"}, partial(losses.expected_positive, expected=1.5, positive_weight=3)),
    ("em", {}, partial(losses.entropy_maximization, alpha=0.1, use_negatives=True)),
    ("em", {"alpha": 0.2, "use_negatives": False}, partial(losses.entropy_maximization, alpha=0.2)),
]


def task_for(name, **changes):
    return task_of(COMPLETE, **changes) if name in ("bce", "bce-ls") else task_of(**changes)


@pytest.mark.parametrize(("name", "options", "function"), CASES)
def test_a_plain_method_is_its_loss(name, options, function):
    method, task = create(name, {name: options}), task_for(name, grid=None)
    method.setup(task)
    batch, prediction = batch_of([5, 0, 2], task.labels), maps_of([5, 0, 2])
    assert method.loss(batch, prediction) == {name: function(prediction.logits, batch.labels)}


def test_every_plain_method_has_its_case():
    assert {name for name, _, _ in CASES} == set(BASELINES) - {"iun"}


@pytest.mark.parametrize("name", BASELINES)
def test_a_plain_method_asks_for_no_memory(name):
    task = task_for(name)
    create(name).setup(task)
    assert task.memory.sizes() == {}


def test_the_published_loss_of_query2label():
    options = {"gamma_negative": 2, "margin": 0, "reduction": "mean", "scale": 1000, "eps": 1e-5}
    batch, prediction = batch_of([5, 0, 2]), maps_of([5, 0, 2])
    loss = create("asl", {"asl": options}).loss(batch, prediction)["asl"]
    expected = losses.asymmetric(prediction.logits, batch.labels, gamma_negative=2, margin=0, eps=1e-5)
    torch.testing.assert_close(loss, 1000 * expected)


@pytest.mark.parametrize("name", ["bce", "bce-ls"])
def test_a_ceiling_is_for_complete_labels(name):
    with pytest.raises(TagfillError, match=rf"'{name}' is for complete labels, and 11 of 18 are unknown; use 'ignore'"):
        create(name).setup(task_of())


def test_cannot_tell_counts_as_labeled():
    undecided = LabelMatrix(COMPLETE.starts, COMPLETE.classes, COMPLETE.values.copy(), COMPLETE.width)
    undecided.values[4] = -1
    create("bce").setup(task_of(undecided))


def test_the_expected_number_is_needed():
    with pytest.raises(TagfillError, match=r"'epr' needs .* options\.epr\.expected, or add a validation split"):
        create("epr").setup(task_of(expected_positives=None))


def test_one_class_alone_has_a_weight_too():
    method = create("wan")
    method.setup(task_of(LabelMatrix.from_dense(np.array([[1], [-1]], dtype=np.int8))))


TRUTH = np.where(DENSE == -1, 0, DENSE)
TRUTH[[0, 4], [1, 0]] = 1  # two unobserved positives


def test_observed_positives_and_true_negatives_teach():
    method = create("iun")
    method.setup(task_of(truth=lambda: LabelMatrix.from_dense(TRUTH)))
    batch, prediction = batch_of([4, 0, 2]), maps_of([4, 0, 2])
    labels = torch.tensor([[-1, 0, 1], [1, -1, 0], [0, 1, 0]])
    assert method.loss(batch, prediction) == {"iun": binary(prediction.logits, labels)}


def test_without_complete_labels_it_says_so_before_training():
    def no_truth() -> LabelMatrix:
        raise TagfillError("This method is an oracle and needs the complete labels.")

    with pytest.raises(TagfillError, match="oracle"):
        create("iun").setup(task_of(truth=no_truth))


def test_it_says_that_it_needs_the_truth():
    assert create("iun").needs == {"truth"}
