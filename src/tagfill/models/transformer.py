"""Layers of the transformer of Query2Label, normalised after each residual (post-norm).

    attention(q, k, v) = W_o [ softmax(q_h k_hᵀ / √(d/heads)) v_h  for each head h ] + b_o,
                         with q, k, v first multiplied by the three d×d parts of W_in and moved by those of b_in
    encoder layer   X ← LN(X + attention(X + P, X + P, X));   X ← LN(X + FFN(X))
    decoder layer   T ← LN(T + attention(T + E, T + E, T))                     only where queries attend to each other
                    T ← LN(T + attention(T + E, M + P, M));   T ← LN(T + FFN(T))
    FFN(X)          = W₂ ReLU(W₁ X + b₁) + b₂

P are positions of cells, E those of queries, M what the encoder gives. Dropout is on the attention weights, inside the
FFN, and before each residual sum. Weights have the names and shapes of DETR's layers (`self_attn.in_proj_weight`,
`multihead_attn`, `linear1`, `norm3`, …), so that published ones fit as they are.

Vaswani et al.: *Attention Is All You Need*, NeurIPS 2017; Carion et al.: *End-to-End Object Detection with
Transformers*, ECCV 2020.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn
from torch.nn import functional as F


class Attention(nn.Module):
    """Attention of several heads, with the weights of `torch.nn.MultiheadAttention` and batches first."""

    def __init__(self, width: int, heads: int, dropout: float) -> None:
        super().__init__()
        self.heads, self.dropout = heads, dropout
        self.in_proj_weight = nn.Parameter(torch.empty(3 * width, width))
        self.in_proj_bias = nn.Parameter(torch.zeros(3 * width))
        self.out_proj = nn.Linear(width, width)
        nn.init.zeros_(self.out_proj.bias)

    def forward(self, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        """What queries gather from cells.

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
        """How much each query looks at each key: B×heads×Q×K, rows that sum to 1, before dropout."""
        q, k, _ = self._heads(query, key, key)
        weights: Tensor = torch.softmax(q @ k.transpose(-2, -1) / math.sqrt(q.shape[-1]), dim=-1)
        return weights

    def _heads(self, *parts: Tensor) -> tuple[Tensor, ...]:
        """Query, key and value, projected and split: each B×heads×·×d/heads."""
        projected = map(F.linear, parts, self.in_proj_weight.chunk(3), self.in_proj_bias.chunk(3))
        return tuple(part.reshape(*part.shape[:2], self.heads, -1).transpose(1, 2) for part in projected)

    def _join(self, gathered: Tensor) -> Tensor:
        joined: Tensor = self.out_proj(gathered.transpose(1, 2).flatten(2))
        return joined


class _Layer(nn.Module):
    """The feed-forward part that both kinds of layers end with."""

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
        placed = cells + positions
        cells = self.norm1(cells + self.drop(self.self_attn(placed, placed, cells)))
        after: Tensor = self.norm2(self._feed_forward(cells))
        return after


class DecoderLayer(_Layer):
    """Queries attend to cells, and to each other before that if wanted."""

    def __init__(self, width: int, heads: int, ffn: int, dropout: float, *, self_attention: bool) -> None:
        super().__init__(width, ffn, dropout)
        self.self_attention = self_attention
        if self_attention:
            self.self_attn, self.norm1 = Attention(width, heads, dropout), nn.LayerNorm(width)
        self.multihead_attn = Attention(width, heads, dropout)
        self.norm2, self.norm3 = nn.LayerNorm(width), nn.LayerNorm(width)

    def forward(self, targets: Tensor, queries: Tensor, placed: Tensor, cells: Tensor) -> Tensor:
        """What queries know, B×L×d (or 1×L×d, the same in all images), after one more look.

        Args:
            targets: what they know so far.
            queries: L×d, their own embeddings, added wherever they ask.
            placed: B×K×d, cells with their positions.
            cells: B×K×d.
        """
        targets = self._among_queries(targets, queries)
        gathered = self.multihead_attn(targets + queries, placed, cells)
        after: Tensor = self.norm3(self._feed_forward(self.norm2(targets + self.drop(gathered))))
        return after

    def looks(self, targets: Tensor, queries: Tensor, placed: Tensor) -> Tensor:
        """How much each query looks at each cell in this layer: B×heads×L×K, without dropout."""
        return self.multihead_attn.weights(self._among_queries(targets, queries) + queries, placed)

    def _among_queries(self, targets: Tensor, queries: Tensor) -> Tensor:
        if not self.self_attention:
            return targets
        asking = targets + queries
        heard: Tensor = self.norm1(targets + self.drop(self.self_attn(asking, asking, targets)))
        return heard
