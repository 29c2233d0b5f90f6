"""CvT, convolutional vision transformers, which timm lacks: the encoder of `transformers` (extra `cvt`).

The last stage has a stride of 16 and a class token, which is not used here. Sizes are the published ones; weights come
from a safetensors file such as the `model.safetensors` of `microsoft/cvt-13`.

Names that end in `_q2l` are the variants of Query2Label: they use the activation of CvT's first code, x · σ(1.702 x),
instead of the GELU of `transformers`, and apply the last norm to each cell instead of the class token. In training all
of them drop branches of the last stage at random, as published.

Wu, Xiao, Codella, Liu, Dai, Yuan and Zhang: *CvT: Introducing Convolutions to Vision Transformers*, ICCV 2021.
"""

from __future__ import annotations

from typing import Any

from torch import Tensor, nn

import tagfill.torchvision_remedy  # noqa: F401  (before timm and transformers, which import torchvision)
from tagfill.errors import TagfillError

# side of the input; depth, width and heads of the three stages
SIZES: dict[str, tuple[int, tuple[int, ...], tuple[int, ...], tuple[int, ...]]] = {
    "cvt_13": (224, (1, 2, 10), (64, 192, 384), (1, 3, 6)),
    "cvt_21": (224, (1, 4, 16), (64, 192, 384), (1, 3, 6)),
    "cvt_w24": (384, (2, 2, 20), (192, 768, 1024), (3, 12, 16)),
}
DROP_PATH = {"cvt_13": 0.1, "cvt_21": 0.1, "cvt_w24": 0.3}  # of the last block; blocks before it drop less
Q2L_SUFFIX = "_q2l"
CVT_NAMES = tuple(name + ending for ending in ("", Q2L_SUFFIX) for name in SIZES)


class Cvt(nn.Module):
    """The encoder of a CvT with the attributes that `Backbone` expects of a timm model."""

    def __init__(self, name: str) -> None:
        super().__init__()
        try:
            from transformers import CvtConfig, CvtModel
        except ImportError:
            raise TagfillError(
                f"The backbone {name} needs the package transformers; run: pip install 'tagfill[cvt]'."
            ) from None
        side, depth, width, heads = SIZES[name.removesuffix(Q2L_SUFFIX)]
        config = CvtConfig(depth=list(depth), embed_dim=list(width), num_heads=list(heads))
        whole: Any = CvtModel
        self.encoder: Any = whole(config, add_pooling_layer=False).encoder
        _set_drop_path(self.encoder, DROP_PATH[name.removesuffix(Q2L_SUFFIX)])
        self.layernorm: nn.Module = nn.Identity()
        if name.endswith(Q2L_SUFFIX):
            self.layernorm = nn.LayerNorm(width[-1])
            _use_quick_gelu(self.encoder)
        self.num_features = width[-1]
        self.pretrained_cfg = {
            "input_size": (3, side, side),
            "mean": (0.485, 0.456, 0.406),
            "std": (0.229, 0.224, 0.225),
            "classifier": "classifier" if name.endswith(Q2L_SUFFIX) else ("layernorm", "classifier"),
        }

    def forward_features(self, pixels: Tensor) -> Tensor:
        """B×3×H×W to B×D×H/16×W/16."""
        grid: Tensor = self.encoder(pixels, return_dict=False)[0]
        if isinstance(self.layernorm, nn.Identity):
            return grid
        normed: Tensor = self.layernorm(grid.permute(0, 2, 3, 1)).permute(0, 3, 1, 2)
        return normed

    def reset_classifier(self, classes: int) -> None:
        """Do nothing: it has no classifier."""

    def group_matcher(self, coarse: bool = False) -> dict[str, str]:
        """Patterns of the names of its stem and its stages, as timm models declare them."""
        return {"stem": r"^encoder\.stages\.0\.embedding", "blocks": r"^encoder\.stages\.(\d+)"}


def _set_drop_path(encoder: Any, last: float) -> None:
    """Drop the branches of the last stage in training, from 0 in its first block up to `last` in its last one.

    As in CvT's first code. `transformers` has one rate for all blocks, and after the second branch drops the sum of
    branch and input, which would remove an image from the network; its modules are therefore replaced. The dropouts at
    the end of each branch, where drop path belongs, have a rate of 0 in CvT.
    """
    from timm.layers.drop import DropPath

    for stage in encoder.stages:
        for layer in stage.layers:
            layer.drop_path = nn.Identity()
    blocks = encoder.stages[-1].layers
    for number, layer in enumerate(blocks):
        rate = last * number / (len(blocks) - 1)
        layer.attention.output.dropout = DropPath(rate)
        layer.output.dropout = DropPath(rate)


def _use_quick_gelu(encoder: Any) -> None:
    from transformers.activations import QuickGELUActivation

    for stage in encoder.stages:
        for layer in stage.layers:
            layer.intermediate.activation = QuickGELUActivation()


def checkpoint_filter_fn(state: dict[str, Tensor], model: Cvt) -> dict[str, Tensor]:
    """Rename published weights to those of the encoder; files of a whole classifier have the prefix `cvt`."""
    return {name.removeprefix("cvt."): value for name, value in state.items()}
