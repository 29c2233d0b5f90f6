"""The published single-positive draw and split, step by step as the paper's code takes them."""

from __future__ import annotations

import numpy as np


def draw(labels: list[list[int]], seed: int) -> list[int]:
    """The observed class of each row of 0s and 1s, -1 where there is none."""
    rng = np.random.RandomState(seed)
    observed = []
    for row in labels:
        positives = np.array([c for c, value in enumerate(row) if value == 1], dtype=np.int64)
        negatives = np.array([c for c, value in enumerate(row) if value == 0], dtype=np.int64)
        rng.shuffle(positives)
        rng.shuffle(negatives)  # nothing is kept of them, but random numbers are used up
        observed.append(int(positives[0]) if len(positives) else -1)
    return observed


def split(size: int, seed: int) -> tuple[list[int], list[int]]:
    order = np.random.RandomState(seed).permutation(size).tolist()
    held_out = round(0.2 * size)
    return sorted(order[: size - held_out]), sorted(order[size - held_out :])
