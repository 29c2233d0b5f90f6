"""The number of an (image, label) pair: BLAKE2b of each name, then splitmix64, in Python's own integers."""

from __future__ import annotations

import hashlib

WORD = 2**64


def name_hash(seed: int, what: str, name: str) -> int:
    return int.from_bytes(hashlib.blake2b(f"{seed}\0{what}\0{name}".encode(), digest_size=8).digest(), "little")


def splitmix64(state: int, outputs: int) -> int:
    """The last of so many outputs."""
    mixed = 0
    for _ in range(outputs):
        state = (state + 0x9E3779B97F4A7C15) % WORD
        mixed = state
        mixed = (mixed ^ (mixed >> 30)) * 0xBF58476D1CE4E5B9 % WORD
        mixed = (mixed ^ (mixed >> 27)) * 0x94D049BB133111EB % WORD
        mixed = mixed ^ (mixed >> 31)
    return mixed


def number(seed: int, image: str, label: str, step: int = 0) -> int:
    state = (name_hash(seed, "image", image) + name_hash(seed, "label", label)) % WORD
    return splitmix64(state, step + 1)


def uniform(seed: int, image: str, label: str, step: int = 0) -> float:
    return (number(seed, image, label, step) >> 11) / 2**53
