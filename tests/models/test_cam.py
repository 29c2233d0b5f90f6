from __future__ import annotations

import pytest
import torch

from reference import boost as reference
from tagfill.errors import TagfillError
from tagfill.models import CamHead

FEATURES = torch.randn(3, 6, 4, 5, generator=torch.Generator().manual_seed(0))


def head() -> CamHead:
    torch.manual_seed(1)
    return CamHead(6, 4)


def test_logits_are_the_mean_of_the_class_maps():
    prediction = head()(FEATURES, maps=True)
    torch.testing.assert_close(prediction.logits, prediction.maps.mean((2, 3)), rtol=0, atol=1e-6)


def test_class_maps_are_the_classifier_in_every_cell():
    cam = head()
    maps = cam(FEATURES, maps=True).maps
    for row in range(4):
        for column in range(5):
            torch.testing.assert_close(maps[:, :, row, column], cam.fc(FEATURES[:, :, row, column]), rtol=0, atol=1e-6)


def test_logits_do_not_depend_on_whether_maps_are_asked_for():
    cam = head()
    torch.testing.assert_close(cam(FEATURES).logits, cam(FEATURES, maps=True).logits, rtol=0, atol=1e-6)


def test_pooled_features_give_the_logits_of_their_maps():
    cam = head()
    torch.testing.assert_close(cam(FEATURES.mean((2, 3))).logits, cam(FEATURES, maps=True).logits, rtol=0, atol=1e-6)


def test_maps_are_only_there_when_asked_for():
    assert head()(FEATURES).maps is None


def test_gradients_are_those_of_pooling_first():
    one, other = head(), head()
    one(FEATURES, maps=True).logits.square().sum().backward()
    other(FEATURES).logits.square().sum().backward()
    torch.testing.assert_close(one.fc.weight.grad, other.fc.weight.grad, rtol=1e-4, atol=1e-6)


def test_half_precision_features_give_single_precision_logits():
    assert head().half()(FEATURES.half(), maps=True).logits.dtype == torch.float32


def boosting(**options) -> CamHead:
    torch.manual_seed(1)
    return CamHead(6, 4, **{"boost": 5.0, **options})


@pytest.mark.parametrize("beta", [0.0, 0.3])
def test_boosted_logits_are_the_mean_of_boosted_maps(beta):
    maps = head()(FEATURES, maps=True).maps
    expected = [[reference.logit(cells, 5.0, beta) for cells in image] for image in maps.tolist()]
    found = boosting(boost_from=beta)(FEATURES).logits
    torch.testing.assert_close(found, torch.tensor(expected), rtol=1e-5, atol=1e-5)


def test_maps_are_those_before_the_boost():
    assert torch.equal(boosting()(FEATURES, maps=True).maps, head()(FEATURES, maps=True).maps)


def test_a_boost_keeps_no_maps_that_nobody_asked_for():
    assert boosting()(FEATURES).maps is None


@pytest.mark.parametrize("train", [True, False])
@pytest.mark.parametrize("evaluate", [True, False])
def test_training_and_evaluation_are_boosted_separately(train, evaluate):
    cam = boosting(boost_train=train, boost_eval=evaluate)
    plain, boosted = head()(FEATURES).logits, boosting()(FEATURES).logits
    torch.testing.assert_close(cam.train()(FEATURES).logits, boosted if train else plain)
    torch.testing.assert_close(cam.eval()(FEATURES).logits, boosted if evaluate else plain)
    assert cam.spatial == (train or evaluate)


def test_a_masked_class_is_boosted_in_evaluation_alone():
    cam = boosting()
    cam.mask_boost(torch.tensor([True, False, True, True]))
    plain, boosted = head()(FEATURES).logits, boosting()(FEATURES).logits
    expected = torch.where(torch.tensor([True, False, True, True]), boosted, plain)
    torch.testing.assert_close(cam.train()(FEATURES).logits, expected)
    torch.testing.assert_close(cam.eval()(FEATURES).logits, boosted)


def test_the_mask_is_saved_with_the_weights():
    cam, other = boosting(), boosting()
    cam.mask_boost(torch.tensor([True, False, True, True]))
    other.load_state_dict(cam.state_dict())
    assert torch.equal(other(FEATURES).logits, cam(FEATURES).logits)


def test_unseen_classes_are_boosted_on_request():
    cam = boosting(boost_unseen=True)
    cam.mask_boost(torch.tensor([True, False, True, True]))
    assert torch.equal(cam.train()(FEATURES).logits, boosting()(FEATURES).logits)


def test_the_gradient_of_a_boosted_logit_is_larger_where_scores_are_positive():
    features = FEATURES.clone().requires_grad_()
    cam = boosting()
    prediction = cam(features, maps=True)
    prediction.logits[:, 0].sum().backward()
    slopes = torch.where(prediction.maps[:, 0] > 0, 5.0, 1.0) / 20
    expected = slopes[:, None] * cam.fc.weight[0].detach()[None, :, None, None]
    torch.testing.assert_close(features.grad, expected)


@pytest.mark.parametrize(
    ("options", "maps", "wanted"), [({}, False, "boost=5 needs"), ({"boost": 1.0}, True, "class maps need")]
)
def test_pooled_features_are_refused_where_cells_are_needed(options, maps, wanted):
    with pytest.raises(TagfillError, match=f"given pooled features, but {wanted} features of cells"):
        boosting(**options)(FEATURES.mean((2, 3)), maps=maps)


@pytest.mark.parametrize("alpha", [0.5, -1.0, float("inf"), float("nan")])
def test_a_boost_that_does_not_enlarge_is_refused(alpha):
    with pytest.raises(TagfillError, match="would not enlarge scores; use 1 for no boost, or more"):
        boosting(boost=alpha)
