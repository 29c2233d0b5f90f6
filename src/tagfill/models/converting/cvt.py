"""CvTs as their authors wrote them, under the names of `tagfill.models.cvt`.

Query2Label takes the cells of the last stage, not the class token, and gives each of them the last norm: the backbones
with `_q2l` in their names do the same.

Wu, Xiao, Codella, Liu, Dai, Yuan and Zhang: *CvT: Introducing Convolutions to Vision Transformers*, ICCV 2021.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path

from torch import Tensor

from tagfill.errors import TagfillError
from tagfill.models.converting.fitting import numbered
from tagfill.models.cvt import IN_QUERY2LABEL, SIZES

_PARTS = {
    r"^stage(\d)\.": r"encoder.stages.\1.",
    r"\.patch_embed\.proj\.": ".embedding.convolution_embeddings.projection.",
    r"\.patch_embed\.norm\.": ".embedding.convolution_embeddings.normalization.",
    r"\.blocks\.": ".layers.",
    r"\.norm1\.": ".layernorm_before.",
    r"\.norm2\.": ".layernorm_after.",
    r"\.mlp\.fc1\.": ".intermediate.dense.",
    r"\.mlp\.fc2\.": ".output.dense.",
    r"\.attn\.proj\.": ".attention.output.dense.",
    r"\.attn\.": ".attention.attention.",
    r"\.conv_proj_([qkv])\.conv\.": r".convolution_projection_\1.convolution_projection.convolution.",
    r"\.conv_proj_([qkv])\.bn\.": r".convolution_projection_\1.convolution_projection.normalization.",
    r"\.proj_([qkv])\.": r".projection_\1.",
    r"projection_q\.": "projection_query.",
    r"projection_k\.": "projection_key.",
    r"projection_v\.": "projection_value.",
    r"^norm\.": "layernorm.",
}


def cvt_of(path: Path, weights: Mapping[str, Tensor]) -> str:
    """The name of the CvT with these tensors; the path is for the error."""
    embeddings = [f"stage{stage}.patch_embed.proj.weight" for stage in range(3)]
    widths = tuple(len(weights[name]) for name in embeddings if name in weights)
    depths = tuple(numbered(weights, f"stage{stage}.blocks.") for stage in range(3))
    for name, (_, depth, width, _) in SIZES.items():
        if (depth, width) == (depths, widths):
            return name + IN_QUERY2LABEL
    raise TagfillError(
        f"{path} does not hold a CvT-13, CvT-21 or CvT-w24: its stages have {depths} blocks of width {widths}."
    )


def renamed(weights: Mapping[str, Tensor]) -> Iterator[tuple[str, str, Tensor]]:
    """Each tensor with its name and that of `tagfill.models.cvt`.

    >>> import torch
    >>> [place for _, place, _ in renamed({"stage0.blocks.1.attn.conv_proj_k.bn.bias": torch.ones(4)})]
    ['encoder.stages.0.layers.1.attention.attention.convolution_projection_key.convolution_projection.normalization.bias']
    """
    for name, value in weights.items():
        place = name
        for pattern, replacement in _PARTS.items():
            place = re.sub(pattern, replacement, place)
        yield name, place, value
