"""Random numbers that depend on what they are for, never on who draws them or when.

Each draw has an address, (seed, purpose, epoch, index, view). Worker processes, ranks and a resumed run
therefore all see the same numbers, and no generator state has to be saved.
"""

from __future__ import annotations

import zlib

import numpy as np
from numpy.typing import NDArray

# Philox4x64 with ten rounds: Salmon et al., Parallel random numbers: as easy as 1, 2, 3, SC 2011.
_ROUNDS = 10
_FACTORS = (0xD2E7470EE14C6C93, 0xCA5A826395121157)
_KEY_STEPS = (0x9E3779B97F4A7C15, 0xBB67AE8584CAA73B)
_HALF, _LOWER = np.uint64(32), np.uint64(0xFFFFFFFF)
GAMMA = np.uint64(0x9E3779B97F4A7C15)  # by which the state of SplitMix64 advances


def generator(seed: int, purpose: str, epoch: int = 0, index: int = 0, view: int = 0) -> np.random.Generator:
    """A generator of its own for one address.

    The address goes into the upper three words of Philox's 256-bit counter, so that two addresses never
    share a number as long as each draws fewer than 2⁶⁴ of them.

    >>> generator(7, "view", epoch=2, index=31).random() == generator(7, "view", epoch=2, index=31).random()
    True
    """
    key = np.array([seed, zlib.crc32(purpose.encode())], dtype=np.uint64)
    counter = np.array([0, epoch, index, view], dtype=np.uint64)
    return np.random.Generator(np.random.Philox(key=key, counter=counter))


def uniform_rows(seed: int, purpose: str, index: NDArray[np.int64], width: int) -> NDArray[np.float64]:
    """Numbers in [0, 1) for many addresses at once: n×width, each a hash of (seed, purpose, index, column).

    >>> rows = uniform_rows(7, "start", np.array([5, 2]), 3)
    >>> bool((rows[1] == uniform_rows(7, "start", np.array([2]), 3)).all())
    True
    """
    key = mix(np.array([seed], dtype=np.uint64)) ^ np.uint64(zlib.crc32(purpose.encode()))
    place = (index.astype(np.uint64)[:, None] << np.uint64(32)) | np.arange(width, dtype=np.uint64)
    return in_unit_interval(mix(mix(place) ^ mix(key)))


def mix(bits: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """What SplitMix64 gives in the state `bits`: one to one, and each bit depends on all.

    >>> f"{mix(np.array([0], dtype=np.uint64))[0]:x}"
    'e220a8397b1dcdaf'
    """
    bits = bits + GAMMA
    bits = (bits ^ (bits >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    bits = (bits ^ (bits >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return bits ^ (bits >> np.uint64(31))


def in_unit_interval(bits: NDArray[np.uint64]) -> NDArray[np.float64]:
    """Random bits as numbers in [0, 1): the upper 53, which a float64 holds exactly.

    >>> in_unit_interval(np.array([0, 1 << 63], dtype=np.uint64)).tolist()
    [0.0, 0.5]
    """
    return (bits >> np.uint64(11)).astype(np.float64) * 2.0**-53


def seed_of(seed: int, purpose: str, epoch: int = 0, index: int = 0, view: int = 0) -> int:
    """A 63-bit seed for libraries that keep a generator of their own, such as torch."""
    return int(generator(seed, purpose, epoch, index, view).integers(0, 2**63 - 1))


def words(seed: int, purpose: str, epoch: int, index: NDArray[np.integer], view: int = 0) -> NDArray[np.uint64]:
    """The first 64 random bits of many addresses at once, one for each of `index`.

    They are what `generator` of each address begins with, for a small part of the time that making as many generators
    takes: the ten rounds of Philox4x64 over whole arrays.

    >>> int(words(7, "view", 2, np.array([30, 31]))[1]) == int(generator(7, "view", 2, 31).bit_generator.random_raw())
    True
    """
    key = [seed, zlib.crc32(purpose.encode())]
    first, third = np.ones(len(index), np.uint64), index.astype(np.uint64)  # numpy counts up before it draws
    second, fourth = np.full(len(index), epoch, np.uint64), np.full(len(index), view, np.uint64)
    for turn in range(_ROUNDS):
        keys = [np.uint64((word + turn * step) % 2**64) for word, step in zip(key, _KEY_STEPS, strict=True)]
        high, low = _multiply(_FACTORS[0], first)
        other_high, other_low = _multiply(_FACTORS[1], third)
        first, second, third, fourth = other_high ^ second ^ keys[0], other_low, high ^ fourth ^ keys[1], low
    return first


def uniforms(seed: int, purpose: str, epoch: int, index: NDArray[np.integer], view: int = 0) -> NDArray[np.float64]:
    """A number in [0, 1) for each of many addresses: the first that `generator` of each would give.

    >>> uniforms(7, "view", 2, np.array([31]))[0] == generator(7, "view", 2, 31).random()
    np.True_
    """
    return in_unit_interval(words(seed, purpose, epoch, index, view))


def _multiply(factor: int, values: NDArray[np.uint64]) -> tuple[NDArray[np.uint64], NDArray[np.uint64]]:
    """The upper and the lower 64 bits of products, by halves of 32 bits."""
    factor_high, factor_low = np.uint64(factor >> 32), np.uint64(factor & 0xFFFFFFFF)
    high, low = values >> _HALF, values & _LOWER
    across, back = factor_low * high, factor_high * low
    carry = ((factor_low * low) >> _HALF) + (across & _LOWER) + (back & _LOWER)
    upper = factor_high * high + (across >> _HALF) + (back >> _HALF) + (carry >> _HALF)
    return upper, values * np.uint64(factor)
