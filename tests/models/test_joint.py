"""Towers of CLIP and SigLIP with their projection: small ones of the same structure, with random weights."""

from __future__ import annotations

import pytest
import torch
from safetensors.torch import save_file
from torch import nn

import tagfill.torchvision_remedy  # noqa: F401  (before timm)
from tagfill.errors import TagfillError
from tagfill.models import create_backbone
from tagfill.models.joint import JointTower

CLIP = "vit_xsmall_patch16_clip_224"
PIXELS = torch.randint(0, 256, (2, 3, 32, 48), dtype=torch.uint8, generator=torch.Generator().manual_seed(0))
SCALED = torch.randn(2, 3, 32, 48, generator=torch.Generator().manual_seed(1))


def unit(vectors: torch.Tensor) -> torch.Tensor:
    return vectors / vectors.norm(dim=-1, keepdim=True)


@torch.no_grad()
def test_the_image_vector_of_clip_is_that_of_timm_and_cells_pass_the_same_projection():
    backbone = create_backbone(f"{CLIP}_joint", image_size=(32, 48)).eval()
    tower, scaled = backbone.model.tower, (PIXELS - backbone.mean) / backbone.std
    output = backbone.encode(PIXELS, token=True)
    assert (backbone.channels, backbone.grid, backbone.class_token) == (512, (2, 3), True)
    torch.testing.assert_close(output.token, unit(tower(scaled)), rtol=1e-4, atol=1e-5)
    cell = unit(tower.head(tower.forward_features(scaled)[:, 1 + 4]))  # the second row, the second column
    torch.testing.assert_close(output.features[:, :, 1, 1], cell, rtol=1e-4, atol=1e-5)


def siglip() -> JointTower:
    """The structure of SigLIP, of 96 channels: no class token, attention pooling, no projection behind it."""
    import timm

    torch.manual_seed(0)
    tower = timm.create_model("test_vit3", img_size=(32, 48), num_classes=0, class_token=False, reg_tokens=0)
    return JointTower("vit_siglip_joint", tower.eval(), "webli")


@torch.no_grad()
def test_siglip_pools_all_patches_and_each_alone():
    joint = siglip()
    vectors = joint.forward_features(SCALED)
    assert joint.grid_size == (2, 3)
    assert vectors.shape == (2, 7, 96)
    torch.testing.assert_close(vectors[:, 0], unit(joint.tower(SCALED)), rtol=1e-4, atol=1e-5)
    patches = joint.tower.forward_features(SCALED)
    torch.testing.assert_close(vectors[:, 5], unit(joint.tower.attn_pool(patches[:, 4:5])), rtol=1e-4, atol=1e-5)


class PooledCells(nn.Module):
    """The end of a ResNet of CLIP: attention pooling over a grid, with a projection."""

    def __init__(self) -> None:
        from timm.layers import AttentionPool2d

        super().__init__()
        self.pretrained_cfg = {"input_size": (3, 32, 32)}
        self.body = nn.Conv2d(3, 64, 16, stride=16)
        self.head = AttentionPool2d(64, feat_size=2, out_features=10, qkv_separate=True)

    def forward_features(self, pixels):
        return self.body(pixels)


@torch.no_grad()
def test_cells_of_a_resnet_pass_value_and_output_projection():
    torch.manual_seed(0)
    tower = PooledCells().eval()
    square = SCALED[..., :32]
    vectors = JointTower("resnet50_clip_joint", tower, "openai").forward_features(square)
    grid = tower.body(square)
    torch.testing.assert_close(vectors[:, 0], unit(tower.head(grid)), rtol=1e-4, atol=1e-5)
    cell = tower.head.proj(tower.head.v(grid[:, :, 1, 0]))
    torch.testing.assert_close(vectors[:, 1 + 2], unit(cell), rtol=1e-4, atol=1e-5)


def test_weights_come_from_a_file_with_the_projection(tmp_path):
    origin = create_backbone(f"{CLIP}_joint", image_size=32, seed=3)
    state = {name: value.contiguous() for name, value in origin.model.tower.state_dict().items()}
    save_file(state, tmp_path / "clip.safetensors")
    loaded = create_backbone(f"{CLIP}_joint", image_size=32, pretrained=str(tmp_path / "clip.safetensors"))
    assert loaded.fingerprint() == origin.fingerprint()
    bare = {name: value for name, value in state.items() if not name.startswith("head.")}
    save_file(bare, tmp_path / "bare.safetensors")
    with pytest.raises(TagfillError, match=r"lack tower\.head\.weight"):
        create_backbone(f"{CLIP}_joint", image_size=32, pretrained=str(tmp_path / "bare.safetensors"))


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("deit_tiny_patch16_224_joint", r"vit_base_patch16_clip_224\.openai_joint"),
        ("test_vit_joint", r"vit_base_patch16_clip_224\.openai_joint"),
    ],
)
def test_a_model_without_texts_is_refused(name, hint):
    with pytest.raises(TagfillError, match=f"The backbone {name} has no projection .* such as {hint}"):
        create_backbone(name, image_size=32)


def test_a_classifier_of_imagenet_is_no_projection():
    import timm

    tower = timm.create_model("test_vit", img_size=32)
    with pytest.raises(TagfillError, match="has no projection"):
        JointTower("vit_base_patch16_clip_224_joint", tower, "laion2b_ft_in12k_in1k")
