"""PatchML: learn from image labels and from the places where they were seen, with one pair of losses.

    L_image = Σ_P FL(f, γ₊) + Σ_N FL(1−f, γ₋) + Σ_U ω FL(1−f, γ_u)          f = σ(mean of S)
    L_patch = the same over the cells of S, see `tagfill.losses.patch`
    L       = w_image L_image + w_patch L_patch

One image may have a tag, another a point, another a box: each contributes what it has. Tags alone contribute to L_patch
only through classes that are known to be absent. Unknown labels and unknown cells are ignored, or all except the
likeliest are negatives (CSL-I and CSL-P).

Cell labels come from marks: a point labels one cell, a box or mask the cells that it covers. Marks are in coordinates
of the image, cells in those of the view; `Geometry` converts. On a grid of H×W cells, a point (u, v) of the view marks
cell (min(⌊vH⌋, H−1), min(⌊uW⌋, W−1)). A box or mask marks each cell that it covers at all, or of which it covers at
least the share `min_cover`. Several marks of a class are joined, and the other cells of a marked class are unknown. A
class that is known to be absent is absent from all cells. A mark outside the view marks nothing: the image keeps its
label, and its cells are unknown. Only pairs of image and class with a known cell are listed, so that the cost grows
with annotations and not with classes.

PatchML: Patch Based Learning for Multi-label Image Classification. The focus, the weights and k are not reported; the
defaults are a starting point. Eq. 1 and 3 are sums over the labeled images: an image without any known label
contributes nothing, also with CSL-I. With n labeled images in a batch, CSL-I ignores the k_image·n likeliest of their
unknowns. With `prior: stage` it also ignores the unknowns of frequent classes, as `csl` does: the prior of a class is
its mean probability under a helper, which an earlier stage trains with `p-asl`. Both levels are summed over classes and
averaged over all images of the batch, so that their weights can be compared.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from tagfill import losses
from tagfill.contract import Batch, Geometry, Marks, Prediction, Task, upload
from tagfill.errors import TagfillError
from tagfill.labels import NEGATIVE, POSITIVE, UNKNOWN
from tagfill.methods.base import BaseMethod, by_label_state, grid_of
from tagfill.methods.csl import estimated_prior, likely_positives

_ROUNDING = 1e-5  # of a cell: by this much a box that ends at an edge may cross it in single precision


class PatchML(BaseMethod):
    """Image and patch supervision.

    Args:
        image_unknown: `ignore` ignores unknown labels; `selective` (CSL-I) treats all of a labeled image except the
            likeliest as negative.
        patch_unknown: the same for the unmarked cells of a marked class (`selective` is CSL-P).
        w_image: weight of the image level.
        w_patch: weight of the patch level.
        image_gammas: γ of positives, negatives and unknowns, image level.
        patch_gammas: the same, patch level.
        patch_weights: weights of positive, negative and unknown cells.
        k_image: likeliest unknowns that CSL-I ignores, per labeled image on average.
        prior: `stage` lets CSL-I also ignore the unknowns of frequent classes, by the prior that an earlier stage
            with `p-asl` estimated; `none` ignores by likelihood alone.
        prior_threshold: η, the prior above which a class is frequent.
        k_patch: likeliest unknown cells that CSL-P ignores.
        patch_scope: `k_patch` counts for each `class` of an image, or on average over the `batch`.
        cells: `mean` or `sum` over the cells of a class.
        min_cover: share of a cell that a box or mask must cover to mark it; 0 for any part.
    """

    needs = frozenset({"maps", "marks"})
    paper = "PatchML: Patch Based Learning for Multi-label Image Classification"

    def __init__(
        self,
        *,
        image_unknown: Literal["ignore", "selective"] = "ignore",
        patch_unknown: Literal["ignore", "selective"] = "ignore",
        w_image: float = 1.0,
        w_patch: float = 1.0,
        image_gammas: Sequence[float] = (0.0, 1.0, 4.0),
        patch_gammas: Sequence[float] = (0.0, 1.0, 4.0),
        patch_weights: Sequence[float] = (1.0, 1.0, 1.0),
        k_image: int = 5,
        prior: Literal["none", "stage"] = "none",
        prior_threshold: float = 0.5,
        k_patch: int = 10,
        patch_scope: Literal["class", "batch"] = "class",
        cells: Literal["mean", "sum"] = "mean",
        min_cover: float = 0.0,
    ) -> None:
        if not 0 <= min_cover <= 1:
            raise TagfillError(f"min_cover is {min_cover}; give a share of a cell between 0 and 1.")
        if prior != "none" and image_unknown != "selective":
            raise TagfillError("The prior is used by CSL-I only; set options.patchml.image_unknown to selective too.")
        self._image_unknown, self._k_image = image_unknown, k_image
        self._prior, self._prior_threshold = prior, prior_threshold
        self._frequent: Tensor | None = None
        if prior == "stage":
            self.needs = self.needs | {"memory", "prior"}
        self._image_gammas = by_label_state("image_gammas", image_gammas)
        self._w_image, self._w_patch, self._min_cover = w_image, w_patch, min_cover
        self._patch: dict[str, Any] = {
            "gammas": by_label_state("patch_gammas", patch_gammas),
            "weights": by_label_state("patch_weights", patch_weights),
            "unknown": patch_unknown,
            "k": k_patch,
            "scope": patch_scope,
            "cells": cells,
        }

    def setup(self, task: Task) -> None:
        """Find the frequent classes; raise if the head has no class maps, or no stage estimated the prior."""
        grid_of("patchml", task)
        if self._prior == "stage":
            if not task.memory.prior().total_visits(task.ranks):
                raise TagfillError(
                    "The method 'patchml' has no prior: train a stage with p-asl before it and start with memory: "
                    "last, or set options.patchml.prior to none."
                )
            self._frequent = estimated_prior(task) > self._prior_threshold

    def loss(self, batch: Batch, prediction: Prediction) -> dict[str, Tensor]:
        """Both levels; a level with weight 0 is not computed."""
        terms = {}
        if self._w_image:
            terms["image"] = self._w_image * self.image_loss(prediction.logits, batch.labels)
        if self._w_patch:
            assert prediction.maps is not None
            terms["patch"] = self._w_patch * self.patch_loss(prediction.maps, self.targets(batch, prediction.maps))
        return terms or {"image": prediction.logits.sum() * 0}

    def targets(self, batch: Batch, maps: Tensor) -> PatchTargets:
        """The cell labels of a batch."""
        assert batch.marks is not None
        grid = (maps.shape[2], maps.shape[3])
        found = patch_targets(batch.marks, batch.geometry, batch.labels_on_host, grid, min_cover=self._min_cover)
        return found.to(maps.device)

    def image_loss(self, logits: Tensor, labels: Tensor) -> Tensor:
        """L_image, summed over classes, mean over images."""
        if self._image_unknown == "ignore":
            return losses.selective(logits, labels, gammas=self._image_gammas, mode="ignore", reduction="batchmean")
        unknown = labels == UNKNOWN
        labeled = ~unknown.all(1, keepdim=True)
        places = self._k_image * labeled.sum()
        ignored = ~labeled | likely_positives(logits, unknown & labeled, places, self._frequent)
        return losses.selective(logits, labels, gammas=self._image_gammas, ignore=ignored, reduction="batchmean")

    def patch_loss(self, maps: Tensor, targets: PatchTargets) -> Tensor:
        """L_patch of the pairs that have known cells, mean over images."""
        entries = losses.patch_entries(maps[targets.image, targets.label], targets.cells, **self._patch)
        return entries.sum() / max(len(maps), 1)


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

    def to(self, device: torch.device) -> PatchTargets:
        """The same on a device."""
        return PatchTargets(*(upload(part, device) for part in (self.image, self.label, self.cells)))

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
        marks: of B images.
        geometry: of one view of each.
        labels: B×L on the host, 1 present, 0 absent, -1 unknown; a mark of a class that is not present does not count.
        grid: H, W.
        min_cover: share of a cell that a box or mask must cover to mark it; 0 for any part of it.

    Example:
        >>> marks = Marks(np.array([0]), np.array([1]), np.array([[0.9, 0.2, 0.0, 0.0]]), (None,))
        >>> patch_targets(marks, Geometry.whole(1), torch.tensor([[-1, 1]]), (2, 2)).cells.tolist()
        [[[-1, 1], [-1, -1]]]
    """
    if not geometry.exact.all():
        raise TagfillError(
            "Points and boxes can be mapped only into views that are exact crops and flips; remove strong augmentation."
        )
    image, label, cells = _marked(marks, geometry, labels.numpy(), grid, min_cover)
    absent_image, absent_label = torch.nonzero(labels == NEGATIVE, as_tuple=True)
    absent = torch.full((len(absent_image), *grid), NEGATIVE, dtype=torch.int8)
    return PatchTargets(
        torch.cat([torch.from_numpy(image), absent_image]),
        torch.cat([torch.from_numpy(label), absent_label]),
        torch.cat([torch.from_numpy(cells), absent]),
    )


def _marked(
    marks: Marks, geometry: Geometry, labels: NDArray[np.integer], grid: tuple[int, int], min_cover: float
) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int8]]:
    """Image, class and cells of the pairs with a mark in the view."""
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
    """The cells that each of the marks `use` labels in its view, n×H×W."""
    found = np.zeros((len(use), *grid), dtype=bool)
    is_mask = np.array([marks.masks[at] is not None for at in use.tolist()], dtype=bool)
    is_point = ~is_mask & (marks.box[use, 2:] == 0).all(1)
    points = np.flatnonzero(is_point)
    place = geometry.take(marks.image[use[points]]).to_view(marks.box[use[points], None, :2])[:, 0]
    inside = ((place >= 0) & (place <= 1)).all(1)
    cell = np.minimum(np.floor(place[inside] * grid[::-1]), np.array(grid[::-1]) - 1).astype(np.int64)
    found[points[inside], cell[:, 1], cell[:, 0]] = True
    boxes = np.flatnonzero(~is_mask & ~is_point)
    center, half = marks.box[use[boxes], :2], marks.box[use[boxes], 2:] / 2
    corners = np.concatenate([center - half, center + half], axis=1)
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
    """The share of each column (n×W) and of each row of cells (n×H) that n rectangles of images cover."""
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
