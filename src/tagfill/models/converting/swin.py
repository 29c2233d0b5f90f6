"""Swin transformers as their authors wrote them, under timm's names.

Both agree on all names but one: the reduction between two stages ends the first in the published files
(`layers.0.downsample`) and begins the second in timm (`layers.1.downsample`). Windows' indices and masks, which
published files hold too, are computed here.

Liu, Lin, Cao, Hu, Wei, Zhang, Lin and Guo: *Swin Transformer: Hierarchical Vision Transformer using Shifted Windows*,
ICCV 2021.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping
from pathlib import Path

from torch import Tensor

from tagfill.errors import TagfillError
from tagfill.models.converting.fitting import numbered

# by width, blocks of each stage, and side of a window
_SWINS: dict[tuple[int, tuple[int, ...], int], str] = {
    (96, (2, 2, 6, 2), 7): "swin_tiny_patch4_window7_224",
    (96, (2, 2, 18, 2), 7): "swin_small_patch4_window7_224",
    (128, (2, 2, 18, 2), 7): "swin_base_patch4_window7_224",
    (128, (2, 2, 18, 2), 12): "swin_base_patch4_window12_384",
    (192, (2, 2, 18, 2), 7): "swin_large_patch4_window7_224",
    (192, (2, 2, 18, 2), 12): "swin_large_patch4_window12_384",
}
_COMPUTED = (".relative_position_index", ".attn_mask")


def swin_of(path: Path, weights: Mapping[str, Tensor]) -> str:
    """Timm's name of the Swin transformer with these tensors; the path is for the error."""
    table = "layers.0.blocks.0.attn.relative_position_bias_table"
    if table not in weights:
        raise TagfillError(f"{path} lacks {table} of its Swin transformer.")
    width = len(weights["patch_embed.proj.weight"])
    depths = tuple(numbered(weights, f"layers.{stage}.blocks.") for stage in range(4))
    window = (math.isqrt(len(weights[table])) + 1) // 2  # a table for (2w − 1)² distances
    found = _SWINS.get((width, depths, window))
    if found is None:
        raise TagfillError(
            f"{path} does not hold a tiny, small, base or large Swin transformer: its width is {width}, its stages "
            f"have {depths} blocks, its windows a side of {window}."
        )
    return found


def renamed(weights: Mapping[str, Tensor]) -> Iterator[tuple[str, str, Tensor]]:
    """Each tensor that is not computed, with its name and timm's.

    >>> import torch
    >>> [place for _, place, _ in renamed({"layers.0.downsample.norm.weight": torch.ones(4)})]
    ['layers.1.downsample.norm.weight']
    """
    for name, value in weights.items():
        if not name.endswith(_COMPUTED):
            yield name, re.sub(r"^layers\.(\d)\.down", lambda found: f"layers.{int(found[1]) + 1}.down", name), value
