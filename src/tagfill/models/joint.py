"""Backbones in the space that a vision-language model shares with its texts: `<name of timm>_joint`.

timm has the image towers of CLIP and SigLIP. What their `forward_features` returns is one step short of the space in
which photos are compared with texts; timm keeps the last step in the classifier, which other backbones drop. A `_joint`
backbone keeps it:

    tower            image vector, which pool=token takes                   vector of a cell
    CLIP, ViT        P · normed class token                                 P · normed patch token
    CLIP, ResNet     attention pooling of all cells, with its projection    W_out (W_v f + b_v) + b_out
    SigLIP           attention pooling of all patches                       attention pooling of this patch alone

All vectors are scaled to length 1, so the inner product with a text vector of length 1 is the cosine by which CLIP
classifies. Only the image vector was trained for that. The vectors of cells are what the last step makes of one cell:
those of a ResNet are the region features of DualCoOp (Sun et al., NeurIPS 2022) and MaskCLIP (Zhou, Loy and Dai:
*Extract Free Dense Labels from CLIP*, ECCV 2022); the same step applied to the patch tokens of a ViT is an
approximation.

The projection is part of the weights that were published with a tag, such as `.openai` or `.laion2b`; weights with
`_ft_` in their tag were fine-tuned to classify ImageNet and have a classifier instead.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from tagfill.errors import TagfillError
from tagfill.models.weights import convert_published

JOINT_SUFFIX = "_joint"
_FAMILIES = ("clip", "siglip")


def is_joint(name: str) -> bool:
    """Whether a name is that of a timm model with the suffix `_joint`."""
    import timm

    return name.endswith(JOINT_SUFFIX) and bool(timm.is_model(name.removesuffix(JOINT_SUFFIX)))


class JointTower(nn.Module):
    """An image tower of timm whose features are vectors in the space of the texts.

    `forward_features` returns B×(1 + H·W)×D: the image vector, then those of the cells, row by row, all of length 1.

    Args:
        name: timm's name with the suffix.
        tower: the model, with its classifier.
        tag: timm's tag of its weights.
    """

    num_prefix_tokens = 1
    image_vector = True

    def __init__(self, name: str, tower: Any, tag: str) -> None:
        super().__init__()
        from timm.layers.attention_pool import AttentionPoolLatent
        from timm.layers.attention_pool2d import AttentionPool2d

        plain = name.removesuffix(JOINT_SUFFIX)
        if not any(family in plain for family in _FAMILIES) or "_ft_" in tag:
            raise _no_joint_space(name, plain)
        self.tower = tower
        self._prefix = int(getattr(tower, "num_prefix_tokens", 0))
        head = getattr(tower, "head", None)
        if isinstance(getattr(tower, "attn_pool", None), AttentionPoolLatent) and isinstance(head, nn.Identity):
            self._kind, self.num_features = "latent", int(tower.num_features)
            grid = tower.patch_embed.grid_size
        elif isinstance(head, nn.Linear) and getattr(tower, "global_pool", None) == "token":
            self._kind, self.num_features = "token", int(head.out_features)
            grid = tower.patch_embed.grid_size
        elif isinstance(head, AttentionPool2d) and head.v is not None and isinstance(head.proj, nn.Linear):
            self._kind, self.num_features = "cells", int(head.out_features)
            grid = head.feat_size
        else:
            raise _no_joint_space(name, plain)
        self.grid_size = (int(grid[0]), int(grid[1]))
        self.pretrained_cfg = {**dict(tower.pretrained_cfg), "classifier": None}

    def forward_features(self, pixels: Tensor) -> Tensor:
        """B×3×H×W scaled pixels to B×(1 + cells)×D vectors of length 1."""
        features: Tensor = self.tower.forward_features(pixels)
        return F.normalize(getattr(self, f"_project_{self._kind}")(features), dim=-1)

    def reset_classifier(self, classes: int) -> None:
        """Do nothing: the projection stays."""

    def _project_token(self, tokens: Tensor) -> Tensor:
        """The class token and the patches of a ViT of CLIP."""
        kept = tokens if self._prefix == 1 else _first_and_rest(tokens[:, 0], tokens[:, self._prefix :])
        projected: Tensor = self.tower.head(self.tower.fc_norm(kept))
        return projected

    def _project_latent(self, patches: Tensor) -> Tensor:
        """All patches of SigLIP, then each alone; with one patch, the attention of the pooling is 1."""
        patches = patches[:, self._prefix :]
        alone = self.tower.attn_pool(patches.reshape(-1, 1, patches.shape[2]))
        return _first_and_rest(self.tower.attn_pool(patches), alone.reshape(-1, *patches.shape[1:]))

    def _project_cells(self, grid: Tensor) -> Tensor:
        """All cells of a ResNet of CLIP, then each alone."""
        pool = self.tower.head
        alone = pool.proj(pool.v(grid.flatten(2).transpose(1, 2)))
        return _first_and_rest(pool(grid), alone)


def _first_and_rest(first: Tensor, rest: Tensor) -> Tensor:
    """B×D and B×N×D to B×(1 + N)×D."""
    return torch.cat([first[:, None], rest], dim=1)


def _no_joint_space(name: str, plain: str) -> TagfillError:
    import timm

    arch = plain.partition(".")[0]
    tags = [known for known in timm.list_pretrained(f"{arch}.*") if "_ft_" not in known]
    near = tags[0] if tags and "_clip_" in arch else "vit_base_patch16_clip_224.openai"
    return TagfillError(
        f"The backbone {name} has no projection to the space of its texts; towers of CLIP and SigLIP that were not "
        f"fine-tuned have one, such as {near}{JOINT_SUFFIX}."
    )


def checkpoint_filter_fn(state: dict[str, Tensor], model: JointTower) -> dict[str, Tensor]:
    """Rename weights of the tower to those of `JointTower`; `load_weights` finds it by this name."""
    inner = convert_published(model.tower, state, model.tower.state_dict())
    return {f"tower.{name}": value for name, value in inner.items()}
