from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from methods.cases import batch_of, maps_of, paired
from reference.fixmatch import fixmatch as reference
from tagfill.contract import Prediction
from tagfill.errors import TagfillError
from tagfill.labels import LabelMatrix
from tagfill.losses import pseudo_labels
from tagfill.methods import create
from tagfill.methods.base import of_view

HALF_LABELLED = LabelMatrix.from_dense(np.array([[1, -1, 0], [-1, -1, -1], [-1, 0, -1], [-1, -1, -1]], np.int8))
ALL_IMAGES = [0, 1, 2, 3]


def logits_of(seed: int, size: int = 4) -> Prediction:
    return Prediction(4 * torch.randn(2 * size, 3, generator=torch.Generator().manual_seed(seed), dtype=torch.float64))


@pytest.mark.parametrize("scope", ["unlabeled_images", "unlabelled_images", "all_unknown"])
@settings(max_examples=20, deadline=None)
@given(st.integers(0, 1000), st.sampled_from([(0.95, 0.05), (0.6, 0.4), (1.0, 0.0)]))
def test_equals_the_formula(scope, seed, thresholds):
    positive, negative = thresholds
    options = {"positive": positive, "negative": negative, "scope": scope, "weight": 2.0, "w_supervised": 0.5}
    method, prediction = create("fixmatch", {"fixmatch": options}), logits_of(seed)
    terms = method.loss(paired(ALL_IMAGES, HALF_LABELLED), prediction)
    weak, strong = prediction.logits.chunk(2)
    unsupervised, supervised, pseudo = reference(
        weak.tolist(), strong.tolist(), HALF_LABELLED.dense().tolist(), positive, negative, scope != "all_unknown"
    )
    assert terms["fixmatch"].item() == pytest.approx(2 * unsupervised)
    assert terms["supervised"].item() == pytest.approx(0.5 * supervised)
    decided = method.decisions()
    assert set(decided.kind) <= {"pseudo-labelled"}
    told = [[-1] * 3 for _ in range(4)]
    for image, label, value in zip(decided.image, decided.label, decided.value, strict=True):
        told[image][label] = int(value)
    assert told == pseudo


def test_only_the_strong_view_learns_from_pseudo_labels():
    logits = logits_of(0).logits.requires_grad_()
    create("fixmatch").loss(paired(ALL_IMAGES, HALF_LABELLED), Prediction(logits))["fixmatch"].backward()
    weak, strong = logits.grad.chunk(2)
    assert not weak.any()
    assert strong.any()


def test_nothing_sure_teaches_nothing():
    logits = torch.zeros(8, 3, requires_grad=True)
    term = create("fixmatch", {"fixmatch": {"w_supervised": 0}}).loss(
        paired(ALL_IMAGES, HALF_LABELLED), Prediction(logits)
    )
    assert set(term) == {"fixmatch"}
    term["fixmatch"].backward()
    assert term["fixmatch"] == 0
    assert not logits.grad.any()


def test_thresholds_are_inclusive():
    found = pseudo_labels(torch.tensor([[0.0, 0.0]]), torch.tensor([[-1, 1]]), positive=0.5, negative=0.1)
    assert found.tolist() == [[1, -1]]


def test_a_sum_gives_the_weak_view_to_methods_of_one_view():
    prediction, alone = maps_of([*ALL_IMAGES, *ALL_IMAGES]), maps_of([*ALL_IMAGES, *ALL_IMAGES])
    both = create("patchml+fixmatch").loss(paired(ALL_IMAGES, HALF_LABELLED), prediction)
    weak = Prediction(alone.logits[:4], alone.maps[:4])
    single = create("patchml").loss(batch_of(ALL_IMAGES, HALF_LABELLED), weak)
    assert set(both) == {"image", "patch", "fixmatch"}
    assert (both["image"], both["patch"]) == (single["image"], single["patch"])


def test_views_of_a_batch():
    batch, prediction = paired([1, 3], HALF_LABELLED), logits_of(0, 2)
    seen, said = of_view(batch, prediction, "strong")
    assert seen.inputs.flatten().tolist() == [2, 3]
    assert seen.index.tolist() == [1, 3]
    assert not seen.geometry.exact.any()
    assert torch.equal(said.logits, prediction.logits[2:])
    assert of_view(seen, said, "strong") == (seen, said)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"positive": 0.1, "negative": 0.2}, "the negative one smaller"),
        ({"scope": "some"}, "scope='some' of method 'fixmatch': Input should be 'unlabeled_images', 'all_unknown'"),
    ],
)
def test_options_that_make_no_sense_are_refused(options, message):
    with pytest.raises(TagfillError, match=message):
        create("fixmatch", {"fixmatch": options})
