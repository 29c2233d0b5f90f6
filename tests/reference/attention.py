"""Multi-head self-attention of one layer, in plain loops: where the first token looks."""

from __future__ import annotations

import numpy as np


def class_token_rows(tokens, weight, bias, *, heads, prefix):
    """The mean over heads of softmax(q₀ kᵀ / √d) over the tokens after the first `prefix`; tokens are B×N×D."""
    images, count, width = tokens.shape
    size = width // heads
    rows = np.zeros((images, count - prefix), dtype=np.float32)
    for image in range(images):
        projected = tokens[image] @ weight.T + bias  # N×3D: queries, keys, values
        for head in range(heads):
            query = projected[0, head * size : (head + 1) * size]
            keys = projected[:, width + head * size : width + (head + 1) * size]
            scores = np.array([query @ key for key in keys]) / np.sqrt(size)
            shares = np.exp(scores - scores.max())
            rows[image] += (shares / shares.sum())[prefix:] / heads
    return rows
