"""The baselines: methods that are a loss and nothing else, and the oracle of Cole et al.

| name | unknown labels are | loss |
|---|---|---|
| `bce`, `bce-ls` | not allowed | binary cross-entropy, the ceiling of every comparison; `-ls` with smoothed targets |
| `ignore` | ignored | the same over known labels |
| `wne` | ignored | the same; images with few known labels get more weight |
| `iun` | absent if they truly are, else ignored | the same over observed positives and all true negatives: an oracle |
| `fe` | absent (or present) | full exposure; positives get more weight |
| `an`, `an-ls`, `wan` | absent | assume negative, the floor; with smoothed targets; with weak negatives |
| `pr` | ranked below positives | pairwise ranking |
| `zlpr`, `two-way` | ignored, or absent | present classes score above absent ones, as groups |
| `asl`, `focal` | absent | easy entries are down-weighted |
| `hill` | absent; penalized less where the model is confident that they are present | Hill loss |
| `epr` | as many present as expected | expected positive regularization |
| `em` | undecided | entropy maximization |

The equations are with the functions of `tagfill.losses`. Reductions are those of the sources.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor

from tagfill import losses
from tagfill.contract import Batch, Prediction, Task, upload
from tagfill.errors import TagfillError
from tagfill.labels import NEGATIVE, POSITIVE, UNKNOWN
from tagfill.losses import Reduction
from tagfill.losses.group_ranking import UnknownAs
from tagfill.methods.base import BaseMethod, LossMethod, expected_positives

COLE = "Cole et al., CVPR 2021"


def bce() -> LossMethod:
    """Binary cross-entropy of complete labels, the ceiling of every comparison."""
    return LossMethod("bce", losses.binary, COLE, from_task=_only_complete("bce"))


def bce_ls(*, smoothing: float = 0.1) -> LossMethod:
    """Binary cross-entropy of complete labels with smoothed targets."""
    return LossMethod("bce-ls", losses.binary, COLE, from_task=_only_complete("bce-ls"), smoothing=smoothing)


def _only_complete(name: str) -> Callable[[Task], dict[str, Any]]:
    """Raise if labels are incomplete. "Cannot tell" counts as labeled."""

    def check(task: Task) -> dict[str, Any]:
        entries, looked_at = task.size * len(task.classes), len(task.labels.values)
        if looked_at < entries:
            raise TagfillError(
                f"The method '{name}' is for complete labels, and {entries - looked_at:,} of {entries:,} are unknown; "
                "use 'ignore' to learn from the known ones, or 'an' to treat unknown ones as absent."
            )
        return {}

    return check


def ignore(*, reduction: Reduction = "mean", eps: float = 0.0) -> LossMethod:
    """Unknown labels are ignored; without negatives it learns to predict every class everywhere."""
    return LossMethod("ignore", losses.ignore_unknown, "Durand et al., CVPR 2019", reduction=reduction, eps=eps)


def wne(*, reduction: Reduction = "mean", eps: float = 0.0) -> LossMethod:
    """Unknown labels are ignored, and images with few known labels get more weight."""
    return LossMethod("wne", losses.weighted_known, "Durand et al., CVPR 2019", reduction=reduction, eps=eps)


def fe(
    *,
    positive_weight: float = 5.0,
    unknown_as: Literal["absent", "present"] = "absent",
    reduction: Reduction = "batchmean",
) -> LossMethod:
    """Full exposure: unknown labels are absent (or present), and observed positives get more weight."""
    return LossMethod(
        "fe",
        losses.full_exposure,
        "Kundu and Tighe, NeurIPS 2020",
        positive_weight=positive_weight,
        unknown_as=unknown_as,
        reduction=reduction,
    )


def an(*, eps: float = 0.0) -> LossMethod:
    """Assume negative: every label that is not known to be present is absent."""
    return LossMethod("an", losses.assume_negative, COLE, eps=eps)


def an_ls(*, smoothing: float = 0.1, eps: float = 0.0) -> LossMethod:
    """Assume negative with smoothed targets."""
    return LossMethod("an-ls", losses.assume_negative, COLE, smoothing=smoothing, eps=eps)


def wan(*, negative_weight: float | None = None, eps: float = 0.0) -> LossMethod:
    """Assume negative with weak negatives, each weighing 1/(L−1) of a positive."""

    def weight(task: Task) -> dict[str, Any]:
        usual = 1 / max(len(task.classes) - 1, 1)
        return {"negative_weight": usual if negative_weight is None else negative_weight}

    return LossMethod("wan", losses.assume_negative, COLE, from_task=weight, eps=eps)


def pr() -> LossMethod:
    """Pairwise ranking: observed positives should score above all other classes."""
    return LossMethod("pr", losses.pairwise_rank, COLE)


def zlpr(*, unknown_as: UnknownAs = "ignored", reduction: Reduction = "batchmean") -> LossMethod:
    """Present classes of an image score above zero and above its absent ones."""
    return LossMethod("zlpr", losses.zlpr, "Su et al., arXiv 2208.02955", unknown_as=unknown_as, reduction=reduction)


def two_way(
    *, positive_temperature: float = 4.0, negative_temperature: float = 1.0, unknown_as: UnknownAs = "ignored"
) -> LossMethod:
    """Present classes score above absent ones in an image, and images with a class above those without."""
    temperatures: dict[str, Any] = {
        "positive_temperature": positive_temperature, "negative_temperature": negative_temperature,
    }  # fmt: skip
    return LossMethod("two-way", losses.two_way, "Kobayashi, CVPR 2023", unknown_as=unknown_as, **temperatures)


def asl(
    *,
    gamma_positive: float = 0.0,
    gamma_negative: float = 4.0,
    margin: float = 0.05,
    focal_gradient: bool = False,
    reduction: Reduction = "sum",
    scale: float = 1.0,
    eps: float = 0.0,
) -> LossMethod:
    """Asymmetric loss: unknown labels are absent, and easy negatives are down-weighted."""
    return LossMethod(
        "asl",
        losses.asymmetric,
        "Ridnik et al., ICCV 2021",
        scale=scale,
        gamma_positive=gamma_positive,
        gamma_negative=gamma_negative,
        margin=margin,
        focal_gradient=focal_gradient,
        reduction=reduction,
        eps=eps,
    )


def focal(*, gamma: float = 2.0, focal_gradient: bool = False, reduction: Reduction = "sum") -> LossMethod:
    """Focal loss: unknown labels are absent, and easy entries of both kinds are down-weighted."""
    return LossMethod(
        "focal",
        losses.asymmetric,
        "Lin et al., ICCV 2017",
        gamma_positive=gamma,
        gamma_negative=gamma,
        margin=0.0,
        focal_gradient=focal_gradient,
        reduction=reduction,
    )


def hill(*, peak: float = 1.5, margin: float = 1.0, gamma: float = 2.0, reduction: Reduction = "sum") -> LossMethod:
    """Hill loss: unknown labels are absent, with a small penalty where the model is confident that they are not."""
    where = "Zhang et al., arXiv:2112.07368"
    return LossMethod("hill", losses.hill, where, peak=peak, margin=margin, gamma=gamma, reduction=reduction)


def epr(
    *,
    expected: float | None = None,
    weight: float = 1.0,
    positive_term: Literal["mean", "batchmean"] = "mean",
    eps: float = 0.0,
) -> LossMethod:
    """Expected positive regularization: learn from positives, and predict as many as are expected."""

    def options(task: Task) -> dict[str, Any]:
        scale = len(task.classes) if positive_term == "batchmean" else 1.0
        return {"expected": expected_positives("epr", expected, task), "positive_weight": scale}

    needs = frozenset({"expected_positives"})
    return LossMethod("epr", losses.expected_positive, COLE, from_task=options, needs=needs, weight=weight, eps=eps)


def em(*, alpha: float = 0.1, use_negatives: bool = True, eps: float = 0.0) -> LossMethod:
    """Entropy maximization: unknown labels should stay undecided."""
    where = "Zhou et al., ECCV 2022"
    return LossMethod("em", losses.entropy_maximization, where, alpha=alpha, use_negatives=use_negatives, eps=eps)


class OracleNegatives(BaseMethod):
    """IUN, an oracle: observed positives, and all true negatives of a simulated dataset.

        L = mean( 1[z=1] ℓ⁺ + 1[y=0] ℓ⁻ )                y: the complete labels, which are not available in practice

    It shows how much of the damage of partial labels comes from missing negatives. Unobserved positives are ignored.
    Only a simulated dataset has complete labels.

    Cole et al., Multi-Label Learning from Single Positive Labels, CVPR 2021. Their released code tests for y = −1,
    which a matrix of 0 and 1 never holds, so that its negative term is always zero; here it is not.

    Args:
        eps: added to probabilities inside logarithms.
    """

    needs = frozenset({"truth"})
    paper = COLE

    def __init__(self, *, eps: float = 0.0) -> None:
        self._eps = eps

    def setup(self, task: Task) -> None:
        """Open the complete labels; raises if there are none."""
        self._truth = task.truth()

    def loss(self, batch: Batch, prediction: Prediction) -> dict[str, Tensor]:
        """Binary cross-entropy of observed positives and true negatives."""
        truth = self._truth.rows(batch.index.cpu().numpy())
        absent = torch.from_numpy(np.where(truth == NEGATIVE, NEGATIVE, UNKNOWN)).to(batch.labels.dtype)
        absent = upload(absent, batch.labels.device)
        labels = torch.where(batch.labels == POSITIVE, batch.labels, absent)
        return {"iun": losses.binary(prediction.logits, labels, eps=self._eps)}


BASELINES: dict[str, Callable[..., BaseMethod]] = {
    "bce": bce,
    "bce-ls": bce_ls,
    "ignore": ignore,
    "wne": wne,
    "fe": fe,
    "an": an,
    "an-ls": an_ls,
    "wan": wan,
    "pr": pr,
    "zlpr": zlpr,
    "two-way": two_way,
    "focal": focal,
    "asl": asl,
    "hill": hill,
    "epr": epr,
    "em": em,
    "iun": OracleNegatives,
}
