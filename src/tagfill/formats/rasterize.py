"""Turn polygons, runs or pixels into masks: COCO's compressed run lengths.

pycocotools rasterizes the polygons. It trusts its input, so everything is checked first.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tagfill.dataset import masks

_FAR = 10.0  # in image sizes; pycocotools takes time in proportion to the length of a polygon's edges
_LONGEST_SIDE, _MOST_PIXELS = 1 << 20, 1 << 28  # of a raster


@dataclass(frozen=True)
class RunLengths:
    """A mask: compressed run lengths, and the size of the raster that they fill."""

    counts: bytes
    height: int
    width: int

    def columns(self) -> dict[str, Any]:
        """Return the columns of an annotation row for this mask."""
        return {"kind": "mask", "rle": self.counts, "rle_height": self.height, "rle_width": self.width}

    def box(self) -> tuple[int, int, int, int]:
        """Return left, top, width and height of the bounding box, in pixels."""
        return masks.bounds(self.counts, self.height)

    def area(self) -> int:
        """Return the number of pixels."""
        return masks.area(self.counts)


def from_segmentation(segmentation: Any, height: int, width: int) -> RunLengths | None:
    """Return the mask of a `segmentation` in COCO's form: polygons, runs, or compressed runs.

    Args:
        segmentation: the value of that key.
        height: of the image.
        width: of the image.

    Returns:
        The mask, or None if it has no area: an empty list, or polygons of fewer than three corners.

    Raises:
        ValueError: the segmentation is damaged; the message continues a sentence.
    """
    check_raster_size(height, width)
    if isinstance(segmentation, dict):
        return _from_runs(segmentation)
    if not isinstance(segmentation, list):
        raise ValueError("its segmentation is neither a list of polygons nor run lengths")
    polygons = [_corners(polygon, height, width) for polygon in segmentation]
    polygons = [polygon for polygon in polygons if len(polygon) >= 6]
    if not polygons:
        return None
    from pycocotools import mask

    parts = mask.frPyObjects(polygons, height, width)
    return RunLengths(mask.merge(parts)["counts"], height, width)


def check_raster_size(height: int, width: int) -> None:
    """Raise a ValueError if a raster would not fit into memory; the message continues a sentence."""
    if max(height, width) > _LONGEST_SIDE or height * width > _MOST_PIXELS:
        raise ValueError(f"a mask of {width} × {height} pixels is too large")


def from_pixels(pixels: NDArray[np.bool_]) -> RunLengths:
    """Return the mask of an H×W array."""
    height, width = pixels.shape
    return RunLengths(masks.encode(pixels), height, width)


def _corners(polygon: Any, height: int, width: int) -> list[float]:
    try:
        corners = np.asarray(polygon, dtype=np.float64)
    except (TypeError, ValueError, OverflowError):
        corners = np.empty((0, 0))
    if corners.ndim != 1 or len(corners) % 2 or not np.isfinite(corners).all():
        raise ValueError("a polygon of its segmentation is not a list of x, y, x, y…")
    if len(corners) and np.abs(corners).max() > _FAR * max(height, width):
        raise ValueError("a polygon of its segmentation lies far outside the image")
    flat: list[float] = corners.tolist()
    return flat


def _from_runs(segmentation: dict[str, Any]) -> RunLengths:
    size, counts = segmentation.get("size"), segmentation.get("counts")
    if not (isinstance(size, list) and len(size) == 2 and all(isinstance(side, int) and side > 0 for side in size)):
        raise ValueError("the run lengths of its segmentation have no size of [height, width]")
    height, width = size
    check_raster_size(height, width)
    if isinstance(counts, str):
        try:
            lengths = masks.runs(counts.encode())
        except ValueError as problem:
            raise ValueError(f"the counts of its segmentation {problem}") from None
    elif isinstance(counts, list) and all(isinstance(run, int) for run in counts):
        most = height * width + 1  # enough to see that a run is too long
        lengths = np.array([min(max(run, -1), most) for run in counts], dtype=np.int64)
    else:
        raise ValueError("the counts of its segmentation are neither a list of numbers nor compressed")
    if not masks.fills(lengths, height, width):
        raise ValueError(f"the run lengths of its segmentation do not fill its {height} × {width} pixels")
    compressed = counts.encode() if isinstance(counts, str) else masks.compress(lengths)
    return RunLengths(compressed, height, width)
