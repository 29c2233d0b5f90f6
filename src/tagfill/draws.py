"""Random numbers that depend on what they are for, never on who draws them or when.

Each draw has an address, (seed, purpose, epoch, index, view). Worker processes, ranks and a resumed run
therefore all see the same numbers, and no generator state has to be saved.
"""

from __future__ import annotations

import zlib

import numpy as np


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


def seed_of(seed: int, purpose: str, epoch: int = 0, index: int = 0, view: int = 0) -> int:
    """A 63-bit seed for libraries that keep a generator of their own, such as torch."""
    return int(generator(seed, purpose, epoch, index, view).integers(0, 2**63 - 1))
