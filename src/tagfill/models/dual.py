"""The `dual` head: a positive and a negative vector per class, compared with every cell, as in DualCoOp.

    S⁺_ci = cos(f_i, t⁺_c),   S⁻_ci = cos(f_i, t⁻_c)       for each class c and cell i
    w_ci  = softmax over cells i of β S⁺_ci                 `sharpness` β, 20 in the released code
    g^±_c = α Σ_i w_ci S^±_ci                               `scale` α, 100 in the released code: CLIP's temperature
    P_c   = exp(g⁺_c) / (exp(g⁺_c) + exp(g⁻_c))             so the logit of class c is g⁺_c − g⁻_c

Both maps are averaged with the weights of the positive one: the cells that look like the class decide whether it is
present. Class maps are α (S⁺ − S⁻), whose mean with the weights w is the logit.

What follows the paper: the two vectors per class, cosines with cells instead of one vector of the image, weights from
the positive map, and the probability from the pair.

What is simpler. In DualCoOp, t⁺ and t⁻ are what CLIP's frozen text tower makes of two learned prompts per class, and
only the prompts learn. Here there is no text tower: the vectors themselves learn, so this is not prompt learning, and
what the text tower knows enters only through the initial vectors (`init=text`). Then t⁺ begins as the text vector of
the class, and t⁻ as the mean text vector of all classes, which is ours: the untrained head compares a cell with the
class and with a photo of anything. The paper's backbone is a CLIP ResNet whose cells are projected to the space of the
texts; this head takes cells of any backbone, and the `_joint` backbones (`tagfill.models.joint`) project them in this
way. The paper trains with the asymmetric loss; here the method decides.

Sun, Hu and Saenko: *DualCoOp: Fast Adaptation to Multi-Label Recognition with Limited Annotations*, NeurIPS 2022. That
vectors learned without the text tower can do as well is shown by Rawlekar, Bhatnagar and Ahuja: *Rethinking Prompting
Strategies for Multi-Label Recognition with Partial Annotations*, arXiv 2409.08381.
"""

from __future__ import annotations

import math
from typing import Literal

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from tagfill.contract import Prediction
from tagfill.errors import TagfillError
from tagfill.models.heads import Head


class DualHead(Head):
    """A positive and a negative vector per class, compared with every cell (after DualCoOp); has class maps.

    Args:
        channels: D of the features.
        classes: L.
        scale: α, the factor of the cosines in the logits.
        sharpness: β, the factor of the cosines in the weights of the cells; 0 weights all cells alike.
        init: `random`, or `text` to begin with the text vectors of the classes.
        vectors: for `init=text`, the safetensors file of the text vectors.
    """

    has_maps = True

    def __init__(
        self,
        channels: int,
        classes: int,
        *,
        scale: float = 100.0,
        sharpness: float = 20.0,
        init: Literal["random", "text"] = "random",
        vectors: str | None = None,
    ) -> None:
        super().__init__()
        if not 0 < scale < math.inf:
            raise TagfillError(f"scale={scale:g} of head 'dual' must be above 0 and finite.")
        if not 0 <= sharpness < math.inf:
            raise TagfillError(f"sharpness={sharpness:g} of head 'dual' must be at least 0 and finite.")
        self.channels = channels
        self.scale, self.sharpness = scale, sharpness
        self.init, self.vectors = init, vectors
        self.positive = nn.Parameter(torch.randn(classes, channels) / math.sqrt(channels))
        self.negative = nn.Parameter(torch.randn(classes, channels) / math.sqrt(channels))

    @property
    def spatial(self) -> bool:
        """Always: it weights cells."""
        return True

    @torch.no_grad()
    def start_from(self, vectors: Tensor) -> None:
        """Begin with text vectors, L×D of length 1: each class against the mean of all."""
        self.positive.copy_(vectors)
        self.negative.copy_(vectors.mean(0).expand_as(vectors))

    def forward(self, features: Tensor, *, maps: bool = False, attention: bool = False) -> Prediction:
        """Class maps and logits of B×D×H×W features."""
        del attention  # it has none
        if features.ndim == 2:
            raise TagfillError("The dual head was given pooled features, but it needs features of cells.")
        height, width = features.shape[2:]
        cells = F.normalize(features.permute(0, 2, 3, 1).flatten(1, 2).to(self.positive.dtype), dim=-1)
        both = F.normalize(torch.cat([self.positive, self.negative]), dim=-1)
        present, absent = F.linear(cells, both).float().chunk(2, dim=-1)  # B×H·W×L each
        weights = torch.softmax(self.sharpness * present, dim=1)
        spatial = self.scale * (present - absent)
        logits = (weights * spatial).sum(1)
        if not maps:
            return Prediction(logits, None, features)
        return Prediction(logits, spatial.transpose(1, 2).reshape(-1, len(self.positive), height, width), features)
