"""The `linear` head: one linear layer over one feature vector of an image.

    g = W f + b,   f = mean over cells of F  (`gap`),   or the class token of a ViT or DeiT  (`token`)

With `gap` it is the `cam` head without maps and without a boost, and `Classifier.convert_head` turns one into the
other. With `token` it is how a vision transformer classifies by itself.

Lin, Chen and Yan: *Network In Network*, ICLR 2014 (`gap`); Dosovitskiy et al.: *An Image is Worth 16x16 Words*, ICLR
2021 (`token`).
"""

from __future__ import annotations

from typing import Literal

from torch import Tensor, nn

from tagfill.contract import Prediction
from tagfill.errors import TagfillError
from tagfill.models.head import Head


class LinearHead(Head):
    """One linear layer over the mean of the cells or the class token; no class maps.

    Args:
        channels: D of the features.
        classes: L.
        pool: `gap` for the mean over cells, `token` for the class token of a ViT or DeiT.
    """

    def __init__(self, channels: int, classes: int, *, pool: Literal["gap", "token"] = "gap") -> None:
        super().__init__()
        self.pool = pool
        self.fc = nn.Linear(channels, classes)

    @property
    def token(self) -> bool:
        """Whether it classifies the class token."""
        return self.pool == "token"

    def forward(self, features: Tensor, *, maps: bool = False, attention: bool = False) -> Prediction:
        """Logits of B×D vectors, or of B×D×H×W features, whose mean is taken with `gap`."""
        del maps, attention  # it has neither
        if self.token and features.ndim != 2:
            raise TagfillError("The linear head with pool=token was given features of cells; it needs class tokens.")
        pooled = features if features.ndim == 2 else features.mean((2, 3))
        return Prediction(self.fc(pooled).float(), None, features)
