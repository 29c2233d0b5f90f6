from __future__ import annotations

import torch

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
