from __future__ import annotations

import numpy as np
import pytest
import torch

from reference import dual as reference
from tagfill.errors import TagfillError
from tagfill.models import Classifier, DualHead, create_head

FEATURES = torch.randn(3, 6, 2, 4, generator=torch.Generator().manual_seed(0), dtype=torch.float64)


def head(classes: int = 5, **options) -> DualHead:
    return create_head("dual", 6, classes, seed=1, **options).double()


def cells(image: torch.Tensor) -> list[list[float]]:
    return image.flatten(1).T.tolist()


@pytest.mark.parametrize(("scale", "sharpness"), [(100.0, 20.0), (5.0, 3.0), (1.0, 0.0)])
@torch.no_grad()
def test_probabilities_and_maps_are_those_of_the_formula(scale, sharpness):
    dual = head(scale=scale, sharpness=sharpness)
    prediction = dual(FEATURES, maps=True)
    for at, image in enumerate(FEATURES):
        for label in range(5):
            pair = dual.positive[label].tolist(), dual.negative[label].tolist()
            expected = reference.probability(cells(image), *pair, scale, sharpness)
            assert torch.sigmoid(prediction.logits[at, label]).item() == pytest.approx(expected, rel=1e-4, abs=1e-7)
            spatial = reference.class_map(cells(image), *pair, scale)
            np.testing.assert_allclose(prediction.maps[at, label].flatten().numpy(), spatial, rtol=1e-4, atol=1e-4)


@torch.no_grad()
def test_logits_do_not_depend_on_whether_maps_are_requested():
    assert torch.equal(head()(FEATURES).logits, head()(FEATURES, maps=True).logits)
    assert head()(FEATURES).maps is None


@torch.no_grad()
def test_the_length_of_features_and_vectors_does_not_matter():
    one, other = head(), head()
    other.positive *= 3.0
    other.negative *= 0.5
    torch.testing.assert_close(other(FEATURES * 7.0).logits, one(FEATURES).logits)


@torch.no_grad()
def test_exchanging_the_vectors_negates_the_logits_if_all_cells_count_alike():
    one, other = head(sharpness=0.0), head(sharpness=0.0)
    other.positive.copy_(one.negative)
    other.negative.copy_(one.positive)
    torch.testing.assert_close(other(FEATURES).logits, -one(FEATURES).logits)


@torch.no_grad()
def test_logits_lie_between_the_extremes_of_their_map_and_sharp_weights_pick_the_most_similar_cell():
    prediction = head()(FEATURES, maps=True)
    flat = prediction.maps.flatten(2)
    assert (prediction.logits >= flat.amin(2) - 1e-4).all()
    assert (prediction.logits <= flat.amax(2) + 1e-4).all()
    sharp = head(sharpness=1e5)
    unit = torch.nn.functional.normalize(FEATURES.flatten(2), dim=1)
    similarity = torch.nn.functional.normalize(sharp.positive, dim=1) @ unit
    best = similarity.argmax(2)
    expected = sharp(FEATURES, maps=True).maps.flatten(2).gather(2, best[..., None])[..., 0]
    torch.testing.assert_close(sharp(FEATURES).logits, expected, rtol=1e-3, atol=1e-3)


@torch.no_grad()
def test_text_vectors_begin_against_their_mean():
    vectors = torch.nn.functional.normalize(torch.randn(5, 6, dtype=torch.float64), dim=1)
    dual = head()
    dual.start_from(vectors)
    assert torch.equal(dual.positive, vectors)
    torch.testing.assert_close(dual.negative, vectors.mean(0).expand(5, 6))


def test_both_vectors_learn():
    dual = head()
    dual(FEATURES).logits.square().sum().backward()
    assert all((weights.grad.abs().amax(1) > 0).all() for weights in (dual.positive, dual.negative))


def test_cells_without_any_feature_give_finite_logits_and_gradients():
    dual = head()
    logits = dual(torch.zeros_like(FEATURES)).logits
    logits.sum().backward()
    assert torch.equal(logits, torch.zeros_like(logits))
    assert torch.isfinite(dual.positive.grad).all()


def test_half_precision_features_give_single_precision_logits():
    prediction = head().half()(FEATURES.half(), maps=True)
    assert prediction.logits.dtype == prediction.maps.dtype == torch.float32


def test_pooled_features_are_refused():
    with pytest.raises(TagfillError, match="dual head was given pooled features, but it needs features of cells"):
        head()(FEATURES.mean((2, 3)))
    with pytest.raises(TagfillError, match="The dual head has no attention"):
        Classifier(None, head(), "dual", list("abcde"))(FEATURES, attention=True)


@pytest.mark.parametrize(
    ("options", "said"), [({"scale": 0.0}, "scale=0 .* above 0"), ({"sharpness": -1.0}, "sharpness=-1 .* at least 0")]
)
def test_options_that_make_no_sense_are_refused(options, said):
    with pytest.raises(TagfillError, match=said):
        head(**options)
