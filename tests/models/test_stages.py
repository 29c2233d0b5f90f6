from __future__ import annotations

import pytest
import torch
from torch import nn

from tagfill.errors import TagfillError
from tagfill.models import BACKBONES, Classifier, create, create_backbone

PIXELS = torch.randint(0, 256, (2, 3, 64, 64), dtype=torch.uint8, generator=torch.Generator().manual_seed(0))


@pytest.mark.parametrize(
    ("name", "stage", "above", "inner"),
    [
        ("test_resnet", "layer3", ("layer4",), (192, 4, 4)),
        ("test_efficientnet", "blocks.3", ("blocks.4", "conv_head", "bn2"), (48, 4, 4)),
        ("mobilenetv3_small_050", "blocks.4", ("blocks.5",), (48, 2, 2)),  # its last convolution follows the pooling
        ("test_convnext", "stages.2", ("stages.3", "norm_pre"), (48, 4, 4)),
        ("regnetx_002", "s3", ("s4", "final_conv"), (152, 4, 4)),
        ("swin_tiny_patch4_window7_224", "layers.2", ("layers.3", "norm"), (384, 4, 4)),
        ("test_vit", "blocks.4", ("blocks.5", "norm"), (64, 1, 17)),  # tokens in one row, the class token first
    ],
)
def test_the_parts_below_and_above_a_stage_are_the_whole(name, stage, above, inner):
    backbone = create_backbone(name, image_size=64).eval()
    assert backbone.default_stage() == stage
    top = backbone.above(stage)
    assert (top.names, top.inner) == (above, inner)
    with torch.no_grad():
        cells = backbone.below(PIXELS, stage)
        assert torch.equal(top(cells), backbone(PIXELS))
        if backbone.class_token:
            whole = backbone.encode(PIXELS, token=True).token
            assert torch.equal(top.encode(cells, token=True).token, whole)


def test_the_fingerprint_of_a_stage_is_that_of_the_weights_below_it():
    backbone = create_backbone("test_resnet", image_size=64)
    whole, inner, earlier = (backbone.fingerprint(*at) for at in ((), ("layer3",), ("layer2",)))
    assert len({whole, inner, earlier}) == 3
    with torch.no_grad():
        backbone.model.layer4[0].conv1.weight.add_(1)
    assert backbone.fingerprint() != whole
    assert backbone.fingerprint("layer3") == inner
    with torch.no_grad():
        backbone.model.layer3[0].conv1.weight.add_(1)
    assert backbone.fingerprint("layer3") != inner
    assert backbone.fingerprint("layer2") == earlier


def test_the_top_shares_its_weights_and_a_copy_can_replace_it():
    model = create("test_efficientnet", "cam", ["cat", "dog"], image_size=64).eval()
    other = create("test_efficientnet", "cam", ["cat", "dog"], image_size=64, seed=1).eval()
    inner = model.backbone.below(PIXELS, "blocks.3")
    with torch.no_grad():
        assert torch.equal(model.above("blocks.3")(inner).logits, model(PIXELS).logits)
        replaced = model.replace_top(other.above("blocks.3"))
        assert torch.equal(replaced(PIXELS).logits, other.above("blocks.3")(inner).logits)
        model.above("blocks.3").backbone.parts[1].weight.zero_()
    assert not model.backbone.model.conv_head.weight.any()
    assert replaced.backbone.model.conv_head.weight.any()


def test_inputs_of_another_shape_are_refused():
    top = create("test_resnet", "cam", ["cat", "dog"], image_size=64).above("layer3")
    with pytest.raises(TagfillError, match=r"takes the output of the stage 'layer3', of shape B×192×4×4; it was given"):
        top(PIXELS)


def test_frozen_parts_of_a_network_stay_in_evaluation_mode():
    model = create("test_resnet", "cam", ["cat", "dog"], image_size=64)
    model.freeze(below="layer3")
    model.train()
    assert {name.split(".")[0] for name, value in model.backbone.model.named_parameters() if value.requires_grad} == {
        "layer4"
    }
    modes = {name: module.training for name, module in model.backbone.model.named_modules()}
    assert modes["layer4.0.bn1"]
    assert not modes["layer3.0.bn1"]
    assert not modes["bn1"]
    model.freeze(below="layer3", batch_norm=True)
    assert not model.backbone.model.layer4[0].bn1.training
    assert model.backbone.model.layer4[0].conv1.weight.requires_grad


def test_unknown_stages_are_refused():
    backbone = create_backbone("test_resnet", image_size=64)
    with pytest.raises(TagfillError, match="has no stage 'layer5' to cache; it has: layer1, layer2, layer3"):
        backbone.above("layer5")
    with pytest.raises(TagfillError, match="Nothing of the backbone test_resnet lies above its last stage 'layer4'"):
        backbone.above("layer4")


class Own(nn.Module):
    """Runs its stages in another order than it lists its modules."""

    def __init__(self, skip: bool = False):
        super().__init__()
        self.late, self.early, self.skip = nn.Conv2d(8, 8, 1), nn.Conv2d(3, 8, 16, stride=16), skip

    def stages(self):
        return {"early": self.early, "late": self.late}

    def forward(self, pixels):
        early = self.early(pixels)
        return self.late(early) + (early if self.skip else 0)


@pytest.fixture
def register(monkeypatch):
    return lambda make: monkeypatch.setitem(BACKBONES, "own", make)


def test_a_custom_backbone_says_what_its_stages_are(register):
    register(Own)
    backbone = create_backbone("own", image_size=64)
    assert (backbone.stages, backbone.default_stage()) == (["early", "late"], "early")
    assert torch.equal(backbone.above("early")(backbone.below(PIXELS, "early")), backbone(PIXELS))
    register(lambda: nn.Sequential(nn.Conv2d(3, 8, 16, stride=16), nn.ReLU(), nn.Conv2d(8, 4, 1)))
    backbone = create_backbone("own", image_size=64)
    assert backbone.above("0").names == ("module.1", "module.2")


def test_a_custom_backbone_that_cannot_be_divided_is_refused(register):
    register(lambda: Own(skip=True))
    with pytest.raises(TagfillError, match="own cannot be divided at 'early', because its stages do not simply run"):
        create_backbone("own", image_size=64).above("early")
    register(lambda: nn.Conv2d(3, 8, 16, stride=16))
    with pytest.raises(TagfillError, match="own has no known stages, so no part of it can be cached"):
        create_backbone("own", image_size=64).default_stage()


def test_a_saved_model_is_the_whole_network(tmp_path):
    model = create("test_resnet", "cam", ["cat", "dog"], image_size=64)
    model.replace_top(model.above("layer3")).save(tmp_path / "model")
    loaded = Classifier.load(tmp_path / "model")
    with torch.no_grad():
        assert torch.equal(loaded(PIXELS).logits, model.eval()(PIXELS).logits)
