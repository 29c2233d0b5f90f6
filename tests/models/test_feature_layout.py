from __future__ import annotations

import pytest
import torch

from reference.attention import class_token_rows
from tagfill.errors import TagfillError
from tagfill.models import BACKBONES, create_backbone
from tagfill.models.feature_layout import FeatureLayout, detect_layout

# Every family of timm models has the same kind of grid, compared with timm's own conversion if it has one.


# name, image size, channels and grid of the features
FAMILIES = [
    ("test_resnet", (64, 96), 96, (2, 3)),
    ("resnext26ts", (64, 96), 2048, (2, 3)),
    ("test_efficientnet", (64, 96), 256, (2, 3)),
    ("test_convnext", (64, 96), 64, (2, 3)),
    ("tresnet_m", (64, 96), 2048, (2, 3)),
    ("mobilevit_xxs", (64, 96), 320, (2, 3)),
    ("swin_tiny_patch4_window7_224", (64, 96), 768, (2, 3)),
    ("test_mambaout", (64, 96), 64, (2, 3)),
    ("test_vit", (64, 96), 64, (4, 6)),
    ("test_vit4", (64, 96), 96, (4, 6)),
    ("deit_tiny_patch16_224", (64, 96), 192, (4, 6)),
    ("deit_tiny_distilled_patch16_224", (64, 96), 192, (4, 6)),
    ("vit_little_patch16_reg4_gap_256", (64, 96), 320, (4, 6)),
    ("vit_xsmall_patch16_clip_224", (64, 96), 256, (4, 6)),
    ("test_vit3", (64, 96), 96, (4, 6)),  # with the attention pooling of SigLIP, which features do not pass
    ("vit_small_patch14_reg4_dinov2", (56, 84), 384, (4, 6)),
    ("mixer_s32_224", (64, 96), 512, (2, 3)),
]


def pixels(size: tuple[int, int], images: int = 1) -> torch.Tensor:
    return torch.randint(0, 256, (images, 3, *size), dtype=torch.uint8, generator=torch.Generator().manual_seed(0))


@pytest.mark.parametrize(("name", "size", "channels", "grid"), FAMILIES, ids=[row[0] for row in FAMILIES])
def test_the_grid_is_that_of_timm(name, size, channels, grid):
    backbone = create_backbone(name, image_size=size).eval()
    assert (backbone.channels, backbone.grid) == (channels, grid)
    with torch.no_grad():
        features = backbone(pixels(size))
    assert features.shape == (1, channels, *grid)
    if hasattr(backbone.model, "forward_intermediates"):
        with torch.no_grad():
            scaled = (pixels(size).float() - backbone.mean) / backbone.std
            _, maps = backbone.model.forward_intermediates(scaled, indices=1, norm=True, output_fmt="NCHW")
        if maps[0].shape[1] == channels:  # EfficientNets have a last convolution after their last stage
            torch.testing.assert_close(features, maps[0], rtol=1e-4, atol=1e-5)


class Stated(torch.nn.Module):
    """A model with the given attributes."""

    num_features = 7

    def __init__(self, **statements):
        super().__init__()
        for name, value in statements.items():
            setattr(self, name, value)


def test_the_declared_layout_decides_between_equal_shapes():
    features = torch.arange(7**3, dtype=torch.float32).reshape(1, 7, 7, 7)
    first, last = detect_layout("first", Stated(), features), detect_layout("last", Stated(output_fmt="NHWC"), features)
    assert torch.equal(first.to_grid(features), features)
    assert torch.equal(last.to_grid(features)[0, 2], features[0, :, :, 2])


def test_patches_follow_row_by_row_after_the_prefix():
    features = torch.arange(2 + 2 * 3, dtype=torch.float32).reshape(1, -1, 1)
    grid = FeatureLayout("tokens", 1, (2, 3), prefix=2).to_grid(features)
    assert grid[0, 0].tolist() == [[2, 3, 4], [5, 6, 7]]


@pytest.mark.parametrize(
    ("model", "shape", "found"),
    [
        (Stated(), (1, 7), r"returns features of shape \(1, 7\)"),
        (Stated(), (1, 5, 5, 9), ".* does not say which dimension is the channels"),
        (Stated(), (1, 50, 7), ".* does not say where its tokens are"),
        (Stated(patch_embed=Stated(grid_size=(4, 4)), num_prefix_tokens=1), (1, 16, 7), "returns 16 tokens"),
    ],
)
def test_a_model_without_a_grid_names_models_that_have_one(model, shape, found):
    with pytest.raises(TagfillError, match=f"The backbone odd {found}.*such as .*resnet50.*deit_small_patch16_224"):
        detect_layout("odd", model, torch.zeros(shape))


def test_a_model_of_several_tensors_is_refused():
    with pytest.raises(TagfillError, match="The backbone crossvit_tiny_240 returns list instead of one tensor"):
        create_backbone("crossvit_tiny_240")


@pytest.mark.parametrize(
    ("size", "said"), [((8, 64), "do not cover 8×64; .* such as 16"), ((40, 64), "do not cover 40×64; .* 32 or 48")]
)
def test_an_image_size_that_patches_do_not_cover_is_refused(size, said):
    """timm drops the rest without a word, and class maps would not show what they cover."""
    with pytest.raises(TagfillError, match=f"test_vit divides images into patches of 16×16 pixels, which {said}"):
        create_backbone("test_vit", image_size=size)


def test_an_image_size_that_the_model_itself_refuses_is_named(monkeypatch):
    monkeypatch.setitem(BACKBONES, "stripes", lambda: torch.nn.Conv2d(3, 8, kernel_size=16, stride=16))
    with pytest.raises(TagfillError, match="stripes does not take images of 8×64 pixels; choose another image size"):
        create_backbone("stripes", image_size=(8, 64))


def test_models_with_learned_positions_take_their_own_size_by_default():
    import timm

    config = timm.get_pretrained_cfg("test_vit")
    assert create_backbone("test_vit").preprocessing.size == tuple(config.input_size[1:])


# Class token and attention of vision transformers, compared with the formula.


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
def test_collecting_attention_does_not_change_the_features():
    backbone = transformer()
    torch.testing.assert_close(backbone.encode(PIXELS, attention=True).features, backbone(PIXELS), rtol=0, atol=1e-4)


def test_collecting_attention_does_not_change_the_model():
    backbone = transformer()
    before = [block.attn.fused_attn for block in backbone.model.blocks]
    backbone.encode(PIXELS, attention=True)
    assert [block.attn.fused_attn for block in backbone.model.blocks] == before
    assert not any(block.attn.attn_drop._forward_pre_hooks for block in backbone.model.blocks)


def test_attention_has_no_gradient():
    assert not transformer().train().encode(PIXELS, attention=True).attention.requires_grad


@torch.no_grad()
def test_the_class_token_is_what_timm_classifies_by():
    backbone = transformer()
    scaled = (PIXELS.float() - backbone.mean) / backbone.std
    expected = backbone.model.forward_head(backbone.model.forward_features(scaled), pre_logits=True)
    torch.testing.assert_close(backbone.encode(PIXELS, token=True).token, expected, rtol=1e-4, atol=1e-5)


def test_only_what_is_requested_is_returned():
    seen = transformer().encode(PIXELS)
    assert seen.token is None
    assert seen.attention is None


@pytest.mark.parametrize("name", ["test_resnet", "vit_little_patch16_reg4_gap_256", "swin_tiny_patch4_window7_224"])
def test_a_backbone_without_a_class_token_says_so(name):
    backbone = create_backbone(name, image_size=64)
    assert not backbone.class_token
    with pytest.raises(TagfillError, match=f"The backbone {name} has no class token; choose a ViT or DeiT"):
        backbone.encode(PIXELS[..., :64], token=True)


@pytest.mark.parametrize(
    ("name", "beyond"),
    [
        ("test_resnet", set()),
        ("test_vit", set()),
        ("test_convnext", {"head.norm.weight", "head.norm.bias"}),
        ("mobilenetv3_small_050", {"conv_head.weight", "conv_head.bias"}),
    ],
)
def test_unused_parameters_never_train(name, beyond):
    backbone = create_backbone(name, image_size=64)
    for again in (backbone, backbone.requires_grad_(False).requires_grad_(True)):
        still = {key for key, parameter in again.model.named_parameters() if not parameter.requires_grad}
        assert still == beyond
    backbone(torch.zeros(2, 3, 64, 64, dtype=torch.uint8)).sum().backward()
    assert {key for key, parameter in backbone.model.named_parameters() if parameter.grad is None} == beyond


def test_unused_parameters_are_found_without_gradients():
    with torch.no_grad():
        backbone = create_backbone("test_convnext", image_size=64)
    assert sum(not parameter.requires_grad for parameter in backbone.parameters()) == 2
    with torch.inference_mode():
        assert not create_backbone("test_resnet", image_size=64).frozen
