"""The `cam` head: class maps by a 1×1 convolution, logits by their mean, with BoostLU between the two if wanted.

    S = W F + b  in every cell,   g = mean over cells of S,   or of boost(S)

Without a boost, averaging features first and classifying them once gives the same logits, because both steps are
linear; that is what happens where nobody asks for maps, and on pooled features. Maps are those before the boost.

Zhou, Khosla, Lapedriza, Oliva and Torralba: *Learning Deep Features for Discriminative Localization*, CVPR 2016, as
reordered by Zhang, Wei, Feng, Yang and Huang: *Adversarial Complementary Learning for Weakly Supervised Object
Localization*, CVPR 2018. For the boost see `tagfill.models.boost`.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from tagfill.contract import Prediction
from tagfill.errors import TagfillError
from tagfill.models.boost import boost as boosted
from tagfill.models.head import Head


class CamHead(Head):
    """Class maps by a 1×1 convolution, logits by their mean, with BoostLU if wanted.

    Args:
        channels: D of the features.
        classes: L.
        boost: α of BoostLU, 5 in the paper; 1 is none.
        boost_from: β of BoostLU, the score above which it works.
        boost_train: boost in training.
        boost_eval: boost in evaluation, also a model that was trained without.
        boost_unseen: boost classes that `mask_boost` excludes in training too, as the published code does.
    """

    has_maps = True

    def __init__(
        self,
        channels: int,
        classes: int,
        *,
        boost: float = 1.0,
        boost_from: float = 0.0,
        boost_train: bool = True,
        boost_eval: bool = True,
        boost_unseen: bool = False,
    ) -> None:
        super().__init__()
        if not 1 <= boost < float("inf"):
            raise TagfillError(f"boost={boost:g} of head 'cam' would not enlarge scores; give 1 for none, or more.")
        self.boost, self.boost_from = boost, boost_from
        self.boost_train, self.boost_eval, self.boost_unseen = boost_train, boost_eval, boost_unseen
        self.fc = nn.Linear(channels, classes)
        self.boosts: Tensor | None
        masks = boost != 1 and boost_train and not boost_unseen
        self.register_buffer("boosts", torch.ones(classes) if masks else None)  # 0 for classes that are not boosted

    @property
    def spatial(self) -> bool:
        """Whether it boosts at all: a boost acts on cells."""
        return self.boost != 1 and (self.boost_train or self.boost_eval)

    def mask_boost(self, mask: Tensor) -> None:
        """Boost only these classes (L bool) in training; evaluation boosts all."""
        if self.boosts is not None:
            self.boosts.copy_(mask)

    def forward(self, features: Tensor, *, maps: bool = False, attention: bool = False) -> Prediction:
        """Class maps and logits of B×D×H×W features; of pooled B×D ones, logits without a boost."""
        del attention  # it has none
        boosting = self.boost != 1 and (self.boost_train if self.training else self.boost_eval)
        if features.ndim == 2 and (maps or boosting):
            wanted = "class maps" if maps else f"boost={self.boost:g}"
            raise TagfillError(f"The cam head was given pooled features, but {wanted} needs those of cells.")
        if not (maps or boosting):
            pooled = features if features.ndim == 2 else features.mean((2, 3))
            return Prediction(self.fc(pooled).float(), None, features)
        cells = features.permute(0, 2, 3, 1)  # a view where features lie cells-last, as cached ones do
        spatial = F.linear(cells, self.fc.weight, self.fc.bias).float()
        logits = (boosted(spatial, self._slopes(), self.boost_from) if boosting else spatial).mean((1, 2))
        return Prediction(logits, spatial.permute(0, 3, 1, 2) if maps else None, features)

    def _slopes(self) -> float | Tensor:
        """α of all classes, or in training that of each."""
        if self.training and self.boosts is not None:
            return 1 + (self.boost - 1) * self.boosts.float()
        return self.boost
