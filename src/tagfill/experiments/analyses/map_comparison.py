"""Two models' class maps compared, cell by cell: do they rank cells alike, and how high do they go?

    agreement    Spearman's ρ of the two maps, for each image and label that is present
    control      the same of the first map and a centred two-dimensional Gaussian; ranks do not depend on its width,
                 only on the distance from the centre
    attribution  mean of the highest and of the lowest 5 % of a map's cells, at least one cell

Kim et al., Bridging the Gap between Model Explanations in Partially Annotated Multi-label Classification, CVPR 2023,
Fig. 2.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tagfill.annotations import NEGATIVE, POSITIVE
from tagfill.contract import Batch, Prediction
from tagfill.errors import TagfillError
from tagfill.experiments.analyses.subjects import Subject
from tagfill.metrics import rank_correlation

SHARE = 0.05


@dataclass(frozen=True)
class Measured:
    """Two models' maps compared.

    Attributes:
        agreement: n, ρ of the two models for each present label.
        control: n, ρ of the first model and the Gaussian.
        attribution: (`top` or `bottom`, `positive` or `negative`, model 0 or 1) → one value for each such label.
    """

    agreement: NDArray[np.float64]
    control: NDArray[np.float64]
    attribution: dict[tuple[str, str, int], NDArray[np.float64]]


def measure(full: Subject, partial: Subject, split: str, images: int) -> Measured:
    """Look at the same images with both models."""
    size = len(full.dataset.split(split))
    index = np.unique(np.linspace(0, size - 1, min(images, size)).astype(np.int64))
    if full.dataset.names(full.dataset.split(split)) != partial.dataset.names(partial.dataset.split(split)):
        raise TagfillError(f"{full.run.folder} and {partial.run.folder} have other images in split '{split}'.")
    both = zip(_maps(full, split, index), _maps(partial, split, index), strict=True)
    correlations: list[tuple[NDArray[np.float64], NDArray[np.float64]]] = []
    ends: dict[tuple[str, str, int], list[NDArray[np.float64]]] = {}
    for (batch, ours), (other, theirs) in both:
        assert ours.maps is not None
        assert theirs.maps is not None
        maps = [each.maps.float().numpy(force=True) for each in (ours, theirs) if each.maps is not None]
        if maps[0].shape != maps[1].shape or not batch.index.equal(other.index):
            raise TagfillError("The two models look at images in different grids; train both at the same size.")
        grid = maps[0].shape[2:]
        labels = batch.labels.numpy(force=True)
        for kind, value in (("positive", POSITIVE), ("negative", NEGATIVE)):
            cells = [each[labels == value].reshape(-1, grid[0] * grid[1]) for each in maps]
            for model, each in enumerate(cells):
                low, high = extremes(each)
                ends.setdefault(("top", kind, model), []).append(high)
                ends.setdefault(("bottom", kind, model), []).append(low)
            if value == POSITIVE:
                control = rank_correlation(cells[0], centred_gaussian(*grid).reshape(1, -1))
                correlations.append((rank_correlation(cells[0], cells[1]), control))
    joined = [np.concatenate(each) for each in zip(*correlations, strict=True)]
    return Measured(joined[0], joined[1], {key: np.concatenate(parts) for key, parts in ends.items()})


def centred_gaussian(height: int, width: int, sigma: float = 0.25) -> NDArray[np.float64]:
    """A Gaussian at the middle of a grid, H×W, in coordinates relative to the image.

    Cells that are equally far from the centre have equal values, whatever their sums round to.
    """
    down = ((np.arange(height) + 0.5) / height - 0.5) ** 2
    across = ((np.arange(width) + 0.5) / width - 0.5) ** 2
    return np.exp(-np.round(down[:, None] + across, 12) / (2 * sigma**2))


def extremes(cells: NDArray[np.floating], share: float = SHARE) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Means of the lowest and of the highest cells of each map.

    Args:
        cells: n×m.
        share: of the cells, rounded, at least one.

    >>> extremes(np.array([[3.0, 1.0, 2.0]]))
    (array([1.]), array([3.]))
    """
    count = max(1, round(share * cells.shape[1]))
    ordered = np.sort(cells, axis=1).astype(np.float64)
    return ordered[:, :count].mean(axis=1), ordered[:, -count:].mean(axis=1)


def _maps(subject: Subject, split: str, index: NDArray[np.int64]) -> Iterator[tuple[Batch, Prediction]]:
    return subject.trained(maps=True).predict(split, index, maps=True)
