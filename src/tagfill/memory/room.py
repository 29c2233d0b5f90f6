"""Memory that is used again at each step.

Large tensors of their own each step would cost more than the arithmetic on them: the system hands their pages out anew
each time, emptied.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor


class Room:
    """Float32 memory by name; it grows to the largest that was asked for."""

    def __init__(self) -> None:
        self._parts: dict[str, Tensor] = {}

    def take(self, name: str, shape: tuple[int, ...]) -> Tensor:
        """A contiguous tensor with any content, which is good until the same name is taken again.

        Example:
            >>> Room().take("rows", (2, 3)).shape
            torch.Size([2, 3])
        """
        size = math.prod(shape)
        if name not in self._parts or len(self._parts[name]) < size:
            self._parts[name] = torch.empty(size)
        return self._parts[name][:size].view(shape)
