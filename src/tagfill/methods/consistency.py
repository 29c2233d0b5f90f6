"""CL and SCL: predictions should agree with what the same image got before, as a whole or place by place.

    L_CL  = mean | f − s |                   s: running scores of the image
    L_SCL = mean | F − cut(H) |              H: running heatmaps of the whole image, cut to the view's crop and flip

Targets are read before this visit changes them and have no gradient. Both are terms to add to a method that learns
from labels, as in `en+scl`; the weight γ is 0.1 or 1 in the paper, chosen on validation. The paper writes a norm; here
it is a mean over all entries, because a sum over thousands of cells would drown the other term (`reduction`).

With many classes, SCL keeps heatmaps of a few classes an image, settled by the running scores at the start of the first
epoch that finds any: those of a warm-up stage, or else of the first epoch. Other classes have no term, and until then
there is none at all.

Verelst et al., Spatial Consistency Loss for Training Multi-Label Classifiers from Single-Label Annotations, WACV 2023.
"""

from __future__ import annotations

from typing import Literal, get_args

from torch import Tensor

from tagfill import losses
from tagfill.contract import Batch, Prediction, Task
from tagfill.errors import TagfillError, one_of
from tagfill.losses.consistency import Distance
from tagfill.memory.heatmaps import Rounding
from tagfill.methods.class_maps import grid_of
from tagfill.methods.scheduled import Scheduled
from tagfill.methods.stateless import Stateless

Reduction = Literal["mean", "sum", "batchmean", "known"]  # of the losses', those that give one number


class Consistency(Stateless):
    """Consistency of image scores.

    Args:
        weight: γ, the weight of the term; 0 only keeps scores.
        momentum: μ of the running scores.
        distance: `l1`, `l2` or `jsd`.
        reduction: `mean` over all entries, or another of the losses' reductions.
        classes_per_image: keep the scores of so many classes an image; None keeps all.
    """

    needs = frozenset({"memory"})
    paper = "Verelst et al., WACV 2023"

    def __init__(
        self,
        *,
        weight: float = 0.1,
        momentum: float = 0.8,
        distance: Distance = "l1",
        reduction: Reduction = "mean",
        classes_per_image: int | None = None,
    ) -> None:
        _check("cl", distance, reduction)
        self._weight = weight
        self._momentum = momentum
        self._distance: Distance = distance
        self._reduction: Reduction = reduction
        self._classes_per_image = classes_per_image

    def setup(self, task: Task) -> None:
        """Ask for the running scores, which `en` shares."""
        self._memory = task.memory
        self._scores = task.memory.scores(momentum=self._momentum, classes_per_image=self._classes_per_image)

    def loss(self, batch: Batch, prediction: Prediction) -> dict[str, Tensor]:
        """Distance of the predictions to the running scores."""
        target = self._scores.read(batch.index).to(prediction.logits.device)
        value = losses.consistency(
            prediction.logits, batch.labels, target, distance=self._distance, reduction=self._reduction
        )
        return {"cl": self._weight * value}

    def observe(self, batch: Batch, prediction: Prediction) -> None:
        """Update the running scores."""
        if self._memory.first_write("scores"):
            self._scores.update(batch.index, prediction.logits.sigmoid())


class SpatialConsistency(Scheduled):
    """Consistency of class maps across crops and flips.

    Args:
        weight: γ, the weight of the term; 0 only keeps heatmaps.
        momentum: μ of the running heatmaps.
        distance: `l1`, `l2` or `jsd`.
        reduction: `mean` over all entries, or another of the losses' reductions.
        rounding: of heatmaps to 8 bits: `nearest`, or `stochastic`.
        classes_per_image: keep heatmaps of so many classes an image; None keeps all.
        scores_momentum: μ of the running scores that `classes_per_image` is settled by, as of `en`.
        scores_per_image: of how many classes those scores are kept, as of `en`.
    """

    needs = frozenset({"maps", "memory"})
    paper = "Verelst et al., WACV 2023"

    def __init__(
        self,
        *,
        weight: float = 0.1,
        momentum: float = 0.8,
        distance: Distance = "l1",
        reduction: Reduction = "mean",
        rounding: Rounding = "nearest",
        classes_per_image: int | None = None,
        scores_momentum: float = 0.8,
        scores_per_image: int | None = None,
    ) -> None:
        _check("scl", distance, reduction)
        one_of("The option rounding of the method 'scl'", rounding, get_args(Rounding))
        self._weight = weight
        self._momentum = momentum
        self._distance: Distance = distance
        self._reduction: Reduction = reduction
        self._rounding: Rounding = rounding
        self._classes_per_image = classes_per_image
        self._scores_options = {"momentum": scores_momentum, "classes_per_image": scores_per_image}

    def setup(self, task: Task) -> None:
        """Ask for heatmaps of twice the resolution of the class maps, and for scores if they decide about classes."""
        self._memory, self._grid = task.memory, grid_of("scl", task)
        self._heatmaps = task.memory.heatmaps(
            momentum=self._momentum,
            size=2 * max(self._grid),
            classes_per_image=self._classes_per_image,
            rounding=self._rounding,
        )
        few = self._classes_per_image is not None
        self._scores = task.memory.scores(**self._scores_options) if few else None  # type: ignore[arg-type]

    def begin_epoch(self, epoch: int) -> None:
        """Settle the classes that are kept, once there are scores; the noise of rounding depends on the epoch."""
        super().begin_epoch(epoch)
        if not self._heatmaps.chosen and self._scores is not None and self._scores.visited:
            self._heatmaps.choose(self._scores)

    def loss(self, batch: Batch, prediction: Prediction) -> dict[str, Tensor]:
        """Distance of the class maps to what the view shows of the running heatmaps."""
        if not batch.geometry.exact.all():
            raise TagfillError("The method 'scl' needs views that are exact crops and flips; drop strong augmentation.")
        assert prediction.maps is not None
        if not self._heatmaps.chosen:
            return {"scl": 0.0 * prediction.maps.sum()}
        maps, labels = self._kept(batch, prediction.maps)
        target = self._heatmaps.read(batch.index, batch.geometry, self._grid).to(maps.device)
        value = losses.consistency(maps, labels, target, distance=self._distance, reduction=self._reduction)
        return {"scl": self._weight * value}

    def observe(self, batch: Batch, prediction: Prediction) -> None:
        """Update the part of the heatmaps that the views showed."""
        assert prediction.maps is not None
        if self._scores is not None and self._memory.first_write("scores"):
            self._scores.update(batch.index, prediction.logits.sigmoid())
        if self._heatmaps.chosen and self._memory.first_write("heatmaps"):
            maps, _ = self._kept(batch, prediction.maps)
            self._heatmaps.update(batch.index, batch.geometry, maps.sigmoid(), self._epoch)

    def _kept(self, batch: Batch, maps: Tensor) -> tuple[Tensor, Tensor]:
        """Maps and labels of the classes that have heatmaps."""
        kept = self._heatmaps.kept(batch.index)
        if kept is None:
            return maps, batch.labels
        kept, cells = kept.to(maps.device), maps.permute(0, 2, 3, 1)  # classes last, as heatmaps are
        chosen = cells.gather(3, kept[:, None, None, :].expand(-1, *cells.shape[1:3], -1))
        return chosen.permute(0, 3, 1, 2), batch.labels.gather(1, kept)


def _check(name: str, distance: str, reduction: str) -> None:
    one_of(f"The option distance of the method '{name}'", distance, get_args(Distance))
    one_of(f"The option reduction of the method '{name}'", reduction, get_args(Reduction))
