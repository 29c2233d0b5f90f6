"""Query2Label in NumPy, one image at a time, one attention head after the other."""

from __future__ import annotations

from math import cos, pi, sin, sqrt
from typing import Any

import numpy as np

Array = np.ndarray[Any, np.dtype[np.float64]]
Weights = dict[str, Array]


def position(row: int, column: int, height: int, width: int, d: int) -> list[float]:
    """The position of a cell; rows and columns are counted from 1."""
    values = []
    for place, size in ((row, height), (column, width)):
        scaled = place * 2 * pi / (size + 1e-6)
        for i in range(d // 2):
            angle = scaled * 10000 ** (-2 * (i // 2) / (d / 2))
            values.append(sin(angle) if i % 2 == 0 else cos(angle))
    return values


def positions(height: int, width: int, d: int) -> Array:
    return np.array([position(r, c, height, width, d) for r in range(1, height + 1) for c in range(1, width + 1)])


def part(weights: Weights, prefix: str) -> Weights:
    return {name.removeprefix(prefix + "."): v for name, v in weights.items() if name.startswith(prefix + ".")}


def linear(x: Array, w: Weights) -> Array:
    return x @ w["weight"].T + w["bias"]


def norm(x: Array, w: Weights) -> Array:
    centred = x - x.mean(-1, keepdims=True)
    return centred / np.sqrt((centred**2).mean(-1, keepdims=True) + 1e-5) * w["weight"] + w["bias"]


def attention(query: Array, key: Array, value: Array, w: Weights, heads: int) -> tuple[Array, Array]:
    """What is gathered, and the weights heads×queries×keys."""
    d = query.shape[1]
    inputs = (query, key, value)
    q, k, v = (
        x @ w["in_proj_weight"][n * d : (n + 1) * d].T + w["in_proj_bias"][n * d : (n + 1) * d]
        for n, x in enumerate(inputs)
    )
    size = d // heads
    gathered, looks = np.zeros_like(q), np.zeros((heads, len(query), len(key)))
    for h in range(heads):
        own = slice(h * size, (h + 1) * size)
        for asked in range(len(query)):
            scores = np.array([q[asked, own] @ k[cell, own] / sqrt(size) for cell in range(len(key))])
            shares = np.exp(scores - scores.max())
            shares /= shares.sum()
            looks[h, asked] = shares
            gathered[asked, own] = sum(share * v[cell, own] for cell, share in enumerate(shares))
    return linear(gathered, part(w, "out_proj")), looks


def feed_forward(x: Array, w: Weights) -> Array:
    return linear(np.maximum(linear(x, part(w, "linear1")), 0), part(w, "linear2"))


def query2label(features: Array, weights: Weights, heads: int) -> tuple[Array, Array]:
    """L logits of one image's D×H×W features, and the last layer's looks heads×L×H×W."""
    channels, height, width = features.shape
    x = features.reshape(channels, -1).T
    if "input_proj.weight" in weights:
        x = linear(x, part(weights, "input_proj"))
    place = positions(height, width, x.shape[1])
    layers = sorted({name.split(".")[1] for name in weights if name.startswith("encoder.")})
    for number in layers:
        w = part(weights, f"encoder.{number}")
        x = norm(x + attention(x + place, x + place, x, part(w, "self_attn"), heads)[0], part(w, "norm1"))
        x = norm(x + feed_forward(x, w), part(w, "norm2"))
    asked = weights["queries"]
    t, looks = np.zeros_like(asked), np.zeros(0)
    layers = sorted({name.split(".")[1] for name in weights if name.startswith("decoder.")})
    for number in layers:
        w = part(weights, f"decoder.{number}")
        if "norm1.weight" in w:
            t = norm(t + attention(t + asked, t + asked, t, part(w, "self_attn"), heads)[0], part(w, "norm1"))
        gathered, looks = attention(t + asked, x + place, x, part(w, "multihead_attn"), heads)
        t = norm(t + gathered, part(w, "norm2"))
        t = norm(t + feed_forward(t, w), part(w, "norm3"))
    t = norm(t, part(weights, "norm"))
    logits = np.array([weights["weight"][c] @ t[c] + weights["bias"][c] for c in range(len(t))])
    return logits, looks.reshape(heads, len(t), height, width)
