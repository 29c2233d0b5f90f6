"""Labels of map cells, from where people saw a label: point → cell, box and mask → the cells that they cover.

Places are in coordinates of the image, cells in those of the view; `Geometry` moves between the two. On a grid of H×W
cells, a point (u, v) of the view marks cell (min(⌊vH⌋, H−1), min(⌊uW⌋, W−1)). A box or a mask marks each cell of which
it covers more than nothing, or at least the share `min_cover`. Several places of a class are joined. The other cells
of a marked class are unknown. A class that is known to be absent is absent from all cells. A place outside the view
marks nothing: the image keeps its label, and its cells are unknown.

Only pairs of image and class with a known cell are listed, so the cost grows with annotations and not with classes.

PatchML: Patch Based Learning for Multi-label Image Classification.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from tagfill.contract import NEGATIVE, POSITIVE, UNKNOWN, Geometry, Marks
from tagfill.errors import TagfillError

_ROUNDING = 1e-5  # of a cell: a box that ends at an edge in single precision may reach over it by this much


@dataclass(frozen=True)
class PatchTargets:
    """Cell labels of the (image, class) pairs of a batch that have a known cell.

    Attributes:
        image: n, rows of the batch.
        label: n, classes.
        cells: n×H×W int8, 1 marked, 0 absent, -1 unknown.
    """

    image: Tensor
    label: Tensor
    cells: Tensor

    def dense(self, size: int, width: int) -> Tensor:
        """All cells at once, B×L×H×W int8; for small batches and few classes."""
        whole = torch.full((size, width, *self.cells.shape[1:]), UNKNOWN, dtype=torch.int8)
        whole[self.image.cpu(), self.label.cpu()] = self.cells.cpu()
        return whole


def patch_targets(
    marks: Marks, geometry: Geometry, labels: Tensor, grid: tuple[int, int], *, min_cover: float = 0.0
) -> PatchTargets:
    """The cell labels of a batch of views.

    Args:
        marks: where labels were seen, of B images.
        geometry: of one view of each.
        labels: B×L, 1 present, 0 absent, -1 unknown; a place of a class that is not present does not count.
        grid: H, W.
        min_cover: share of a cell that a box or mask must cover to mark it; 0 for any part of it.

    Example:
        >>> marks = Marks(np.array([0]), np.array([1]), np.array([[0.9, 0.2, 0.0, 0.0]]), (None,))
        >>> patch_targets(marks, Geometry.whole(1), torch.tensor([[-1, 1]]), (2, 2)).cells.tolist()
        [[[-1, 1], [-1, -1]]]
    """
    if not geometry.exact.all():
        raise TagfillError(
            "Points and boxes can be followed only into views that are exact crops and flips; drop strong augmentation."
        )
    state = labels.cpu()
    image, label, cells = _marked(marks, geometry, state.numpy(), grid, min_cover)
    absent_image, absent_label = torch.nonzero(state == NEGATIVE, as_tuple=True)
    absent = torch.full((len(absent_image), *grid), NEGATIVE, dtype=torch.int8)
    return PatchTargets(
        torch.cat([torch.from_numpy(image), absent_image]).to(labels.device),
        torch.cat([torch.from_numpy(label), absent_label]).to(labels.device),
        torch.cat([torch.from_numpy(cells), absent]).to(labels.device),
    )


def _marked(
    marks: Marks, geometry: Geometry, labels: NDArray[np.integer], grid: tuple[int, int], min_cover: float
) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int8]]:
    """Image, class and cells of the pairs that are marked in the view."""
    use = np.flatnonzero(labels[marks.image, marks.label] == POSITIVE)
    found = marked_cells(marks, use, geometry, grid, min_cover)
    seen = found.any((1, 2))
    use, found = use[seen], found[seen]
    pairs, pair = np.unique(marks.image[use] * labels.shape[1] + marks.label[use], return_inverse=True)
    cells = np.full((len(pairs), *grid), UNKNOWN, dtype=np.int8)
    mark, row, column = np.nonzero(found)
    cells[pair[mark], row, column] = POSITIVE
    return pairs // labels.shape[1], pairs % labels.shape[1], cells


def marked_cells(
    marks: Marks, use: NDArray[np.int64], geometry: Geometry, grid: tuple[int, int], min_cover: float
) -> NDArray[np.bool_]:
    """The cells that each of the marks `use` takes in its view: n×H×W."""
    found = np.zeros((len(use), *grid), dtype=bool)
    is_mask = np.array([marks.masks[at] is not None for at in use.tolist()], dtype=bool)
    is_point = ~is_mask & (marks.box[use, 2:] == 0).all(1)
    points = np.flatnonzero(is_point)
    place = geometry.take(marks.image[use[points]]).to_view(marks.box[use[points], None, :2])[:, 0]
    inside = ((place >= 0) & (place <= 1)).all(1)
    cell = np.minimum(np.floor(place[inside] * grid[::-1]), np.array(grid[::-1]) - 1).astype(np.int64)
    found[points[inside], cell[:, 1], cell[:, 0]] = True
    boxes = np.flatnonzero(~is_mask & ~is_point)
    centre, half = marks.box[use[boxes], :2], marks.box[use[boxes], 2:] / 2
    corners = np.concatenate([centre - half, centre + half], axis=1)
    across, down = _overlaps(corners, geometry.take(marks.image[use[boxes]]), grid)
    found[boxes] = _enough(down[:, :, None] * across[:, None, :], min_cover)
    for at in np.flatnonzero(is_mask).tolist():
        strips = marks.strips(int(use[at]))
        here = geometry.take(np.full(len(strips), marks.image[use[at]]))
        across, down = _overlaps(strips, here, grid)
        found[at] = _enough(down.T @ across, min_cover)
    return found


def _overlaps(
    rectangles: NDArray[np.float64], geometry: Geometry, grid: tuple[int, int]
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """How much of each column (n×W) and of each row of cells (n×H) n rectangles of images take, 0…1."""
    corners = geometry.to_view(rectangles.reshape(-1, 2, 2))
    low, high = corners.min(1), corners.max(1)
    shares = []
    for axis, cells in ((0, grid[1]), (1, grid[0])):
        edges = np.arange(cells)
        start = np.maximum(low[:, axis, None] * cells, edges)
        shares.append(np.clip(np.minimum(high[:, axis, None] * cells, edges + 1) - start, 0, None))
    return shares[0], shares[1]


def _enough(cover: NDArray[np.float64], min_cover: float) -> NDArray[np.bool_]:
    enough: NDArray[np.bool_] = (cover > _ROUNDING) & (cover >= min_cover - _ROUNDING)
    return enough
