"""The `tscam` head: class maps by a 3×3 convolution over the grid, and where a transformer's class token looks.

    S = conv3×3(F)  (zero padding, with bias),   g = mean over cells of S
    A = Σ over blocks of the class token's attention to each patch, averaged over heads
    coupled map  M_c = A · S_c                            for localisation only; it takes no part in the logits

F are the normed patch tokens of a ViT or DeiT; on a convolutional backbone there is no A. Attention is kept only when
asked for, since it slows the backbone down. The convolution keeps PyTorch's initial weights, as in the released code.

Where nobody asks for maps they are never made: the mean of a convolution is linear in nine sums of features, those over
the cells that each weight of the 3×3 window meets,

    g = b + 1/(H·W) Σ_{y,x} W[y,x] · (sum of F over the cells that are under (y, x) for some cell of the grid)

which costs little more than the mean of the features.

Gao, Wan, Pan, Peng, Tian, Han, Zhou and Ye: *TS-CAM: Token Semantic Coupled Attention Map for Weakly Supervised Object
Localization*, ICCV 2021.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from tagfill.contract import Prediction
from tagfill.errors import TagfillError
from tagfill.models.head import Head


class TsCamHead(Head):
    """Class maps by a 3×3 convolution, logits by their mean; on a ViT or DeiT with attention on request.

    Attention is B×H×W: how much the class token looks at each patch, summed over blocks.

    Args:
        channels: D of the features.
        classes: L.
    """

    has_maps = True
    attention_of = "backbone"

    def __init__(self, channels: int, classes: int) -> None:
        super().__init__()
        self.conv = nn.Conv2d(channels, classes, kernel_size=3, padding=1)

    @property
    def spatial(self) -> bool:
        """Always: a window reaches over several cells."""
        return True

    def forward(self, features: Tensor, *, maps: bool = False, attention: bool = False) -> Prediction:
        """Class maps and logits of B×D×H×W features."""
        del attention  # the classifier adds it, from the backbone
        if features.ndim == 2:
            raise TagfillError("The tscam head was given pooled features, but it needs those of cells.")
        if maps:
            spatial = self.conv(features).float()
            return Prediction(spatial.mean((2, 3)), spatial, features)
        weight = self.conv.weight.permute(0, 2, 3, 1).flatten(1)
        return Prediction(F.linear(_window_means(features), weight, self.conv.bias).float(), None, features)


def summed_attention(rows: Tensor, features: Tensor) -> Tensor:
    """A of each image, B×H×W.

    Args:
        rows: B×blocks×H·W, the class token's attention in each block, averaged over heads.
        features: B×D×H×W, of the same images.
    """
    return rows.float().sum(1).reshape(features.shape[0], *features.shape[2:])


def coupled(prediction: Prediction) -> Tensor:
    """The coupled maps A · S, B×L×H×W, of a prediction with maps and attention.

    >>> coupled(Prediction(torch.zeros(1, 1), torch.full((1, 1, 1, 2), -3.0), None, torch.tensor([[[0.5, 2.0]]])))
    tensor([[[[-1.5000, -6.0000]]]])
    """
    if prediction.maps is None or prediction.attention is None:
        raise TagfillError("Coupled maps need a prediction made with maps=True and attention=True.")
    return prediction.attention[:, None] * prediction.maps


def _window_means(features: Tensor) -> Tensor:
    """For each weight of a 3×3 window with zero padding, the sum of what it meets over H·W: B×9·D, window row first.

    The first row of a window never meets the last row of the grid, the last never the first; columns alike.
    """
    wide = torch.promote_types(features.dtype, torch.float32)  # sums and differences of halves would lose too much
    cells = features.permute(0, 2, 3, 1)
    rows = cells.sum(2, dtype=wide)
    columns = torch.stack([rows - cells[:, :, -1], rows, rows - cells[:, :, 0]], dim=1)
    whole = columns.sum(2)
    windows = torch.stack([whole - columns[:, :, -1], whole, whole - columns[:, :, 0]], dim=1)
    return (windows.flatten(1) / (cells.shape[1] * cells.shape[2])).to(features.dtype)
