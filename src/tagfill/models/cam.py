"""The `cam` head: class maps by a 1×1 convolution, logits by their mean.

    S = W F + b  in every cell,   g = mean over cells of S

Averaging features first and classifying them once gives the same logits, because both steps are linear; that is
what happens where nobody asks for maps, and on pooled features.
"""

from __future__ import annotations

from torch import Tensor, nn
from torch.nn import functional as F

from tagfill.contract import Prediction


class CamHead(nn.Module):
    """Class maps and logits of B×D×G×G features, or logits alone of pooled B×D ones."""

    def __init__(self, channels: int, classes: int) -> None:
        super().__init__()
        self.fc = nn.Linear(channels, classes)

    def forward(self, features: Tensor, *, maps: bool = False) -> Prediction:
        """Predict; `maps` keeps the class maps."""
        if not maps:
            pooled = features if features.ndim == 2 else features.mean((2, 3))
            return Prediction(self.fc(pooled).float(), None, features)
        cells = features.permute(0, 2, 3, 1)  # a view where features lie cells-last, as cached ones do
        spatial = F.linear(cells, self.fc.weight, self.fc.bias).float()
        return Prediction(spatial.mean((1, 2)), spatial.permute(0, 3, 1, 2), features)
