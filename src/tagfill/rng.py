"""Random numbers that depend only on what they are for, not on which process draws them or when.

A draw has an address, and the numbers are a function of it. Worker processes, ranks and a resumed run therefore see the
same numbers, and no generator state has to be saved. There are two schemes, and both are part of what files hold:

- `generator`, `random_bits` and `seed_of`: Philox, addressed by (seed, purpose, epoch, index, view). Use these.
- `PairNumbers` and `uniform_rows`: hashes with the SplitMix64 finalizer, for whole matrices. Simulated datasets
  (`tagfill.protocols`) and the initial estimates of a run are made of these numbers.

Two places use NumPy's own sequences instead: `tagfill.protocols.single_positive`, because the published draw uses
`RandomState`, and `tagfill.metrics.bootstrap_interval`, so that reported intervals can be reproduced.
"""

from __future__ import annotations

import hashlib
import zlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

# Philox4x64 with ten rounds: Salmon et al., Parallel random numbers: as easy as 1, 2, 3, SC 2011.
_ROUNDS = 10
_FACTORS = (0xD2E7470EE14C6C93, 0xCA5A826395121157)
_KEY_STEPS = (0x9E3779B97F4A7C15, 0xBB67AE8584CAA73B)
_HALF, _LOWER = np.uint64(32), np.uint64(0xFFFFFFFF)
GAMMA = np.uint64(0x9E3779B97F4A7C15)  # the step of SplitMix64's state

Step = int | NDArray[np.integer]


def generator(seed: int, purpose: str, epoch: int = 0, index: int = 0, view: int = 0) -> np.random.Generator:
    """A generator for one address.

    The address goes into the upper three words of Philox's 256-bit counter, so that two addresses never
    share a number as long as each draws fewer than 2⁶⁴ of them.

    >>> generator(7, "view", epoch=2, index=31).random() == generator(7, "view", epoch=2, index=31).random()
    True
    """
    key = np.array([seed, zlib.crc32(purpose.encode())], dtype=np.uint64)
    counter = np.array([0, epoch, index, view], dtype=np.uint64)
    return np.random.Generator(np.random.Philox(key=key, counter=counter))


def random_bits(seed: int, purpose: str, epoch: int, index: NDArray[np.integer], view: int = 0) -> NDArray[np.uint64]:
    """The first 64 random bits of many addresses at once, one for each of `index`.

    They equal the first bits of each address's `generator`, at a fraction of the time that creating the generators
    would take: the ten rounds of Philox4x64 run over whole arrays.

    >>> drawn = random_bits(7, "view", 2, np.array([30, 31]))
    >>> int(drawn[1]) == int(generator(7, "view", 2, 31).bit_generator.random_raw())
    True
    """
    key = [seed, zlib.crc32(purpose.encode())]
    first, third = np.ones(len(index), np.uint64), index.astype(np.uint64)  # numpy increments before it draws
    second, fourth = np.full(len(index), epoch, np.uint64), np.full(len(index), view, np.uint64)
    for turn in range(_ROUNDS):
        keys = [np.uint64((word + turn * step) % 2**64) for word, step in zip(key, _KEY_STEPS, strict=True)]
        high, low = _multiply(_FACTORS[0], first)
        other_high, other_low = _multiply(_FACTORS[1], third)
        first, second, third, fourth = other_high ^ second ^ keys[0], other_low, high ^ fourth ^ keys[1], low
    return first


def seed_of(seed: int, purpose: str, epoch: int = 0, index: int = 0, view: int = 0) -> int:
    """A 63-bit seed for libraries with a generator of their own, such as torch."""
    return int(generator(seed, purpose, epoch, index, view).integers(0, 2**63 - 1))


def uniform_rows(seed: int, purpose: str, index: NDArray[np.int64], width: int) -> NDArray[np.float64]:
    """Numbers in [0, 1) for many addresses at once: n×width, each a hash of (seed, purpose, index, column).

    >>> rows = uniform_rows(7, "start", np.array([5, 2]), 3)
    >>> bool((rows[1] == uniform_rows(7, "start", np.array([2]), 3)).all())
    True
    """
    key = mix(np.array([seed], dtype=np.uint64)) ^ np.uint64(zlib.crc32(purpose.encode()))
    place = (index.astype(np.uint64)[:, None] << np.uint64(32)) | np.arange(width, dtype=np.uint64)
    return in_unit_interval(mix(mix(place) ^ mix(key)))


@dataclass(frozen=True)
class PairNumbers:
    """A random number for each (image, label) pair that depends only on the seed and the two names.

    The order of images and the versions of libraries do not change it, and a pair keeps its number when other images or
    classes are added or removed. Each name is hashed once; the sum of the two hashes is the state of a SplitMix64
    generator, whose `step`-th output is the pair's number for its `step`-th decision.

    Attributes:
        images: N hashes of image names.
        labels: L hashes of class names.
    """

    images: NDArray[np.uint64]
    labels: NDArray[np.uint64]

    @classmethod
    def of(cls, images: Sequence[str], labels: Sequence[str], seed: int) -> PairNumbers:
        """The numbers of these names for a seed.

        >>> first, again = PairNumbers.of(["a", "b"], ["cat"], 7), PairNumbers.of(["b", "a"], ["cat"], 7)
        >>> first.bits(np.array([0]), np.array([0])) == again.bits(np.array([1]), np.array([0]))
        array([ True])
        """
        return cls(_name_hashes(images, f"{seed}\0image\0"), _name_hashes(labels, f"{seed}\0label\0"))

    def bits(self, image: NDArray[np.integer], label: NDArray[np.integer], step: Step = 0) -> NDArray[np.uint64]:
        """Uniform 64-bit numbers of pairs; different steps, one for all or one per pair, are independent."""
        steps = np.atleast_1d(np.asarray(step, dtype=np.uint64))
        return mix(self.images[image] + self.labels[label] + steps * GAMMA)

    def uniform(self, image: NDArray[np.integer], label: NDArray[np.integer], step: Step = 0) -> NDArray[np.float64]:
        """The same numbers in [0, 1)."""
        return in_unit_interval(self.bits(image, label, step))


def mix(bits: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """The output of SplitMix64 in the state `bits`: one to one, and each bit depends on all.

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


def _name_hashes(names: Iterable[str], prefix: str) -> NDArray[np.uint64]:
    start = hashlib.blake2b(prefix.encode(), digest_size=8)

    def digest(name: str) -> bytes:
        state = start.copy()
        state.update(name.encode())
        return state.digest()

    return np.frombuffer(b"".join(map(digest, names)), dtype="<u8").astype(np.uint64)


def _multiply(factor: int, values: NDArray[np.uint64]) -> tuple[NDArray[np.uint64], NDArray[np.uint64]]:
    """The upper and the lower 64 bits of products, computed from halves of 32 bits."""
    factor_high, factor_low = np.uint64(factor >> 32), np.uint64(factor & 0xFFFFFFFF)
    high, low = values >> _HALF, values & _LOWER
    across, back = factor_low * high, factor_high * low
    carry = ((factor_low * low) >> _HALF) + (across & _LOWER) + (back & _LOWER)
    upper = factor_high * high + (across >> _HALF) + (back >> _HALF) + (carry >> _HALF)
    return upper, values * np.uint64(factor)
