from __future__ import annotations

import functools

import numpy as np
import pytest
import torch

from reference import tscam as reference
from tagfill.contract import Prediction
from tagfill.errors import TagfillError
from tagfill.models import Classifier, TsCamHead, coupled, create

CLASSES = ["cat", "dog", "owl", "hen"]
PIXELS = torch.randint(0, 256, (2, 3, 32, 48), dtype=torch.uint8, generator=torch.Generator().manual_seed(0))


@functools.cache
def deit() -> Classifier:
    """A tiny DeiT with random weights, large enough that its attention is far from even."""
    model = create("deit_tiny_patch16_224", "tscam", CLASSES, image_size=(32, 48), seed=3).eval()
    with torch.no_grad():
        for block in model.backbone.model.blocks:
            block.attn.qkv.weight *= 8
    return model


def expected(model: Classifier) -> tuple[np.ndarray, np.ndarray]:
    """Class maps and coupled maps of `PIXELS` by the reference."""
    weights = {k: v.double().numpy() for k, v in model.backbone.model.state_dict().items()}
    kernel, bias = (value.detach().double().numpy() for value in (model.head.conv.weight, model.head.conv.bias))
    mean, std = (value.double()[0].numpy() for value in (model.backbone.mean, model.backbone.std))
    maps, both = [], []
    for image in PIXELS.double().numpy():
        tokens, rows = reference.deit(weights, (image - mean) / std, heads=3)
        spatial = reference.convolve(tokens[1:].T.reshape(-1, 2, 3), kernel, bias)
        maps.append(spatial)
        both.append(reference.coupled(spatial, rows))
    return np.stack(maps), np.stack(both)


@torch.no_grad()
def test_maps_and_coupled_maps_are_those_of_the_paper():
    maps, both = expected(deit())
    prediction = deit()(PIXELS, maps=True, attention=True)
    assert prediction.attention.std() > 0.1 * prediction.attention.mean()
    np.testing.assert_allclose(prediction.maps.numpy(), maps, rtol=1e-3, atol=1e-4)
    np.testing.assert_allclose(coupled(prediction).numpy(), both, rtol=1e-3, atol=1e-4)
    np.testing.assert_allclose(prediction.logits.numpy(), maps.mean((2, 3)), rtol=1e-3, atol=1e-4)


@torch.no_grad()
def test_attention_is_there_only_when_asked_for_and_changes_nothing_else():
    plain = deit()(PIXELS, maps=True)
    assert plain.attention is None
    watched = deit()(PIXELS, maps=True, attention=True)
    torch.testing.assert_close(watched.maps, plain.maps, rtol=1e-4, atol=1e-4)


def head(height: int = 4, width: int = 5, seed: int = 0) -> tuple[TsCamHead, torch.Tensor]:
    torch.manual_seed(seed)
    return TsCamHead(6, 4).double(), torch.randn(3, 6, height, width, dtype=torch.float64)


@pytest.mark.parametrize(("height", "width"), [(4, 5), (7, 7), (1, 5), (3, 1), (1, 1), (2, 2)])
def test_logits_without_maps_are_the_mean_of_the_maps(height, width):
    tscam, features = head(height, width)
    prediction = tscam(features, maps=True)
    torch.testing.assert_close(tscam(features).logits, prediction.maps.mean((2, 3)), rtol=1e-6, atol=1e-6)
    torch.testing.assert_close(prediction.logits, prediction.maps.mean((2, 3)))


def test_gradients_without_maps_are_those_of_the_mean_of_the_maps():
    tscam, features = head()
    gradients = []
    for maps in (True, False):
        inputs = features.clone().requires_grad_()
        tscam.zero_grad()
        tscam(inputs, maps=maps).logits.square().sum().backward()
        gradients.append([inputs.grad, tscam.conv.weight.grad.clone(), tscam.conv.bias.grad.clone()])
    for one, other in zip(*gradients, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-5, atol=1e-7)


def test_the_convolution_keeps_the_initial_weights_of_pytorch():
    tscam, _ = head(seed=5)
    torch.manual_seed(5)
    assert torch.equal(tscam.conv.weight, torch.nn.Conv2d(6, 4, 3, padding=1).double().weight)


def test_half_precision_features_give_single_precision_logits():
    tscam, features = head()
    assert tscam.half()(features.half(), maps=True).maps.dtype == torch.float32
    assert tscam(features.half()).logits.dtype == torch.float32


def test_half_precision_sums_lose_nothing():
    tscam, features = head(14, 14)
    features = (features + 3).bfloat16()  # sums of 196 cells, of which an edge is taken away
    weights = {name: value.bfloat16().double() for name, value in tscam.state_dict().items()}
    tscam.load_state_dict(weights)
    expected = tscam(features.double(), maps=True).logits
    torch.testing.assert_close(tscam.bfloat16()(features).logits, expected.float(), rtol=0.01, atol=0.05)


def test_pooled_features_are_refused():
    tscam, features = head()
    with pytest.raises(TagfillError, match="given pooled features, but it needs features of cells"):
        tscam(features.mean((2, 3)))


def test_a_convolutional_backbone_has_maps_and_no_attention():
    model = create("test_resnet", "tscam", CLASSES, image_size=64).eval()
    pixels = PIXELS.repeat(1, 1, 2, 2)[..., :64]
    assert model(pixels, maps=True).maps.shape == (2, 4, *model.backbone.grid)
    with pytest.raises(TagfillError, match="The backbone test_resnet has no class token"):
        model(pixels, attention=True)


def test_cached_features_have_no_attention():
    with pytest.raises(TagfillError, match="Attention of the tscam head needs pixels, not cached features"):
        deit()(torch.zeros(1, 192, 2, 3), attention=True)


@pytest.mark.parametrize("lacking", ["maps", "attention"])
def test_coupled_maps_need_maps_and_attention(lacking):
    parts = {"maps": torch.zeros(1, 1, 2, 2), "attention": torch.zeros(1, 2, 2), lacking: None}
    with pytest.raises(TagfillError, match="need a prediction made with maps=True and attention=True"):
        coupled(Prediction(torch.zeros(1, 1), **parts))
