"""Looking at the class maps of an evaluation pass: do they light up where the labels are?

Truth is painted into a square raster of each view, from the masks and boxes of the dataset; points have no area, so a
class that has nothing else in an image is left out there. IoA is a share, so the raster need not have the proportions
of the image.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from tagfill.annotations import POSITIVE, Dataset, run_lengths
from tagfill.contract import Batch, Geometry, Marks, Prediction
from tagfill.errors import TagfillError, one_of
from tagfill.loading import Locations
from tagfill.metrics import Localisation, ioa

RASTER = 224
MAPS = ("minmax", "sigmoid", "coupled")


def places(dataset: Dataset, split: str) -> Locations:
    """Where the labels of a split are; an error if nothing of it has an extent."""
    found = Locations.read(dataset, split)
    if not _drawn(found):
        raise TagfillError(
            f"Localisation is measured against boxes or masks, but split '{split}' of {dataset.name} has none."
        )
    return found


def has_extents(dataset: Dataset, split: str) -> bool:
    """Whether localisation can be measured on a split: something of it has a box or a mask."""
    return _drawn(Locations.read(dataset, split))


def _drawn(found: Locations) -> bool:
    return bool((found.box[:, 2:] > 0).all(1).any()) or found.masks.null_count < len(found)


def watch(
    passes: Iterator[tuple[Batch, Prediction]],
    locations: Locations,
    found: Localisation,
    *,
    maps: str = "minmax",
    raster: int = RASTER,
) -> Iterator[tuple[Batch, Prediction]]:
    """Pass on what an evaluation gives, and add the localisation of each batch to `found`.

    Args:
        passes: with class maps, and attention if `maps` is coupled.
        locations: of the split.
        found: where the result goes.
        maps: class maps S scaled by `minmax`, their `sigmoid`, or S times attention, `coupled`, scaled by minmax.
        raster: side of the square that maps and truth are compared in.
    """
    one_of("maps", maps, MAPS)
    for batch, prediction in passes:
        marks, labels = locations.of(batch.index.numpy(force=True)), batch.labels.numpy(force=True)
        image, label, truth = truth_of(marks, batch.geometry, labels, raster)
        values = _maps(prediction, maps)[image, label]
        overlap = ioa(values, truth, scaling="sigmoid" if maps == "sigmoid" else "minmax")
        found.update(prediction.logits.numpy(force=True), labels, image, label, overlap)
        yield batch, prediction


def truth_of(
    marks: Marks, geometry: Geometry, labels: NDArray[np.integer], raster: int
) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.bool_]]:
    """Where present classes are in their views: image, class and an n×raster×raster truth for each pair.

    A pixel belongs to a class if its middle lies in a box or in a pixel of a mask.
    """
    drawn = np.array([mask is not None for mask in marks.masks], dtype=bool) | (marks.box[:, 2:] > 0).all(1)
    use = np.flatnonzero(drawn & (labels[marks.image, marks.label] == POSITIVE))
    pairs, pair = np.unique(marks.image[use] * labels.shape[1] + marks.label[use], return_inverse=True)
    truth = np.zeros((len(pairs), raster, raster), dtype=bool)
    middles = np.repeat((np.arange(raster)[:, None] + 0.5) / raster, 2, axis=1)
    for mark, into in zip(use.tolist(), pair.tolist(), strict=True):
        across, down = geometry.take(marks.image[mark : mark + 1]).to_image(middles[None])[0].T
        truth[into] |= _painted(marks, mark, across, down)
    return pairs // labels.shape[1], pairs % labels.shape[1], truth


def _painted(marks: Marks, at: int, across: NDArray[np.float64], down: NDArray[np.float64]) -> NDArray[np.bool_]:
    """Which of the places, rows `down` × columns `across`, lie in a mark."""
    mask = marks.masks[at]
    if mask is None:
        x, y, w, h = marks.box[at]
        columns, rows = np.abs(across - x) <= w / 2, np.abs(down - y) <= h / 2
        inside: NDArray[np.bool_] = rows[:, None] & columns
        return inside
    rle, height, width = mask
    column, row = np.floor(across * width).astype(np.int64), np.floor(down * height).astype(np.int64)
    pixels = run_lengths.decode(rle, height, width)
    drawn = pixels[np.clip(row, 0, height - 1)[:, None], np.clip(column, 0, width - 1)]
    within: NDArray[np.bool_] = ((row >= 0) & (row < height))[:, None] & ((column >= 0) & (column < width))
    return drawn & within


def _maps(prediction: Prediction, maps: str) -> NDArray[np.float32]:
    assert prediction.maps is not None
    values = prediction.maps
    if maps == "coupled":
        if prediction.attention is None:
            raise TagfillError("Coupled maps need attention, which the tscam head alone has; choose minmax or sigmoid.")
        values = values * prediction.attention[:, None]
    result: NDArray[np.float32] = values.float().numpy(force=True)
    return result
