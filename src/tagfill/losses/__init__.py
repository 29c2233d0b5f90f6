"""Losses of (logits, labels, …) without state, one family per file, for any training loop.

Labels are B×L with 1 present, 0 absent, -1 unknown. Every loss takes `reduction` and `eps`, computes in float32
(float64 for float64 logits) whatever the dtype of the logits, and is finite for logits of ±1e4.
"""

from tagfill.deprecation import renamed
from tagfill.losses.assume_negative import assume_negative, pairwise_rank
from tagfill.losses.asymmetric import asymmetric, hill
from tagfill.losses.base import Reduction, reduce
from tagfill.losses.binary import binary, ignore_unknown, weighted_known
from tagfill.losses.confidence import confident_unknowns, pseudo_labels, splc
from tagfill.losses.entropy_maximization import entropy_maximization
from tagfill.losses.expected_negative import consistency, expected_negative
from tagfill.losses.expected_positive import expected_positive, positive_count_penalty, role, role_half
from tagfill.losses.exposure import full_exposure, soft_exposure
from tagfill.losses.generalized_robust import generalized_robust
from tagfill.losses.group_ranking import two_way, zlpr
from tagfill.losses.large_loss import large_loss, large_loss_from_mask, large_loss_mask
from tagfill.losses.patch import patch, patch_entries
from tagfill.losses.selective import selective, top_k_mask
from tagfill.losses.soft_positive import soft_positive

__all__ = [
    "Reduction",
    "assume_negative",
    "asymmetric",
    "binary",
    "confident_unknowns",
    "consistency",
    "entropy_maximization",
    "expected_negative",
    "expected_positive",
    "full_exposure",
    "generalized_robust",
    "hill",
    "ignore_unknown",
    "large_loss",
    "large_loss_from_mask",
    "large_loss_mask",
    "pairwise_rank",
    "patch",
    "patch_entries",
    "positive_count_penalty",
    "pseudo_labels",
    "reduce",
    "role",
    "role_half",
    "selective",
    "soft_exposure",
    "soft_positive",
    "splc",
    "top_k_mask",
    "two_way",
    "weighted_known",
    "zlpr",
]

__getattr__ = renamed(
    __name__,
    {
        "assume_negative_except": "large_loss_from_mask",
        "confident": "confident_unknowns",
        "large_losses": "large_loss_mask",
        "likeliest": "top_k_mask",
    },
)
