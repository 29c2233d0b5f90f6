"""Query2Label on TResNet, Swin and CvT: the logits of files in their authors' names, computed without our models."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from models.converting import published, published_bodies
from models.converting.test_q2l import converted, reference_logits
from reference.cvt import cvt
from reference.swin import swin
from reference.tresnet import tresnet
from tagfill.errors import TagfillError
from tagfill.models import convert_q2l
from tagfill.models.backbone import _bare_model

SWIN_TINY = (96, (2, 2, 6, 2), (3, 6, 12, 24), 7)


def pixels_of(side: int) -> torch.Tensor:
    return torch.randint(0, 256, (2, 3, side, side), dtype=torch.uint8, generator=torch.Generator().manual_seed(0))


def normalized(pixels: torch.Tensor) -> torch.Tensor:
    return (pixels / 255 - published.MEAN.view(1, 3, 1, 1)) / published.STD.view(1, 3, 1, 1)


def a_file(body: dict[str, torch.Tensor], prefix: str, channels: int, grid: int) -> dict[str, torch.Tensor]:
    torch.manual_seed(0)
    head = published.q2l_without_backbone(3, channels, grid=(grid, grid))
    return head | {f"{prefix}{name}": value for name, value in body.items()}


def check(model, pixels, state, grid) -> None:
    """The same features, and the same logits of them."""
    with torch.no_grad():
        torch.testing.assert_close(model.backbone(pixels), grid, rtol=1e-3, atol=1e-3)
        np.testing.assert_allclose(model(pixels).logits, reference_logits(state, grid, 4), rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize(
    ("name", "depths", "deep"), [("tresnet_m", (3, 4, 11, 3), False), ("tresnet_v2_l", (3, 4, 23, 3), True)]
)
def test_a_tresnet_with_in_place_norms(tmp_path, name, depths, deep):
    body = published_bodies.filled(published_bodies.tresnet(64, depths, deep=deep))
    assert any((value < -0.1).any() for place, value in body.items() if place.endswith("conv1.1.weight"))
    state = a_file(body, "backbone.0.body.", 2048, 2)
    model = converted(state, tmp_path, {"nheads": 4, "orid_norm": True})
    pixels = pixels_of(64)
    assert (model.backbone.name, model.backbone.preprocessing.size) == (name, (64, 64))
    check(model, pixels, state, tresnet(pixels / 255, body))


def test_a_tresnet_does_not_guess_how_pixels_are_normalized(tmp_path):
    body = published_bodies.filled(published_bodies.tresnet(64, (3, 4, 11, 3)))
    with pytest.raises(TagfillError, match="does not say how pixels are normalized"):
        converted(a_file(body, "backbone.0.body.", 2048, 2), tmp_path, {"nheads": 4})


def test_a_swin_transformer(tmp_path):
    body = published_bodies.filled(published_bodies.swin(*SWIN_TINY))
    state = a_file(body | published_bodies.swin_buffers(SWIN_TINY[1], 7), "backbone.0.", 768, 7)
    model = converted(state, tmp_path)
    pixels = pixels_of(224)
    assert (model.backbone.name, model.backbone.preprocessing.size) == ("swin_tiny_patch4_window7_224", (224, 224))
    body_only = {name: value for name, value in state.items() if not name.endswith(("_index", "attn_mask"))}
    check(model, pixels, body_only, swin(normalized(pixels), body, window=7))


def test_a_cvt_with_its_last_norm_on_each_cell(tmp_path):
    body = published_bodies.filled(published_bodies.cvt((64, 192, 384), (1, 2, 10)))
    state = a_file(body, "backbone.0.", 384, 4)
    model = converted(state, tmp_path)
    pixels = pixels_of(64)
    assert (model.backbone.name, model.backbone.preprocessing.size) == ("cvt_13_q2l", (64, 64))
    check(model, pixels, state, cvt(normalized(pixels), body, heads=(1, 3, 6)))


@pytest.mark.parametrize(
    ("name", "prefix", "shapes"),
    [
        ("tresnet_l", "backbone.0.body.", published_bodies.tresnet(76, (4, 5, 18, 3))),
        ("tresnet_xl", "backbone.0.body.", published_bodies.tresnet(83, (4, 5, 24, 3))),
        (
            "swin_large_patch4_window12_384",
            "backbone.0.",
            published_bodies.swin(192, (2, 2, 18, 2), (6, 12, 24, 48), 12),
        ),
        ("cvt_w24_q2l", "backbone.0.", published_bodies.cvt((192, 768, 1024), (2, 2, 20))),
    ],
)
def test_the_large_ones_have_a_place_for_every_tensor(tmp_path, name, prefix, shapes):
    """Names and shapes of the sizes that were published, without the numbers."""
    weights = {place: torch.empty(shape, device="meta") for place, shape in shapes.items()}
    family = convert_q2l.identify_family(tmp_path, {prefix + place: value for place, value in weights.items()})
    assert family.identify(tmp_path, weights) == name
    found = {target: tuple(value.shape) for _, target, value in family.rename(weights)}
    with torch.device("meta"):
        model = _bare_model(name, False, None)
        model.reset_classifier(0)
    wanted = {place: tuple(value.shape) for place, value in model.state_dict().items()}
    counts = {place for place in wanted if place.endswith("num_batches_tracked") and place not in found}
    assert found == {place: shape for place, shape in wanted.items() if place not in counts}


@pytest.mark.parametrize(
    ("shapes", "prefix", "problem"),
    [
        (
            published_bodies.tresnet(64, (1, 1, 1, 1)),
            "backbone.0.body.",
            r"TResNet.* stages have \(1, 1, 1, 1\) blocks",
        ),
        (published_bodies.swin(96, (2, 2, 2, 2), (3, 6, 12, 24), 7), "backbone.0.", "Swin.* windows have side 7"),
        (published_bodies.cvt((8, 8, 8), (1, 1, 1)), "backbone.0.", r"CvT.* \(1, 1, 1\) blocks of width \(8, 8, 8\)"),
    ],
)
def test_other_sizes_are_refused(tmp_path, shapes, prefix, problem):
    weights = {place: torch.empty(shape, device="meta") for place, shape in shapes.items()}
    family = convert_q2l.identify_family(tmp_path, {prefix + place: value for place, value in weights.items()})
    with pytest.raises(TagfillError, match=problem):
        family.identify(tmp_path, weights)
