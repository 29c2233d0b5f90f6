from __future__ import annotations

import numpy as np
import pytest
import torch

from methods.cases import DENSE, batch_of, maps_of, task_of
from tagfill.errors import TagfillError
from tagfill.labels import LabelMatrix
from tagfill.losses import binary
from tagfill.methods import create

TRUTH = np.where(DENSE == -1, 0, DENSE)
TRUTH[[0, 4], [1, 0]] = 1  # two positives that nobody observed


def test_observed_positives_and_true_negatives_teach():
    method = create("iun")
    method.setup(task_of(truth=lambda: LabelMatrix.from_dense(TRUTH)))
    batch, prediction = batch_of([4, 0, 2]), maps_of([4, 0, 2])
    labels = torch.tensor([[-1, 0, 1], [1, -1, 0], [0, 1, 0]])
    assert method.loss(batch, prediction) == {"iun": binary(prediction.logits, labels)}


def test_without_complete_labels_it_says_so_before_training():
    def nobody_knows() -> LabelMatrix:
        raise TagfillError("This method is an oracle and needs the complete labels.")

    with pytest.raises(TagfillError, match="oracle"):
        create("iun").setup(task_of(truth=nobody_knows))


def test_it_says_that_it_needs_the_truth():
    assert create("iun").needs == {"truth"}
