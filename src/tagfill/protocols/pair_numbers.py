"""A random number for each (image, label) pair that depends on the seed and on the two names alone.

The order of images, the number of processes and the version of a library cannot change it, and a pair keeps its number
when other images or classes come or go. Names are hashed once each; the sum of the two hashes is the state of a
splitmix64 generator, whose `step`-th output is the pair's number for its `step`-th decision.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tagfill.draws import GAMMA, in_unit_interval, mix

Step = int | NDArray[np.integer]


@dataclass(frozen=True)
class PairNumbers:
    """The numbers of N images and L classes.

    Attributes:
        images: N hashes of names.
        labels: L hashes of names.
    """

    images: NDArray[np.uint64]
    labels: NDArray[np.uint64]

    @classmethod
    def of(cls, images: Sequence[str], labels: Sequence[str], seed: int) -> PairNumbers:
        """The numbers of these names under a seed.

        >>> first, again = PairNumbers.of(["a", "b"], ["cat"], 7), PairNumbers.of(["b", "a"], ["cat"], 7)
        >>> first.at(np.array([0]), np.array([0])) == again.at(np.array([1]), np.array([0]))
        array([ True])
        """
        return cls(_hashes(images, f"{seed}\0image\0"), _hashes(labels, f"{seed}\0label\0"))

    def at(self, image: NDArray[np.integer], label: NDArray[np.integer], step: Step = 0) -> NDArray[np.uint64]:
        """Uniform 64-bit numbers of pairs; distinct steps, which may differ from pair to pair, are independent."""
        steps = np.atleast_1d(np.asarray(step, dtype=np.uint64))
        return mix(self.images[image] + self.labels[label] + steps * GAMMA)

    def uniform(self, image: NDArray[np.integer], label: NDArray[np.integer], step: Step = 0) -> NDArray[np.float64]:
        """The same numbers in [0, 1)."""
        return in_unit_interval(self.at(image, label, step))


def _hashes(names: Iterable[str], prefix: str) -> NDArray[np.uint64]:
    start = hashlib.blake2b(prefix.encode(), digest_size=8)

    def digest(name: str) -> bytes:
        state = start.copy()
        state.update(name.encode())
        return state.digest()

    return np.frombuffer(b"".join(map(digest, names)), dtype="<u8").astype(np.uint64)
