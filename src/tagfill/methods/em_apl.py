"""EM+APL: entropy maximization, and after a warm-up the least likely labels of each class become soft negatives.

    L_EM+APL = mean( 1[z=1] (−log f) − α 1[unlabeled] H(f) + β 1[labeled] (−s log f − (1−s) log(1−f)) )

    after each epoch t ≥ t_w, for each class i: the ⌊0.9 · U_i / (T − t_w)⌋ images that are still unlabeled and have
    the lowest f get the label s = f, which never changes again

U_i is the number of images whose label i is unknown at first, T the number of epochs and t_w the warm-up. After the
last epoch nine tenths of the unknown labels are soft negatives; none ever becomes positive, hence "asymmetric".

Zhou et al., Acknowledging the Unknown for Multi-label Learning with Single Positive Labels, ECCV 2022. Published, for
VOC, COCO, NUS-WIDE, CUB: α = 0.2, 0.1, 0.1, 0.01; β = 0.02, 0.9, 0.2, 0.4; t_w = 5, 5, 4, 3; T = 10; eps = 1e-5. The
defaults are those of COCO. Differences: scores come from the whole image, where the published code draws a training
view; they are compared and kept in half precision, and of equal scores the first images are taken.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from tagfill import losses
from tagfill.contract import Batch, Decisions, Prediction, Task, upload
from tagfill.errors import TagfillError
from tagfill.labels import NEGATIVE, UNKNOWN
from tagfill.methods.base import BaseMethod, training_scores

SHARE = 0.9  # of the unknown labels that are labeled in the end


class AsymmetricPseudoLabeling(BaseMethod):
    """Entropy maximization with soft negatives: epoch by epoch the least likely labels become nearly absent.

    Args:
        alpha: α, the weight of the entropy.
        beta: β, the weight of a soft negative.
        warmup: t_w, epochs before the first soft negatives; None is half of the stage, 5 of 10 epochs.
        use_negatives: penalize explicit negatives instead of maximizing their entropy.
        eps: added to probabilities inside logarithms.
    """

    needs = frozenset({"memory"})
    paper = "Zhou et al., ECCV 2022"

    def __init__(
        self,
        *,
        alpha: float = 0.1,
        beta: float = 0.9,
        warmup: int | None = None,
        use_negatives: bool = True,
        eps: float = 0.0,
    ) -> None:
        self._options: dict[str, Any] = {
            "alpha": alpha,
            "soft_weight": beta,
            "use_negatives": use_negatives,
            "eps": eps,
        }
        self._warmup = warmup
        self._last: tuple[Tensor, Tensor] | None = None

    def first_epoch(self, epochs: int) -> int:
        """The epoch of the first soft negatives; before, it is EM."""
        return (max(epochs // 2, 1) if self._warmup is None else self._warmup) + 1

    def setup(self, task: Task) -> None:
        """Ask for the table of soft negatives, and compute how many each class gets after an epoch."""
        warmup = self.first_epoch(task.epochs) - 1
        if not 1 <= warmup < task.epochs:
            raise TagfillError(
                f"The method 'em-apl' makes soft negatives from the end of epoch {warmup} on, and the stage has "
                f"{task.epochs}; give it more epochs, or set options.em-apl.warmup to at least 1 and less than that."
            )
        self._task = task
        self._begin = warmup
        self._labels = task.memory.pseudo_labels()
        unknown = task.size - torch.from_numpy(task.labels.known)
        self._counts = (SHARE * unknown.double() / (task.epochs - warmup)).floor().long()

    def begin_epoch(self, epoch: int) -> None:
        """Label the least likely entries of each class, as after the previous epoch."""
        if epoch <= self._begin:
            return
        scores = training_scores(self._task)
        candidates = ~self._labels.given & self._unknown() & ~scores.isnan()
        left = self._task.ranks.sum(candidates.sum(0))
        floor = torch.finfo(torch.float16).tiny  # above zero, which marks entries that are not candidates
        unlikely = torch.where(candidates, (1 - scores.float()).half().clamp(min=floor), torch.zeros_like(scores))
        index = torch.from_numpy(self._task.shard)
        chosen = self._task.ranks.top_per_class(unlikely, index, torch.minimum(self._counts, left))
        self._labels.assign(chosen, scores)

    def loss(self, batch: Batch, prediction: Prediction) -> dict[str, Tensor]:
        """Positives, soft negatives, and the entropy of the rest."""
        soft = upload(self._labels.read(batch.index), prediction.logits.device)
        self._last = batch.index, soft >= 0
        return {
            "em-apl": losses.entropy_maximization(prediction.logits, batch.labels, soft_labels=soft, **self._options)
        }

    def decisions(self) -> Decisions | None:
        """The soft negatives of the last step."""
        return None if self._last is None else Decisions.of(*self._last, "pseudo-labelled", NEGATIVE)

    def _unknown(self) -> Tensor:
        """n×L, which labels of this rank's images are unknown."""
        images = self._task.shard
        unknown = torch.empty(len(images), len(self._task.classes), dtype=torch.bool)
        for start in range(0, len(images), 4096):
            part = slice(start, start + 4096)
            unknown[part] = torch.from_numpy(self._task.labels.rows(images[part]) == UNKNOWN)
        return unknown
