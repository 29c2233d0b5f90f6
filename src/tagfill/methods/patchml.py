"""PatchML: learn from tags, and from the places where they were seen, with one pair of losses.

    L_image = Σ_P FL(f, γ₊) + Σ_N FL(1−f, γ₋) + Σ_U ω FL(1−f, γ_u)          f = σ(mean of S)
    L_patch = the same over the cells of S, see `tagfill.losses.patch`
    L       = w_image L_image + w_patch L_patch

An image may have a tag, another a point, another a box: each contributes what it has, and tags alone leave L_patch to
the classes that are known to be absent. Unknown labels and unknown cells are left out, or all but the likeliest are
negatives (CSL-I and CSL-P).

PatchML: Patch Based Learning for Multi-label Image Classification. The focus, the weights and k are not reported; the
defaults are a place to start from. CSL-I is its likelihood part: the k_image·B likeliest unknowns of a batch are left
out. Both levels are summed over classes and averaged over images, so that their weights can be compared.
"""

from __future__ import annotations

from typing import Any

from torch import Tensor

from tagfill import losses
from tagfill.contract import UNKNOWN, Batch, Prediction, Task
from tagfill.errors import TagfillError, one_of
from tagfill.methods.class_maps import grid_of
from tagfill.methods.patch_targets import PatchTargets, patch_targets
from tagfill.methods.stateless import Stateless

_MODES = ("ignore", "selective")


class PatchML(Stateless):
    """Image and patch supervision.

    Args:
        image_unknown: unknown labels are left out (`ignore`), or negatives but for the likeliest (`selective`, CSL-I).
        patch_unknown: the same of the unmarked cells of a marked class (`selective` is CSL-P).
        w_image: weight of the image level.
        w_patch: weight of the patch level.
        image_gammas: γ of positives, negatives and unknowns, image level.
        patch_gammas: the same, patch level.
        patch_weights: weights of positive, negative and unknown cells.
        k_image: likeliest unknowns that CSL-I leaves out, an image on average.
        k_patch: likeliest unknown cells that CSL-P leaves out.
        patch_scope: of `k_patch`: each `class` of an image, or that many on average over the `batch`.
        cells: `mean` or `sum` over the cells of a class.
        min_cover: share of a cell that a box or mask must cover to mark it; 0 for any part.
    """

    needs = frozenset({"maps", "marks"})
    paper = "PatchML: Patch Based Learning for Multi-label Image Classification"

    def __init__(
        self,
        *,
        image_unknown: str = "ignore",
        patch_unknown: str = "ignore",
        w_image: float = 1.0,
        w_patch: float = 1.0,
        image_gammas: tuple[float, float, float] = (0.0, 1.0, 4.0),
        patch_gammas: tuple[float, float, float] = (0.0, 1.0, 4.0),
        patch_weights: tuple[float, float, float] = (1.0, 1.0, 1.0),
        k_image: int = 5,
        k_patch: int = 10,
        patch_scope: str = "class",
        cells: str = "mean",
        min_cover: float = 0.0,
    ) -> None:
        one_of("image_unknown", image_unknown, _MODES)
        one_of("patch_unknown", patch_unknown, _MODES)
        one_of("patch_scope", patch_scope, ("class", "batch"))
        one_of("cells", cells, ("mean", "sum"))
        for name, values in (
            ("image_gammas", image_gammas),
            ("patch_gammas", patch_gammas),
            ("patch_weights", patch_weights),
        ):
            if len(values) != 3:
                raise TagfillError(f"{name} is {values}; give three numbers: of positives, negatives and unknowns.")
        if not 0 <= min_cover <= 1:
            raise TagfillError(f"min_cover is {min_cover}; give a share of a cell between 0 and 1.")
        self._image_unknown, self._k_image, self._image_gammas = image_unknown, k_image, image_gammas
        self._w_image, self._w_patch, self._min_cover = w_image, w_patch, min_cover
        self._patch: dict[str, Any] = {
            "gammas": patch_gammas,
            "weights": patch_weights,
            "unknown": patch_unknown,
            "k": k_patch,
            "scope": patch_scope,
            "cells": cells,
        }

    def setup(self, task: Task) -> None:
        """Refuse a head without class maps."""
        grid_of("patchml", task)

    def loss(self, batch: Batch, prediction: Prediction) -> dict[str, Tensor]:
        """Both levels; a level of weight 0 is not computed."""
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
        return patch_targets(batch.marks, batch.geometry, batch.labels, grid, min_cover=self._min_cover)

    def image_loss(self, logits: Tensor, labels: Tensor) -> Tensor:
        """L_image, summed over classes, mean over images."""
        if self._image_unknown == "ignore":
            return losses.selective(logits, labels, gammas=self._image_gammas, mode="ignore", reduction="batchmean")
        unknown = (labels == UNKNOWN).flatten()
        spared = losses.likeliest(logits.flatten(), unknown, self._k_image * len(labels)).view_as(labels)
        return losses.selective(logits, labels, gammas=self._image_gammas, ignore=spared, reduction="batchmean")

    def patch_loss(self, maps: Tensor, targets: PatchTargets) -> Tensor:
        """L_patch, of the pairs that have known cells, mean over images."""
        entries = losses.patch_entries(maps[targets.image, targets.label], targets.cells, **self._patch)
        return entries.sum() / max(len(maps), 1)
