from __future__ import annotations

import numpy as np
import pytest
import torch

from models import published
from reference.tscam import convolve, deit
from tagfill.errors import TagfillError
from tagfill.models import Classifier
from tagfill.models.convert import CONVERTERS
from tagfill.models.published_weights import read_published_weights

CLASSES = ["cat", "dog", "owl"]
PIXELS = torch.randint(0, 256, (2, 3, 64, 64), dtype=torch.uint8, generator=torch.Generator().manual_seed(0))


def converted(state, tmp_path, **options) -> Classifier:
    torch.save(state, tmp_path / "model.pt")
    return CONVERTERS["mlspl"](read_published_weights(tmp_path / "model.pt"), CLASSES, image_size=64, **options)


@pytest.mark.parametrize(("depth", "channels", "inner"), [(18, 512, ""), (18, 512, "fc."), (50, 2048, "")])
def test_logits_are_those_of_the_published_model(tmp_path, depth, channels, inner):
    network = published.resnet(depth)
    state = published.mlspl(network, 3, channels, inner=inner)
    model = converted(state, tmp_path)
    features = published.grid_of(network, PIXELS).double().numpy()
    weight, bias = (state[f"f.linear_classifier.{inner}{name}"].double().numpy() for name in ("weight", "bias"))
    expected = [[sum(weight[c] * image.mean((1, 2))) + bias[c] for c in range(3)] for image in features]
    with torch.no_grad():
        logits = model(PIXELS).logits
    assert model.backbone.name == f"resnet{depth}"
    np.testing.assert_allclose(logits, expected, rtol=1e-5, atol=1e-5)


def test_a_converted_model_is_saved_and_read_like_any_other(tmp_path):
    model = converted(published.mlspl(published.resnet(), 3), tmp_path)
    model.save(tmp_path / "folder")
    with torch.no_grad():
        torch.testing.assert_close(Classifier.load(tmp_path / "folder")(PIXELS).logits, model(PIXELS).logits)


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ({"f.linear_classifier.weight": None}, r"lacks f\.linear_classifier\.weight"),
        ({"f.linear_classifier.bias": torch.zeros(4)}, r"f\.linear_classifier\.bias of shape \(4,\); .* needs \(3,\)"),
        (
            {"f.feature_extractor.9.weight": torch.zeros(1)},
            r"has f\.feature_extractor\.9\.weight, which this model does not have",
        ),
        (
            {"f.feature_extractor.4.1.conv2.weight": None},
            r"lacks weights for .*\.layer1\.1\.conv2\.weight",
        ),
        ({"h.extra": torch.zeros(1)}, r"has h\.extra, which this model does not have"),
    ],
)
def test_missing_and_unknown_tensors_are_refused(tmp_path, change, problem):
    state = published.mlspl(published.resnet(), 3) | change
    with pytest.raises(TagfillError, match=problem):
        converted({name: value for name, value in state.items() if value is not None}, tmp_path)


def test_another_number_of_classes_is_refused(tmp_path):
    with pytest.raises(TagfillError, match=r"model\.pt has 5 classes, but 3 names were given"):
        converted(published.mlspl(published.resnet(), 5), tmp_path)


def test_a_resnet_of_torchvision_keeps_its_own_classifier(tmp_path):
    network = published.resnet()
    torch.save(network.state_dict(), tmp_path / "resnet18.pth")
    names = [f"n{number:08d}" for number in range(1000)]
    model = CONVERTERS["torchvision"](read_published_weights(tmp_path / "resnet18.pth"), names, image_size=64)
    with torch.no_grad():
        expected = network.fc(published.grid_of(network, PIXELS).mean((2, 3)))
        torch.testing.assert_close(model(PIXELS).logits, expected, rtol=1e-4, atol=1e-4)
    with pytest.raises(TagfillError, match=r"resnet18\.pth has 1,?000 classes, but 3 names were given"):
        CONVERTERS["torchvision"](read_published_weights(tmp_path / "resnet18.pth"), CLASSES)


TSCAM_CLASSES = ["cat", "dog"]
TSCAM_PIXELS = torch.randint(0, 256, (1, 3, 64, 64), dtype=torch.uint8, generator=torch.Generator().manual_seed(0))


def converted_tscam(state, tmp_path) -> Classifier:
    torch.save({"model": state}, tmp_path / "tscam.pth")
    return CONVERTERS["tscam"](read_published_weights(tmp_path / "tscam.pth"), TSCAM_CLASSES)


def test_logits_are_those_of_published_tscam(tmp_path):
    state = published.tscam(2)
    model = converted_tscam(state, tmp_path)
    weights = published.as_arrays(state)
    image = (TSCAM_PIXELS[0].double() / 255 - published.MEAN[:, None, None]) / published.STD[:, None, None]
    tokens, _ = deit(weights, image.numpy(), heads=3)
    maps = convolve(tokens[1:].T.reshape(192, 4, 4), weights["head.weight"], weights["head.bias"])
    with torch.no_grad():
        logits = model(TSCAM_PIXELS).logits[0]
    assert model.backbone.name == "deit_tiny_patch16_224"
    np.testing.assert_allclose(logits, maps.mean((1, 2)), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ({"head.bias": None}, r"lacks head\.bias"),
        ({"blocks.3.mlp.fc1.bias": None}, r"lacks weights for backbone\.model\.blocks\.3\.mlp\.fc1\.bias"),
        ({"blocks.12.norm1.bias": torch.zeros(192)}, r"has blocks\.12\.norm1\.bias, which this model does not have"),
        ({"pos_embed": torch.zeros(1, 18, 192)}, r"has pos_embed of shape \(1, 18, 192\), which is not that of a DeiT"),
        ({"pos_embed": torch.zeros(1, 17, 100)}, r"has pos_embed of shape \(1, 17, 100\), which is not that of a DeiT"),
    ],
)
def test_missing_and_unknown_tensors_of_tscam_are_refused(tmp_path, change, problem):
    state = published.tscam(2) | change
    with pytest.raises(TagfillError, match=problem):
        converted_tscam({name: value for name, value in state.items() if value is not None}, tmp_path)
