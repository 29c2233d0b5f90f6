"""Stateless losses of (logits, labels, …), one family a file, for anybody's training loop.

Labels are B×L with 1 present, 0 absent, -1 unknown. Every loss takes `reduction` and `eps`, computes in float32
(float64 for float64 logits) whatever the dtype of the logits, and is finite for logits of ±1e4.
"""

from tagfill.losses.assume_negative import assume_negative, pairwise_rank
from tagfill.losses.asymmetric import asymmetric, hill
from tagfill.losses.base import Reduction, reduce
from tagfill.losses.binary import binary, ignore_unknown, weighted_known
from tagfill.losses.entropy_maximization import entropy_maximization
from tagfill.losses.expected_negative import consistency, expected_negative
from tagfill.losses.expected_positive import expected_positive, positive_count_penalty, role, role_half
from tagfill.losses.exposure import full_exposure, soft_exposure
from tagfill.losses.large_loss import assume_negative_except, large_loss, large_losses
from tagfill.losses.patch import patch, patch_entries, pseudo_labels
from tagfill.losses.selective import likeliest, selective
from tagfill.losses.splc import confident, splc

__all__ = [
    "Reduction",
    "assume_negative",
    "assume_negative_except",
    "asymmetric",
    "binary",
    "confident",
    "consistency",
    "entropy_maximization",
    "expected_negative",
    "expected_positive",
    "full_exposure",
    "hill",
    "ignore_unknown",
    "large_loss",
    "large_losses",
    "likeliest",
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
    "splc",
    "weighted_known",
]
