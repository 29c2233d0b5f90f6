"""COCO's compressed run lengths, decoded one character and one pixel at a time."""

from __future__ import annotations


def decode(counts: bytes, height: int, width: int) -> list[list[int]]:
    """The H×W mask of zeros and ones that `counts` describes."""
    runs: list[int] = []
    position = 0
    while position < len(counts):
        number, shift, more = 0, 0, True
        while more:
            character = counts[position] - 48
            number += (character % 32) * 2**shift
            more = character >= 32
            position += 1
            shift += 5
            if not more and character % 32 >= 16:
                number -= 2**shift
        if len(runs) > 2:
            number += runs[-2]
        runs.append(number)
    flat: list[int] = []
    for turn, run in enumerate(runs):
        flat += [turn % 2] * run
    return [[flat[column * height + row] for column in range(width)] for row in range(height)]
