from __future__ import annotations

import numpy as np
import pytest
import torch

from models.converting import published
from reference.tscam import convolve, deit
from tagfill.errors import TagfillError
from tagfill.models import Classifier
from tagfill.models.convert import CONVERTERS
from tagfill.models.published_weights import read_checkpoint

CLASSES = ["cat", "dog"]
PIXELS = torch.randint(0, 256, (1, 3, 64, 64), dtype=torch.uint8, generator=torch.Generator().manual_seed(0))


def converted(state, tmp_path) -> Classifier:
    torch.save({"model": state}, tmp_path / "tscam.pth")
    return CONVERTERS["tscam"](read_checkpoint(tmp_path / "tscam.pth"), CLASSES)


def test_logits_are_those_of_the_published_model(tmp_path):
    state = published.tscam(2)
    model = converted(state, tmp_path)
    weights = published.as_arrays(state)
    image = (PIXELS[0].double() / 255 - published.MEAN[:, None, None]) / published.STD[:, None, None]
    tokens, _ = deit(weights, image.numpy(), heads=3)
    maps = convolve(tokens[1:].T.reshape(192, 4, 4), weights["head.weight"], weights["head.bias"])
    with torch.no_grad():
        logits = model(PIXELS).logits[0]
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
def test_every_tensor_has_its_place(tmp_path, change, problem):
    state = published.tscam(2) | change
    with pytest.raises(TagfillError, match=problem):
        converted({name: value for name, value in state.items() if value is not None}, tmp_path)
