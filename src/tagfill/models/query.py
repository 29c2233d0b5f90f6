"""The `query` head, Query2Label: a query for each class attends to the cells of the image.

    X   = features of cells, projected to d channels unless they have d already;  P = sine positions of the cells
    M   = encoder layers over X, with P
    T   = decoder layers from T = 0, with the label embeddings E added to every query, over M with P;  LayerNorm
    g_c = ⟨w_c, T_c⟩ + b_c            with a weight vector and a bias per class

Layers of the transformer are normalized after each residual (post-norm):

    attention(q, k, v) = W_o [ softmax(q_h k_hᵀ / √(d/heads)) v_h  for each head h ] + b_o,
                         with q, k, v first multiplied by the three d×d parts of W_in, plus those of b_in
    encoder layer   X ← LN(X + attention(X + P, X + P, X));   X ← LN(X + FFN(X))
    decoder layer   T ← LN(T + attention(T + E, T + E, T))                     only if queries attend to each other
                    T ← LN(T + attention(T + E, M + P, M));   T ← LN(T + FFN(T))
    FFN(X)          = W₂ ReLU(W₁ X + b₁) + b₂

Dropout is applied to the attention weights, inside the FFN, and before each residual sum.

Positions of the cells of a grid are sines and cosines:

    y = 2π r / (H + 1e-6),   x = 2π c / (W + 1e-6)        rows r = 1…H, columns c = 1…W
    channel i of a half:  angle = y or x  ·  10000^(−2⌊i/2⌋ / (d/2)),   its sine if i is even, its cosine if odd
    d/2 channels for y, then d/2 for x

Differences from the paper. By default queries do not attend to each other, as in the released code and its weights,
while the paper's formula lets them; two options turn it on, for the first decoder layer and for the others. The default
width is 256, while the paper uses the 2048 channels of its backbone, at which the layers alone have about 151 million
weights. The released code computes the position table once, for one image size; here it is computed for any grid.

Weights have the names and shapes of DETR's layers (`self_attn.in_proj_weight`, `multihead_attn`, `linear1`, `norm3`,
…), so the released weights fit under these names:

    input_proj.weight (as 1×1 convolution)   input_proj.weight without its last two dimensions
    transformer.encoder.layers.N             encoder.N            the same names inside, also in the decoder
    transformer.decoder.layers.N             decoder.N
    transformer.decoder.norm                 norm
    query_embed.weight                       queries
    fc.W, fc.b (1×L×d, 1×L)                  weight, bias         without their first dimension

Initial weights: Xavier-uniform for all matrices of the layers, N(0, 1) for label embeddings, U(±1/√d) for w and b.

Liu, Zhang, Yang, Su and Zhu: *Query2Label: A Simple Transformer Way to Multi-Label Classification*, arXiv 2107.10834;
Vaswani et al.: *Attention Is All You Need*, NeurIPS 2017; Carion et al.: *End-to-End Object Detection with
Transformers*, ECCV 2020.
"""

from __future__ import annotations

import functools
import math
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional as F

from tagfill.contract import Prediction, upload
from tagfill.errors import TagfillError
from tagfill.models.heads import Head


class QueryHead(Head):
    """Query2Label: a query for each class attends to the cells; no class maps, attention on request.

    Attention is B×heads×L×H×W: the attention of each class query to each cell in the last decoder layer.

    Args:
        channels: D of the features.
        classes: L.
        width: d of the transformer, a multiple of 4 and of `heads`.
        ffn: hidden width of the feed-forward networks; four times `width` by default.
        heads: number of attention heads.
        encoder_layers: number of encoder layers.
        decoder_layers: number of decoder layers.
        dropout: dropout rate in training.
        keep_input_projection: project features to `width` channels even if they have that many already.
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
        self.channels = channels
        _check_options(width, ffn, heads, encoder_layers, decoder_layers, dropout)
        self.width, self.ffn, self.heads, self.dropout = width, ffn, heads, dropout
        self.encoder_layers, self.decoder_layers = encoder_layers, decoder_layers
        self.keep_input_projection = keep_input_projection
        self.keep_first_self_attention = keep_first_self_attention
        self.keep_other_self_attention = keep_other_self_attention
        sizes = (width, heads, ffn or 4 * width, dropout)
        projects = channels != width or keep_input_projection
        self.input_proj = nn.Linear(channels, width) if projects else nn.Identity()
        self.encoder = nn.ModuleList(EncoderLayer(*sizes) for _ in range(encoder_layers))
        self_attention = [keep_first_self_attention, *[keep_other_self_attention] * (decoder_layers - 1)]
        self.decoder = nn.ModuleList(DecoderLayer(*sizes, self_attention=wanted) for wanted in self_attention)
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
        """Logits of B×D×H×W features; `attention` returns the attention of the last layer."""
        del maps  # it has none
        if features.ndim == 2:
            raise TagfillError("The query head was given pooled features, but it needs features of cells.")
        height, width = features.shape[2:]
        cells = self.input_proj(features.permute(0, 2, 3, 1).flatten(1, 2))
        positions = sine_positions(height, width, self.width, features.device).to(cells.dtype)
        for layer in self.encoder:
            cells = layer(cells, positions)
        keys = cells + positions
        weights: Tensor | None = None
        # Before the first layer all images have the same targets; only dropout among queries could make them differ.
        images = cells.shape[0] if self.keep_first_self_attention else 1
        targets = torch.zeros_like(self.queries).expand(images, -1, -1)
        for number, layer in enumerate(self.decoder, start=1):
            assert isinstance(layer, DecoderLayer)
            if attention and number == len(self.decoder):
                weights = layer.attention_weights(targets, self.queries, keys)
                weights = weights.reshape(*weights.shape[:3], height, width)
            targets = layer(targets, self.queries, keys, cells)
        logits = (self.norm(targets).float() * self.weight.float()).sum(-1) + self.bias.float()
        return Prediction(logits, None, features, weights)


def _check_options(
    width: int, ffn: int | None, heads: int, encoder_layers: int, decoder_layers: int, dropout: float
) -> None:
    if heads < 1 or width < 4 or width % heads or width % 4:
        raise TagfillError(f"width={width} of head 'query' is not a multiple of 4 and of heads={heads}.")
    if ffn is not None and ffn < 1:
        raise TagfillError(f"ffn={ffn} of head 'query' is not at least 1.")
    if encoder_layers < 0 or decoder_layers < 1:
        raise TagfillError("The head 'query' needs at least one decoder layer, and encoder layers cannot be negative.")
    if not 0 <= dropout < 1:
        raise TagfillError(f"dropout={dropout:g} of head 'query' is not in 0 ≤ dropout < 1.")


class Attention(nn.Module):
    """Multi-head attention with the weights of `torch.nn.MultiheadAttention`, batch first."""

    def __init__(self, width: int, heads: int, dropout: float) -> None:
        super().__init__()
        self.heads, self.dropout = heads, dropout
        self.in_proj_weight = nn.Parameter(torch.empty(3 * width, width))
        self.in_proj_bias = nn.Parameter(torch.zeros(3 * width))
        self.out_proj = nn.Linear(width, width)
        nn.init.zeros_(self.out_proj.bias)

    def forward(self, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        """Average the values with the attention weights, B×Q×d.

        Args:
            query: B×Q×d, or 1×Q×d for the same queries in all images.
            key: B×K×d.
            value: B×K×d.
        """
        q, k, v = self._heads(query, key, value)
        dropout = self.dropout if self.training else 0.0
        gathered = F.scaled_dot_product_attention(q.expand(k.shape[0], -1, -1, -1), k, v, dropout_p=dropout)
        return self._join(gathered)

    def weights(self, query: Tensor, key: Tensor) -> Tensor:
        """Attention of each query to each key: B×heads×Q×K, rows that sum to 1, before dropout."""
        q, k, _ = self._heads(query, key, key)
        weights: Tensor = torch.softmax(q @ k.transpose(-2, -1) / math.sqrt(q.shape[-1]), dim=-1)
        return weights

    def _heads(self, *parts: Tensor) -> tuple[Tensor, ...]:
        """Project query, key and value and split them into heads: each B×heads×·×d/heads."""
        projected = map(F.linear, parts, self.in_proj_weight.chunk(3), self.in_proj_bias.chunk(3))
        return tuple(part.reshape(*part.shape[:2], self.heads, -1).transpose(1, 2) for part in projected)

    def _join(self, gathered: Tensor) -> Tensor:
        joined: Tensor = self.out_proj(gathered.transpose(1, 2).flatten(2))
        return joined


class _Layer(nn.Module):
    """The feed-forward network at the end of both kinds of layers."""

    def __init__(self, width: int, ffn: int, dropout: float) -> None:
        super().__init__()
        self.linear1 = nn.Linear(width, ffn)
        self.linear2 = nn.Linear(ffn, width)
        self.drop = nn.Dropout(dropout)

    def _feed_forward(self, inputs: Tensor) -> Tensor:
        after: Tensor = inputs + self.drop(self.linear2(self.drop(F.relu(self.linear1(inputs)))))
        return after


class EncoderLayer(_Layer):
    """Cells attend to cells."""

    def __init__(self, width: int, heads: int, ffn: int, dropout: float) -> None:
        super().__init__(width, ffn, dropout)
        self.self_attn = Attention(width, heads, dropout)
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)

    def forward(self, cells: Tensor, positions: Tensor) -> Tensor:
        """Cells B×K×d at positions K×d, to B×K×d."""
        keys = cells + positions
        cells = self.norm1(cells + self.drop(self.self_attn(keys, keys, cells)))
        after: Tensor = self.norm2(self._feed_forward(cells))
        return after


class DecoderLayer(_Layer):
    """Queries attend to cells, optionally to each other first."""

    def __init__(self, width: int, heads: int, ffn: int, dropout: float, *, self_attention: bool) -> None:
        super().__init__(width, ffn, dropout)
        self.self_attention = self_attention
        if self_attention:
            self.self_attn, self.norm1 = Attention(width, heads, dropout), nn.LayerNorm(width)
        self.multihead_attn = Attention(width, heads, dropout)
        self.norm2, self.norm3 = nn.LayerNorm(width), nn.LayerNorm(width)

    def forward(self, targets: Tensor, queries: Tensor, keys: Tensor, cells: Tensor) -> Tensor:
        """Update the targets, B×L×d.

        Args:
            targets: T, B×L×d, or 1×L×d if they are the same in all images.
            queries: E, L×d, added to the targets wherever they are queries.
            keys: B×K×d, cells with their positions.
            cells: M, B×K×d.
        """
        targets = self._self_attention(targets, queries)
        gathered = self.multihead_attn(targets + queries, keys, cells)
        after: Tensor = self.norm3(self._feed_forward(self.norm2(targets + self.drop(gathered))))
        return after

    def attention_weights(self, targets: Tensor, queries: Tensor, keys: Tensor) -> Tensor:
        """Attention of each query to each cell in this layer: B×heads×L×K, without dropout."""
        return self.multihead_attn.weights(self._self_attention(targets, queries) + queries, keys)

    def _self_attention(self, targets: Tensor, queries: Tensor) -> Tensor:
        if not self.self_attention:
            return targets
        both = targets + queries
        after: Tensor = self.norm1(targets + self.drop(self.self_attn(both, both, targets)))
        return after


def sine_positions(height: int, width: int, channels: int, device: torch.device | str = "cpu") -> Tensor:
    """Position table of a grid.

    Args:
        height: H, rows.
        width: W, columns.
        channels: d, a multiple of 4.
        device: device of the table.

    Returns:
        H·W×d float32, row by row; do not modify it.

    >>> sine_positions(2, 3, 8).shape
    torch.Size([6, 8])
    """
    return upload(torch.from_numpy(_position_table(height, width, channels)), torch.device(device))


@functools.lru_cache(maxsize=32)
def _position_table(height: int, width: int, channels: int) -> NDArray[np.float32]:
    """Cached as an array: a tensor that is made while a model is traced or evaluated could not be used in training."""
    rows, columns = _axis_positions(height, channels // 2), _axis_positions(width, channels // 2)
    shape = (height, width, channels // 2)
    both = [np.broadcast_to(rows[:, None], shape), np.broadcast_to(columns[None], shape)]
    return np.concatenate(both, axis=-1).reshape(height * width, channels).astype(np.float32)


def _axis_positions(size: int, channels: int) -> NDArray[Any]:
    """Positions along one axis, size×channels float64."""
    position = np.arange(1, size + 1) * (2 * math.pi / (size + 1e-6))
    pair = np.arange(channels // 2)  # ⌊i/2⌋: a sine and a cosine of each frequency
    angle = position[:, None] * 10000.0 ** (-2 * pair / channels)
    return np.stack([np.sin(angle), np.cos(angle)], axis=-1).reshape(size, channels)
