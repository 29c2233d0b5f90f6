from __future__ import annotations

import sys

import pytest
import torch
from safetensors.torch import save_file

from tagfill.errors import TagfillError
from tagfill.models import create, create_backbone
from tagfill.models.cvt import CVT_NAMES, Cvt

PIXELS = torch.randint(0, 256, (2, 3, 64, 96), dtype=torch.uint8, generator=torch.Generator().manual_seed(0))


def test_the_grid_is_that_of_transformers():
    from transformers import CvtConfig, CvtModel

    backbone = create_backbone("cvt_13", image_size=(64, 96)).eval()
    assert (backbone.channels, backbone.grid) == (384, (4, 6))
    whole = CvtModel(CvtConfig(), add_pooling_layer=False).eval()
    whole.load_state_dict(backbone.model.state_dict())
    with torch.no_grad():
        expected = whole((PIXELS.float() - backbone.mean) / backbone.std).last_hidden_state
        torch.testing.assert_close(backbone(PIXELS), expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(("name", "millions"), [("cvt_13", 19.6), ("cvt_21", 31.2), ("cvt_w24", 276)])
def test_sizes_are_those_of_the_paper(name, millions):
    """Up to the classifier, which the paper counts too."""
    with torch.device("meta"):
        weights = sum(parameter.numel() for parameter in Cvt(name).parameters())
    assert weights / 1e6 == pytest.approx(millions, rel=0.02)


@pytest.mark.parametrize(("name", "last"), [("cvt_13", 0.1), ("cvt_w24_q2l", 0.3)])
def test_branches_of_the_last_stage_are_dropped_at_the_published_rates(name, last):
    with torch.device("meta"):
        model = Cvt(name)
    rates = [module.drop_prob for module in model.modules() if type(module).__name__ == "DropPath"]
    blocks = len(model.encoder.stages[-1].layers)
    assert rates == pytest.approx([rate for rate in torch.linspace(0, last, blocks).tolist() for _ in range(2)])
    assert not [module for module in model.modules() if type(module).__name__ == "CvtDropPath"]


def test_a_block_whose_branches_are_dropped_returns_its_input():
    block = Cvt("cvt_13").train().encoder.stages[-1].layers[-1]
    tokens = torch.randn(2, 1 + 4 * 6, 384, generator=torch.Generator().manual_seed(1))
    block.attention.output.dropout.drop_prob = block.output.dropout.drop_prob = 1.0
    assert torch.equal(block(tokens, 4, 6), tokens)


def test_weights_come_from_a_file_of_the_whole_classifier(tmp_path):
    origin = create_backbone("cvt_13", image_size=64, seed=7)
    state = {f"cvt.{name}": value.contiguous() for name, value in origin.model.state_dict().items()}
    save_file(state | {"classifier.weight": torch.zeros(5, 384)}, tmp_path / "w.safetensors")
    read = create_backbone("cvt_13", image_size=64, pretrained=str(tmp_path / "w.safetensors"))
    assert read.fingerprint() == origin.fingerprint()


def test_its_stem_and_batch_norms_freeze():
    model = create("cvt_13", "cam", ["cat", "dog"], image_size=64)
    model.backbone.freeze_stem()
    model.backbone.freeze_batch_norm()
    model.train()(PIXELS[..., :64]).logits.sum().backward()
    moving = {name for name, parameter in model.backbone.model.named_parameters() if parameter.grad is not None}
    assert moving
    assert all(name.startswith(("encoder.stages.1", "encoder.stages.2")) for name in moving)
    assert not any("projection.normalization" in name and "embedding" not in name for name in moving)


def test_weights_of_the_hub_are_refused():
    with pytest.raises(TagfillError, match=r"download the model\.safetensors of microsoft/cvt-w24 and give its path"):
        create_backbone("cvt_w24", pretrained=True)


def test_without_the_extra_it_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "transformers", None)
    with pytest.raises(TagfillError, match=r"cvt_13 needs the package transformers; run: pip install 'tagfill\[cvt\]'"):
        create_backbone("cvt_13")


def test_the_nearest_name_is_suggested():
    with pytest.raises(TagfillError, match="There is no backbone 'cvt13'; did you mean 'cvt_13'"):
        create_backbone("cvt13")
    assert set(CVT_NAMES) == {"cvt_13", "cvt_21", "cvt_w24", "cvt_13_q2l", "cvt_21_q2l", "cvt_w24_q2l"}
