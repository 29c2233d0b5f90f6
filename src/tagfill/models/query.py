"""The `query` head, Query2Label: each class asks the image with a query of its own.

    X   = features of cells, projected to d channels unless they have d already;  P = sine positions of the cells
    M   = encoder layers over X, with P
    T   = decoder layers from T = 0, with the label embeddings E added to T wherever it asks, over M with P;  LayerNorm
    g_c = ⟨w_c, T_c⟩ + b_c            a weight vector and a bias of its own for each class

Layers are those of `tagfill.models.transformer`, positions those of `tagfill.models.positions`. Queries do not attend
to each other by default: that is what the released code and its weights do, while the paper's formula lets them; two
options turn it on, for the first decoder layer and for the others. The default width is 256 where the paper has the
2048 channels of its backbone, at which the layers alone have about 151 million weights.

The released weights fit under these names:

    input_proj.weight (as 1×1 convolution)   input_proj.weight without its last two dimensions
    transformer.encoder.layers.N             encoder.N            the same names inside, and in the decoder too
    transformer.decoder.layers.N             decoder.N
    transformer.decoder.norm                 norm
    query_embed.weight                       queries
    fc.W, fc.b (1×L×d, 1×L)                  weight, bias         without their first dimension

Initial weights: Xavier-uniform for all matrices of the layers, N(0, 1) for label embeddings, U(±1/√d) for w and b.

Liu, Zhang, Yang, Su and Zhu: *Query2Label: A Simple Transformer Way to Multi-Label Classification*, arXiv 2107.10834.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from tagfill.contract import Prediction
from tagfill.errors import TagfillError
from tagfill.models.head import Head
from tagfill.models.positions import sine_positions
from tagfill.models.transformer import DecoderLayer, EncoderLayer


class QueryHead(Head):
    """Query2Label: a query for each class attends to the cells; no class maps, attention on request.

    Attention is B×heads×L×H×W: how much the query of each class looks at each cell in the last decoder layer.

    Args:
        channels: D of the features.
        classes: L.
        width: d of the transformer, a multiple of 4 and of `heads`.
        ffn: width between the two layers of a feed-forward part; four times `width` if not given.
        heads: of attention.
        encoder_layers: how many.
        decoder_layers: how many.
        dropout: share that is dropped in training.
        keep_input_projection: project features to `width` channels even where they have as many already.
        keep_first_self_attention: let queries attend to each other in the first decoder layer.
        keep_other_self_attention: let queries attend to each other in the other decoder layers.
    """

    attention_of = "head"

    def __init__(
        self,
        channels: int,
        classes: int,
        *,
        width: int = 256,
        ffn: int | None = None,
        heads: int = 4,
        encoder_layers: int = 1,
        decoder_layers: int = 2,
        dropout: float = 0.1,
        keep_input_projection: bool = False,
        keep_first_self_attention: bool = False,
        keep_other_self_attention: bool = False,
    ) -> None:
        super().__init__()
        _check(width, ffn, heads, encoder_layers, decoder_layers, dropout)
        self.width, self.ffn, self.heads, self.dropout = width, ffn, heads, dropout
        self.encoder_layers, self.decoder_layers = encoder_layers, decoder_layers
        self.keep_input_projection = keep_input_projection
        self.keep_first_self_attention = keep_first_self_attention
        self.keep_other_self_attention = keep_other_self_attention
        sizes = (width, heads, ffn or 4 * width, dropout)
        projects = channels != width or keep_input_projection
        self.input_proj = nn.Linear(channels, width) if projects else nn.Identity()
        self.encoder = nn.ModuleList(EncoderLayer(*sizes) for _ in range(encoder_layers))
        asks = [keep_first_self_attention, *[keep_other_self_attention] * (decoder_layers - 1)]
        self.decoder = nn.ModuleList(DecoderLayer(*sizes, self_attention=among) for among in asks)
        for weights in [*self.encoder.parameters(), *self.decoder.parameters()]:
            if weights.ndim > 1:
                nn.init.xavier_uniform_(weights)
        self.norm = nn.LayerNorm(width)
        self.queries = nn.Parameter(torch.randn(classes, width))
        self.weight = nn.Parameter(torch.empty(classes, width).uniform_(-1, 1) / math.sqrt(width))
        self.bias = nn.Parameter(torch.empty(classes).uniform_(-1, 1) / math.sqrt(width))

    @property
    def spatial(self) -> bool:
        """Always: queries attend to cells."""
        return True

    def forward(self, features: Tensor, *, maps: bool = False, attention: bool = False) -> Prediction:
        """Logits of B×D×H×W features; `attention` keeps what the queries look at in the last layer."""
        del maps  # it has none
        if features.ndim == 2:
            raise TagfillError("The query head was given pooled features, but it needs those of cells.")
        height, width = features.shape[2:]
        cells = self.input_proj(features.permute(0, 2, 3, 1).flatten(1, 2))
        positions = sine_positions(height, width, self.width, features.device).to(cells.dtype)
        for layer in self.encoder:
            cells = layer(cells, positions)
        placed, looks = cells + positions, None
        # Before the first layer all images have the same targets; dropout among queries is all that could part them.
        images = cells.shape[0] if self.keep_first_self_attention else 1
        targets = torch.zeros_like(self.queries).expand(images, -1, -1)
        for number, layer in enumerate(self.decoder, start=1):
            assert isinstance(layer, DecoderLayer)
            if attention and number == len(self.decoder):
                weights = layer.looks(targets, self.queries, placed)
                looks = weights.reshape(*weights.shape[:3], height, width)
            targets = layer(targets, self.queries, placed, cells)
        logits = (self.norm(targets).float() * self.weight.float()).sum(-1) + self.bias.float()
        return Prediction(logits, None, features, looks)


def _check(width: int, ffn: int | None, heads: int, encoder_layers: int, decoder_layers: int, dropout: float) -> None:
    if heads < 1 or width < 4 or width % heads or width % 4:
        raise TagfillError(f"width={width} of head 'query' is not a multiple of 4 and of heads={heads}.")
    if ffn is not None and ffn < 1:
        raise TagfillError(f"ffn={ffn} of head 'query' is not at least 1.")
    if encoder_layers < 0 or decoder_layers < 1:
        raise TagfillError("The head 'query' needs at least one decoder layer, and encoder layers cannot be negative.")
    if not 0 <= dropout < 1:
        raise TagfillError(f"dropout={dropout:g} of head 'query' is not in 0 ≤ dropout < 1.")
