from __future__ import annotations

import pytest
import torch

from tagfill.models import create_backbone


@pytest.mark.parametrize(
    ("name", "beyond"),
    [
        ("test_resnet", set()),
        ("test_vit", set()),
        ("test_convnext", {"head.norm.weight", "head.norm.bias"}),
        ("mobilenetv3_small_050", {"conv_head.weight", "conv_head.bias"}),
    ],
)
def test_what_the_grid_does_not_depend_on_never_trains(name, beyond):
    backbone = create_backbone(name, image_size=64)
    for again in (backbone, backbone.requires_grad_(False).requires_grad_(True)):
        still = {key for key, parameter in again.model.named_parameters() if not parameter.requires_grad}
        assert still == beyond
    backbone(torch.zeros(2, 3, 64, 64, dtype=torch.uint8)).sum().backward()
    assert {key for key, parameter in backbone.model.named_parameters() if parameter.grad is None} == beyond


def test_it_does_not_matter_whether_gradients_are_off():
    with torch.no_grad():
        backbone = create_backbone("test_convnext", image_size=64)
    assert sum(not parameter.requires_grad for parameter in backbone.parameters()) == 2
    with torch.inference_mode():
        assert not create_backbone("test_resnet", image_size=64).frozen
