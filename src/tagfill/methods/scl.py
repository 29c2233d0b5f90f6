"""EN, and the consistency terms CL and SCL: three uses of what the network predicted for an image before.

**EN** ignores the most likely unannotated positives of each class and treats all other unknowns as negatives:

    p_i   = K · #{n : z_ni = 1}                     expected positives of class i in the training set
    s⁰    = 1[z=1],  sᵗ = μ sᵗ⁻¹ + (1−μ) fᵗ         running scores
    ẑ_·i  = 1 for the p_i images with the largest s_ni at the start of an epoch; in the first, ẑ = 1[z=1]
    L_EN  = mean( 1[z=1] ℓ⁺ + 1[ẑ=0] ℓ⁻ )
    L_EP  = mean( 1[z=1 or ẑ=1] ℓ⁺ + 1[ẑ=0] ℓ⁻ )   the ablation that treats ẑ as present

Choices where the paper is silent: an annotated positive that drops out of the best p_i is not penalized as a negative,
unless `literal`. p_i is rounded half up and at most the number of images. The loss while only the head is warmed up is
AN, during which scores are kept (`warmup`); the first epoch after it is AN too, unless `use_warmup_scores`.

**CL and SCL** ask that predictions agree with earlier ones of the same image, as a whole or cell by cell:

    L_CL  = mean | f − s |                   s: running scores of the image
    L_SCL = mean | F − cut(H) |              H: running heatmaps of the whole image, cut to the view's crop and flip

Targets are read before this visit changes them and have no gradient. Both are terms to add to a method that learns from
labels, as in `en+scl`; the weight γ is 0.1 or 1 in the paper, chosen on validation. The paper writes a norm; here it is
a mean over all entries, because a sum over thousands of cells would dominate the other term (`reduction`). With many
classes, SCL keeps heatmaps of a few classes per image, chosen by the running scores at the start of the first epoch
that has any: those of a warm-up stage, or else of the first epoch. Other classes have no term, and until then there is
no term at all.

Verelst et al., Spatial Consistency Loss for Training Multi-Label Classifiers from Single-Label Annotations, WACV 2023.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

import torch
from torch import Tensor

from tagfill import losses
from tagfill.contract import Batch, Decisions, Prediction, Task, upload
from tagfill.errors import TagfillError
from tagfill.labels import POSITIVE, UNKNOWN
from tagfill.losses.expected_negative import Distance
from tagfill.memory.heatmaps import Rounding
from tagfill.methods.base import BaseMethod, Scheduled, expected_positives, grid_of

ScalarReduction = Literal["mean", "sum", "batchmean", "known"]  # the reductions of losses to one number

_SCORES_AT_ONCE = 1 << 26  # ranked together


class ExpectedNegative(BaseMethod):
    """EN: likely positives among the unknown labels are ignored, all others are negative.

    Args:
        expected: K, positives per image; None uses the task's estimate.
        momentum: μ of the running scores.
        literal: penalize an annotated positive outside the best p_i, as printed.
        warmup: assume negatives in every epoch of this stage, and keep scores for the next one.
        use_warmup_scores: in the first epoch, choose by the scores of an earlier stage.
        classes_per_image: keep scores of this many classes per image; None keeps all.
    """

    name = "en"
    also_positive = False
    needs = frozenset({"memory", "expected_positives"})
    paper = "Verelst et al., WACV 2023"

    def __init__(
        self,
        *,
        expected: float | None = None,
        momentum: float = 0.8,
        literal: bool = False,
        warmup: bool = False,
        use_warmup_scores: bool = False,
        classes_per_image: int | None = None,
    ) -> None:
        self._expected = expected
        self._momentum = momentum
        self._literal = literal
        self._warmup, self._use_warmup_scores = warmup, use_warmup_scores
        self._classes_per_image = classes_per_image
        self._last: tuple[Tensor, Tensor] | None = None

    def setup(self, task: Task) -> None:
        """Compute the expected positives, and ask for scores and for the set of likely positives."""
        expected = expected_positives(self.name, self._expected, task)
        self._task = task
        observed = torch.from_numpy(task.labels.positives)
        self.counts = (observed.double() * expected + 0.5).floor().long().clamp(max=task.size)
        most = int(torch.maximum(self.counts, observed).sum())
        self._scores = task.memory.scores(momentum=self._momentum, classes_per_image=self._classes_per_image)
        self._likely = task.memory.entries("expected_positives", most=most)

    def first_epoch(self, epochs: int) -> int:
        """The second, since the first is AN, unless the stage is a warm-up or continues one."""
        return 1 if self._warmup or self._use_warmup_scores else 2

    def begin_epoch(self, epoch: int) -> None:
        """Choose the likely positives by the scores, once there are any; before, as in AN, the observed positives."""
        carried = self._use_warmup_scores and self._scores.visited
        if self._warmup or not (epoch > 1 or carried):
            self._likely.replace_by_positives(self._task.labels)
            return
        self._likely.replace(self._choose_likely())

    def _choose_likely(self) -> Iterator[tuple[int, Tensor]]:
        """ẑ of this rank's images in blocks of classes: the first class of each block, and an n×c mask."""
        index, width = torch.from_numpy(self._task.shard), len(self.counts)
        step = max(1, _SCORES_AT_ONCE // max(self._task.size, 1))
        for start in range(0, width, step):
            values, kept = self._scores.columns(start, min(start + step, width))
            best = self._task.ranks.top_per_class(values, index, self.counts[start : start + step])
            yield start, best if kept is None else best & kept

    def loss(self, batch: Batch, prediction: Prediction) -> dict[str, Tensor]:
        """Positives, and negatives that are not likely positives."""
        likely = upload(self._likely.read(batch.index), prediction.logits.device)
        self._last = batch.index, likely & (batch.labels == UNKNOWN)
        value = losses.expected_negative(
            prediction.logits,
            batch.labels,
            likely,
            also_positive=self.also_positive,
            literal=self._literal,
        )
        return {self.name: value}

    def observe(self, batch: Batch, prediction: Prediction) -> None:
        """Update the running scores."""
        if self._task.memory.first_write("scores"):
            self._scores.update(batch.index, prediction.logits.sigmoid())

    def decisions(self) -> Decisions | None:
        """The likely positives of the last step: ignored, or treated as present."""
        if self._last is None:
            return None
        kind, value = ("pseudo-labelled", POSITIVE) if self.also_positive else ("ignored", UNKNOWN)
        return Decisions.of(*self._last, kind, value)


class ExpectedPositive(ExpectedNegative):
    """EP, the ablation of EN that treats likely positives as present; the options are those of `en`."""

    name = "ep"
    also_positive = True


class Consistency(BaseMethod):
    """CL: the probabilities of an image agree with its running scores.

    Args:
        weight: γ, the weight of the term; 0 only updates scores.
        momentum: μ of the running scores.
        distance: `l1`, `l2` or `jsd`.
        reduction: `mean` over all entries, or another of the losses' reductions.
        classes_per_image: keep scores of this many classes per image; None keeps all.
    """

    needs = frozenset({"memory"})
    learns_from_labels = "never"
    paper = "Verelst et al., WACV 2023"

    def __init__(
        self,
        *,
        weight: float = 0.1,
        momentum: float = 0.8,
        distance: Distance = "l1",
        reduction: ScalarReduction = "mean",
        classes_per_image: int | None = None,
    ) -> None:
        self._weight = weight
        self._momentum = momentum
        self._distance: Distance = distance
        self._reduction: ScalarReduction = reduction
        self._classes_per_image = classes_per_image

    def setup(self, task: Task) -> None:
        """Ask for the running scores, which `en` shares."""
        self._memory = task.memory
        self._scores = task.memory.scores(momentum=self._momentum, classes_per_image=self._classes_per_image)

    def loss(self, batch: Batch, prediction: Prediction) -> dict[str, Tensor]:
        """Distance of the predictions to the running scores."""
        target = upload(self._scores.read(batch.index), prediction.logits.device)
        value = losses.consistency(
            prediction.logits, batch.labels, target, distance=self._distance, reduction=self._reduction
        )
        return {"cl": self._weight * value}

    def observe(self, batch: Batch, prediction: Prediction) -> None:
        """Update the running scores."""
        if self._memory.first_write("scores"):
            self._scores.update(batch.index, prediction.logits.sigmoid())


class SpatialConsistency(Scheduled):
    """SCL: class maps agree with running heatmaps, across crops and flips.

    Args:
        weight: γ, the weight of the term; 0 only updates heatmaps.
        momentum: μ of the running heatmaps.
        distance: `l1`, `l2` or `jsd`.
        reduction: `mean` over all entries, or another of the losses' reductions.
        rounding: of heatmaps to 8 bits: `nearest`, or `stochastic`.
        classes_per_image: keep heatmaps of this many classes per image; None keeps all.
        scores_momentum: μ of the running scores that choose these classes; the same as for `en`.
        scores_per_image: keep those scores of this many classes per image; the same as for `en`.
    """

    needs = frozenset({"maps", "memory"})
    learns_from_labels = "never"
    paper = "Verelst et al., WACV 2023"

    def __init__(
        self,
        *,
        weight: float = 0.1,
        momentum: float = 0.8,
        distance: Distance = "l1",
        reduction: ScalarReduction = "mean",
        rounding: Rounding = "nearest",
        classes_per_image: int | None = None,
        scores_momentum: float = 0.8,
        scores_per_image: int | None = None,
    ) -> None:
        self._weight = weight
        self._momentum = momentum
        self._distance: Distance = distance
        self._reduction: ScalarReduction = reduction
        self._rounding: Rounding = rounding
        self._classes_per_image = classes_per_image
        self._scores_options = {"momentum": scores_momentum, "classes_per_image": scores_per_image}

    def setup(self, task: Task) -> None:
        """Ask for heatmaps with twice the resolution of the class maps, and for scores if they choose the classes."""
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
        """Choose the classes that are kept, once there are scores."""
        super().begin_epoch(epoch)
        if not self._heatmaps.chosen and self._scores is not None and self._scores.visited:
            self._heatmaps.choose(self._scores)

    def loss(self, batch: Batch, prediction: Prediction) -> dict[str, Tensor]:
        """Distance of the class maps to the part of the running heatmaps that the view shows."""
        if not batch.geometry.exact.all():
            raise TagfillError(
                "The method 'scl' needs views that are exact crops and flips; remove strong augmentation."
            )
        assert prediction.maps is not None
        if not self._heatmaps.chosen:
            return {"scl": 0.0 * prediction.maps.sum()}
        maps, labels = self._kept(batch, prediction.maps)
        target = upload(self._heatmaps.read(batch.index, batch.geometry, self._grid), maps.device)
        value = losses.consistency(maps, labels, target, distance=self._distance, reduction=self._reduction)
        return {"scl": self._weight * value}

    def observe(self, batch: Batch, prediction: Prediction) -> None:
        """Update the part of the heatmaps that the views show."""
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
        kept, cells = upload(kept, maps.device), maps.permute(0, 2, 3, 1)  # classes innermost, as in heatmaps
        chosen = cells.gather(3, kept[:, None, None, :].expand(-1, *cells.shape[1:3], -1))
        return chosen.permute(0, 3, 1, 2), batch.labels.gather(1, kept)
