"""The position of a view in its image.

A view is a crop of the image, possibly mirrored, resized to the network's input. `Geometry` records the crop boxes in
relative image coordinates and the flips of a batch of views. All conversions between image and view (points, boxes,
heatmaps) go through it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray


@dataclass(slots=True)
class Geometry:
    """Crops and flips of B views.

    Attributes:
        box: B×4 float32, left, top, right, bottom of the crop, relative to the image.
        flip_x: B bool, mirrored left to right after the crop.
        flip_y: B bool, mirrored top to bottom after the crop.
        exact: B bool, whether the view is exactly this crop and flip (a shear or a rotation is not).
    """

    box: NDArray[np.float32]
    flip_x: NDArray[np.bool_]
    flip_y: NDArray[np.bool_]
    exact: NDArray[np.bool_]

    @classmethod
    def whole(cls, size: int) -> Geometry:
        """Views that show the whole image without flips."""
        box = np.tile(np.array([0, 0, 1, 1], dtype=np.float32), (size, 1))
        return cls(box, np.zeros(size, bool), np.zeros(size, bool), np.ones(size, bool))

    @classmethod
    def join(cls, parts: Sequence[Geometry]) -> Geometry:
        """Concatenate geometries."""
        return cls(*(np.concatenate([getattr(part, name) for part in parts]) for name in cls.__slots__))

    def __len__(self) -> int:
        return len(self.box)

    def take(self, index: NDArray[np.integer]) -> Geometry:
        """The geometry of some of the views."""
        return Geometry(self.box[index], self.flip_x[index], self.flip_y[index], self.exact[index])

    def to_view(self, points: NDArray[np.floating]) -> NDArray[np.float64]:
        """Convert image points (B×…×2, relative) to coordinates of their views; outside [0,1] is outside the view."""
        start, extent = self._frame(points.ndim)
        return self._mirror((points - start) / extent)

    def to_image(self, points: NDArray[np.floating]) -> NDArray[np.float64]:
        """Convert view points (B×…×2, relative) to coordinates of their images."""
        start, extent = self._frame(points.ndim)
        return self._mirror(points.astype(np.float64)) * extent + start

    def windows(self, size: int) -> NDArray[np.int64]:
        """The cells of a size×size map of the whole image that each view shows: B×4, left, top, right, bottom.

        Edges are rounded to the nearest cell, and a window has at least one cell in each direction.
        """
        edges = np.floor(self.box.astype(np.float64) * size + 0.5).astype(np.int64)
        start = np.clip(edges[:, :2], 0, size - 1)
        return np.concatenate([start, np.clip(edges[:, 2:], start + 1, size)], axis=1)

    def _frame(self, dimensions: int) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Corner and extent of each crop, shaped to broadcast over B×…×2 points."""
        box = self.box.astype(np.float64).reshape(len(self), *[1] * (dimensions - 2), 4)
        return box[..., :2], box[..., 2:] - box[..., :2]

    def _mirror(self, points: NDArray[np.float64]) -> NDArray[np.float64]:
        flips = np.stack([self.flip_x, self.flip_y], axis=-1).reshape(len(self), *[1] * (points.ndim - 2), 2)
        return np.where(flips, 1 - points, points)
