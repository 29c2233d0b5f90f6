"""Localization: do the class maps of an evaluation pass light up where the labels are?

The truth is painted into a square raster of each view, from the masks and boxes of the dataset. Points have no area, so
a class that is marked only by points in an image is left out there. The raster does not need the proportions of the
image, because the score is a share of the map's mass.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from tagfill.contract import Batch, Marks, Prediction
from tagfill.data import Locations
from tagfill.dataset import Dataset, masks
from tagfill.errors import TagfillError, one_of
from tagfill.images.geometry import Geometry
from tagfill.labels import POSITIVE
from tagfill.metrics import LocalizationMeter, intersection_over_prediction

RASTER = 224
SCALINGS = ("minmax", "sigmoid", "coupled")


def locations_with_extent(dataset: Dataset, split: str) -> Locations:
    """Read the locations of a split; raise if it has neither boxes nor masks."""
    found = Locations.read(dataset, split)
    if not _any_extent(found):
        raise TagfillError(
            f"Localization is measured against boxes or masks, but split '{split}' of {dataset.name} has none."
        )
    return found


def has_extents(dataset: Dataset, split: str) -> bool:
    """Whether localization can be measured on a split, because it has a box or a mask."""
    return _any_extent(Locations.read(dataset, split))


def _any_extent(found: Locations) -> bool:
    return bool((found.box[:, 2:] > 0).all(1).any()) or found.masks.null_count < len(found)


def measure_localization(
    passes: Iterator[tuple[Batch, Prediction]],
    locations: Locations,
    meter: LocalizationMeter,
    *,
    maps: str = "minmax",
    raster: int = RASTER,
) -> Iterator[tuple[Batch, Prediction]]:
    """Yield the batches of an evaluation pass, and add the localization of each to `meter`.

    Args:
        passes: with class maps, and attention if `maps` is coupled.
        locations: of the split.
        meter: collects the result.
        maps: class maps S scaled by `minmax`, their `sigmoid`, or S times attention, `coupled`, scaled by minmax.
        raster: side of the square in which maps and truth are compared.
    """
    one_of("maps", maps, SCALINGS)
    for batch, prediction in passes:
        marks, labels = locations.of(batch.index.numpy(force=True)), batch.labels.numpy(force=True)
        image, label, truth = paint_truth(marks, batch.geometry, labels, raster)
        values = _map_values(prediction, maps)[image, label]
        overlap = intersection_over_prediction(values, truth, scaling="sigmoid" if maps == "sigmoid" else "minmax")
        meter.update(prediction.logits.numpy(force=True), labels, image, label, overlap)
        yield batch, prediction


def paint_truth(
    marks: Marks, geometry: Geometry, labels: NDArray[np.integer], raster: int
) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.bool_]]:
    """Paint where present classes are in their views; a pixel belongs to a class if its center lies in a box or mask.

    Returns:
        Image and class of each of n pairs, and their truth, n×raster×raster.
    """
    drawn = np.array([mask is not None for mask in marks.masks], dtype=bool) | (marks.box[:, 2:] > 0).all(1)
    use = np.flatnonzero(drawn & (labels[marks.image, marks.label] == POSITIVE))
    pairs, pair = np.unique(marks.image[use] * labels.shape[1] + marks.label[use], return_inverse=True)
    truth = np.zeros((len(pairs), raster, raster), dtype=bool)
    centers = np.repeat((np.arange(raster)[:, None] + 0.5) / raster, 2, axis=1)
    for mark, into in zip(use.tolist(), pair.tolist(), strict=True):
        across, down = geometry.take(marks.image[mark : mark + 1]).to_image(centers[None])[0].T
        truth[into] |= _inside(marks, mark, across, down)
    return pairs // labels.shape[1], pairs % labels.shape[1], truth


def _inside(marks: Marks, at: int, across: NDArray[np.float64], down: NDArray[np.float64]) -> NDArray[np.bool_]:
    """Which points of the grid with rows `down` and columns `across` lie in a mark."""
    mask = marks.masks[at]
    if mask is None:
        x, y, w, h = marks.box[at]
        columns, rows = np.abs(across - x) <= w / 2, np.abs(down - y) <= h / 2
        inside: NDArray[np.bool_] = rows[:, None] & columns
        return inside
    rle, height, width = mask
    column, row = np.floor(across * width).astype(np.int64), np.floor(down * height).astype(np.int64)
    pixels = masks.decode(rle, height, width)
    drawn = pixels[np.clip(row, 0, height - 1)[:, None], np.clip(column, 0, width - 1)]
    within: NDArray[np.bool_] = ((row >= 0) & (row < height))[:, None] & ((column >= 0) & (column < width))
    return drawn & within


def _map_values(prediction: Prediction, maps: str) -> NDArray[np.float32]:
    assert prediction.maps is not None
    values = prediction.maps
    if maps == "coupled":
        if prediction.attention is None:
            raise TagfillError("Coupled maps need attention, which only the tscam head has; choose minmax or sigmoid.")
        values = values * prediction.attention[:, None]
    result: NDArray[np.float32] = values.float().numpy(force=True)
    return result
