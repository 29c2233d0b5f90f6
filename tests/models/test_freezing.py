"""Frozen parts do not move in real steps, and the others do."""

from __future__ import annotations

import pytest
import torch

from tagfill.errors import TagfillError
from tagfill.models import create_backbone

PIXELS = torch.randint(0, 256, (4, 3, 64, 64), dtype=torch.uint8, generator=torch.Generator().manual_seed(0))


def moved_by_training(backbone) -> set[str]:
    """Names of parameters and buffers that two steps of SGD change, weight decay included."""
    backbone.train()
    before = {name: value.clone() for name, value in backbone.model.state_dict().items()}
    optimizer = torch.optim.SGD([p for p in backbone.parameters() if p.requires_grad], lr=0.1, weight_decay=0.1)
    for _ in range(2):
        optimizer.zero_grad()
        backbone(PIXELS).square().mean().backward()
        optimizer.step()
    return {name for name, value in backbone.model.state_dict().items() if not torch.equal(value, before[name])}


def test_without_freezing_everything_moves():
    backbone = create_backbone("test_resnet", image_size=64)
    assert moved_by_training(backbone) == set(backbone.model.state_dict())


@pytest.mark.parametrize(
    ("name", "stem"),
    [
        ("test_resnet", ("conv1", "bn1", "layer1")),
        ("test_efficientnet", ("conv_stem", "bn1", "blocks.0")),
        ("test_convnext", ("stem", "stages.0")),
        ("test_vit", ("cls_token", "pos_embed", "patch_embed", "blocks.0")),
    ],
)
def test_a_frozen_stem_stays_and_the_rest_moves(name, stem):
    backbone = create_backbone(name, image_size=64)
    backbone.freeze_stem()
    beyond = "head."  # ConvNeXt's last norm comes after pooling, beyond the grid
    expected = {key for key in backbone.model.state_dict() if not key.startswith((*stem, beyond))}
    assert moved_by_training(backbone) == expected
    assert not backbone.frozen


@pytest.mark.parametrize("name", ["test_resnet", "tresnet_m"])
def test_frozen_batch_norms_stay_and_the_rest_moves(name):
    backbone = create_backbone(name, image_size=64)
    backbone.freeze_batch_norm()
    norms = {
        f"{path}.{key}"
        for path, module in backbone.model.named_modules()
        if isinstance(module, torch.nn.BatchNorm2d)
        for key in module.state_dict()
    }
    assert norms
    assert moved_by_training(backbone) == set(backbone.model.state_dict()) - norms


def test_frozen_batch_norms_use_their_own_statistics_in_training():
    backbone = create_backbone("test_resnet", image_size=64)
    backbone.freeze_batch_norm()
    torch.testing.assert_close(backbone.train()(PIXELS), backbone.eval()(PIXELS))


def test_a_backbone_is_frozen_when_nothing_of_it_trains():
    backbone = create_backbone("test_resnet", image_size=64)
    assert not backbone.frozen
    assert backbone.requires_grad_(False).frozen


def test_a_model_that_does_not_say_what_its_stem_is_is_refused():
    backbone = create_backbone("test_resnet", image_size=64)
    backbone.model = torch.nn.Conv2d(3, 8, 3)
    with pytest.raises(
        TagfillError, match="test_resnet does not say which layers are its stem; freeze all of it or none"
    ):
        backbone.freeze_stem()
