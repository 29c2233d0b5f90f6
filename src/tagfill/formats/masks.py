"""Masks as COCO's compressed run lengths, made by pycocotools from polygons, runs or pixels.

pycocotools trusts what it is given, so everything is checked first.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

_FAR = 10.0  # image sizes; pycocotools walks along a polygon's edges, however long they are


@dataclass(frozen=True)
class RunLengths:
    """A mask: compressed run lengths, and the raster that they belong to."""

    counts: bytes
    height: int
    width: int

    def columns(self) -> dict[str, Any]:
        """The mask as columns of an annotation row."""
        return {"kind": "mask", "rle": self.counts, "rle_height": self.height, "rle_width": self.width}

    def box(self) -> tuple[float, float, float, float]:
        """Left, top, width and height of the pixels, in pixels."""
        from pycocotools import mask

        left, top, width, height = mask.toBbox(self._object()).tolist()
        return left, top, width, height

    def area(self) -> int:
        """The number of pixels."""
        from pycocotools import mask

        return int(mask.area(self._object()))

    def _object(self) -> dict[str, Any]:
        return {"size": [self.height, self.width], "counts": self.counts}


def from_segmentation(segmentation: Any, height: int, width: int) -> RunLengths | None:
    """What COCO writes into `segmentation`: polygons, runs, or compressed runs.

    Args:
        segmentation: the value of that key.
        height: of the image.
        width: of the image.

    Returns:
        The mask, or None if it has no area: an empty list, or polygons of fewer than three corners.

    Raises:
        ValueError: with what is wrong, in the form of half a sentence.
    """
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


def from_pixels(pixels: NDArray[np.bool_]) -> RunLengths:
    """The mask of an H×W array."""
    from pycocotools import mask

    counts: bytes = mask.encode(np.asfortranarray(pixels.astype(np.uint8)))["counts"]
    height, width = pixels.shape
    return RunLengths(counts, height, width)


def _corners(polygon: Any, height: int, width: int) -> list[float]:
    try:
        corners = np.asarray(polygon, dtype=np.float64)
    except (TypeError, ValueError):
        corners = np.empty((0, 0))
    if corners.ndim != 1 or len(corners) % 2 or not np.isfinite(corners).all():
        raise ValueError("a polygon of its segmentation is not a list of x, y, x, y…")
    if len(corners) and np.abs(corners).max() > _FAR * max(height, width):
        raise ValueError("a polygon of its segmentation lies far outside of the image")
    flat: list[float] = corners.tolist()
    return flat


def _from_runs(segmentation: dict[str, Any]) -> RunLengths:
    size, counts = segmentation.get("size"), segmentation.get("counts")
    if not (isinstance(size, list) and len(size) == 2 and all(isinstance(side, int) and side > 0 for side in size)):
        raise ValueError("the run lengths of its segmentation have no size of [height, width]")
    height, width = size
    if isinstance(counts, str):
        runs, compressed = decompress(counts.encode()), counts.encode()
    elif isinstance(counts, list) and all(isinstance(run, int) for run in counts):
        from pycocotools import mask

        runs = counts
        compressed = b""
        if _fill(runs, height, width):
            compressed = mask.frPyObjects({"size": size, "counts": counts}, height, width)["counts"]
    else:
        raise ValueError("the counts of its segmentation are neither a list of numbers nor compressed")
    if not _fill(runs, height, width):
        raise ValueError(f"the run lengths of its segmentation do not fill its {height} × {width} pixels")
    return RunLengths(compressed, height, width)


def _fill(runs: list[int], height: int, width: int) -> bool:
    return min(runs, default=0) >= 0 and sum(runs) == height * width


def decompress(counts: bytes) -> list[int]:
    """The run lengths in compressed counts.

    Five bits a character, lowest first, the sixth says that more follow; from the fourth number on, the
    difference to the run two before is stored.

    >>> decompress(b"22")
    [2, 2]

    Raises:
        ValueError: a character is none of these, or the last number does not end.
    """
    runs: list[int] = []
    number = shift = 0
    for character in counts:
        digit = character - 48
        if not 0 <= digit < 64:
            raise ValueError(f"the counts of its segmentation have a character {chr(character)!r}")
        number |= (digit & 31) << shift
        shift += 5
        if digit & 32:
            continue
        if digit & 16:
            number -= 1 << shift
        runs.append(number + runs[-2] if len(runs) > 2 else number)
        number = shift = 0
    if shift:
        raise ValueError("the counts of its segmentation end in the middle of a number")
    return runs
