"""Class token and attention of vision transformers, against the formula written out."""

from __future__ import annotations

import pytest
import torch

from reference.attention import class_token_rows
from tagfill.errors import TagfillError
from tagfill.models import create_backbone

PIXELS = torch.randint(0, 256, (2, 3, 64, 96), dtype=torch.uint8, generator=torch.Generator().manual_seed(0))


def transformer(name: str = "deit_tiny_patch16_224"):
    backbone = create_backbone(name, image_size=(64, 96)).eval()
    with torch.no_grad():
        for block in backbone.model.blocks:
            block.attn.qkv.weight *= 8  # random weights attend to everything alike
    return backbone


def inputs_of_attention(backbone) -> list[torch.Tensor]:
    seen = []
    hooks = [
        block.attn.register_forward_pre_hook(lambda _, arguments: seen.append(arguments[0]))
        for block in backbone.model.blocks
    ]
    backbone(PIXELS)
    for hook in hooks:
        hook.remove()
    return seen


@pytest.mark.parametrize(
    ("name", "prefix"), [("deit_tiny_patch16_224", 1), ("deit_tiny_distilled_patch16_224", 2), ("test_vit", 1)]
)
@torch.no_grad()
def test_attention_is_the_formula_written_out(name, prefix):
    backbone = transformer(name)
    attention = backbone.encode(PIXELS, attention=True).attention
    assert attention.shape == (2, len(backbone.model.blocks), 24)
    assert attention.std() > 0.01
    for number, tokens in enumerate(inputs_of_attention(backbone)):
        layer = backbone.model.blocks[number].attn
        expected = class_token_rows(
            tokens.numpy(), layer.qkv.weight.numpy(), layer.qkv.bias.numpy(), heads=layer.num_heads, prefix=prefix
        )
        torch.testing.assert_close(attention[:, number], torch.from_numpy(expected), rtol=0, atol=1e-5)


@torch.no_grad()
def test_looking_at_attention_does_not_change_the_features():
    backbone = transformer()
    torch.testing.assert_close(backbone.encode(PIXELS, attention=True).features, backbone(PIXELS), rtol=0, atol=1e-4)


def test_attention_leaves_the_model_as_it_was():
    backbone = transformer()
    before = [block.attn.fused_attn for block in backbone.model.blocks]
    backbone.encode(PIXELS, attention=True)
    assert [block.attn.fused_attn for block in backbone.model.blocks] == before
    assert not any(block.attn.attn_drop._forward_pre_hooks for block in backbone.model.blocks)


def test_attention_keeps_no_graph():
    assert not transformer().train().encode(PIXELS, attention=True).attention.requires_grad


@torch.no_grad()
def test_the_class_token_is_what_timm_classifies_by():
    backbone = transformer()
    scaled = (PIXELS.float() - backbone.mean) / backbone.std
    expected = backbone.model.forward_head(backbone.model.forward_features(scaled), pre_logits=True)
    torch.testing.assert_close(backbone.encode(PIXELS, token=True).token, expected, rtol=1e-4, atol=1e-5)


def test_only_what_is_asked_for_is_there():
    seen = transformer().encode(PIXELS)
    assert seen.token is None
    assert seen.attention is None


@pytest.mark.parametrize("name", ["test_resnet", "vit_little_patch16_reg4_gap_256", "swin_tiny_patch4_window7_224"])
def test_a_backbone_without_a_class_token_says_so(name):
    backbone = create_backbone(name, image_size=64)
    assert not backbone.class_token
    with pytest.raises(TagfillError, match=f"The backbone {name} has no class token; choose a ViT or DeiT"):
        backbone.encode(PIXELS[..., :64], token=True)
