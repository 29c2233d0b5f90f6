"""FixMatch: pseudo-labels from a weak view of an image, learned from a strong view of it.

    L = w_supervised · mean of the cross-entropy of known labels, weak view  +  weight · L_u
    L_u: see `tagfill.losses.pseudo_labels`; the mean over the pseudo-labels of the batch

The supervised term is divided by the number of known labels, as L_u is by that of pseudo-labels, so that their balance
does not depend on how few labels are known. Added to another method, as in `patchml+fixmatch`, that one learns from the
known labels of the weak view, and `w_supervised` is 0 unless it is set. The ratio of labeled to unlabeled images is
the stage's `labeled_share`, one to one unless it is set.

Sohn et al., FixMatch: Simplifying Semi-Supervised Learning with Consistency and Confidence, NeurIPS 2020, for one label
per image. PatchML has a row "FixMatch", for which it cites Rizve et al., In Defense of Pseudo-Labeling, ICLR 2021, and
gives neither loss nor thresholds. The form for several labels here is ours: present or absent pseudo-labels by class,
with FixMatch's threshold of 0.95 and its mirror image, 0.05.
"""

from __future__ import annotations

from torch import Tensor

from tagfill import losses
from tagfill.contract import Batch, Decisions, Prediction
from tagfill.errors import TagfillError
from tagfill.labels import UNKNOWN
from tagfill.methods.base import BaseMethod, PseudoLabelScope, of_view, pseudo_label_decisions


class FixMatch(BaseMethod):
    """Consistency of confident predictions between a weak and a strong view.

    Args:
        positive: τ⁺, the least probability of a pseudo-positive.
        negative: τ⁻, the largest probability of a pseudo-negative.
        weight: λ_u, of the pseudo-labels.
        w_supervised: weight of the known labels; 0 by default in a sum, where the other method learns from them.
        scope: pseudo-label `unlabeled_images` only, or `all_unknown` labels.
    """

    learns_from_labels = "alone"
    paper = "Sohn et al., NeurIPS 2020"

    def __init__(
        self,
        *,
        positive: float = 0.95,
        negative: float = 0.05,
        weight: float = 1.0,
        w_supervised: float = 1.0,
        scope: PseudoLabelScope = "unlabeled_images",
    ) -> None:
        if not 0 <= negative < positive <= 1:
            raise TagfillError(
                f"The thresholds of fixmatch are positive={positive} and negative={negative}; both must be between "
                "0 and 1, and the negative one smaller."
            )
        self._all_unknown = scope == "all_unknown"
        self.needs = frozenset({"weak+strong"} if self._all_unknown else {"weak+strong", "unlabeled"})
        self._positive, self._negative = positive, negative
        self._weight, self._w_supervised = weight, w_supervised
        self._last: tuple[Tensor, Tensor] | None = None

    def loss(self, batch: Batch, prediction: Prediction) -> dict[str, Tensor]:
        """Known labels of the weak view, and pseudo-labels of the strong one."""
        seen, weak = of_view(batch, prediction, "weak")
        strong = of_view(batch, prediction, "strong")[1]
        labels = seen.labels
        pseudo = losses.pseudo_labels(weak.logits, labels, positive=self._positive, negative=self._negative)
        if not self._all_unknown:
            pseudo.masked_fill_((labels != UNKNOWN).any(1, keepdim=True), UNKNOWN)
        self._last = batch.index, pseudo
        terms = {"fixmatch": self._weight * losses.binary(strong.logits, pseudo, reduction="known")}
        if self._w_supervised:
            terms["supervised"] = self._w_supervised * losses.binary(weak.logits, labels, reduction="known")
        return terms

    def decisions(self) -> Decisions | None:
        """The pseudo-labels of the last step."""
        return None if self._last is None else pseudo_label_decisions(*self._last)
