"""The images with the largest values of each class, by sorting; among equal values the smaller index comes first."""

from __future__ import annotations


def top_per_class(values: list[list[float]], index: list[int], counts: list[int]) -> list[list[bool]]:
    chosen = [[False] * len(counts) for _ in values]
    for column, count in enumerate(counts):
        order = sorted(range(len(values)), key=lambda row: (-values[row][column], index[row]))
        for row in order[:count]:
            chosen[row][column] = True
    return chosen
