"""Stateless losses of (logits, labels, …), one family a file, for anybody's training loop.

Labels are B×L with 1 present, 0 absent, -1 unknown. Every loss takes `reduction` and `eps`, computes in float32
(float64 for float64 logits) whatever the dtype of the logits, and is finite for logits of ±1e4.
"""

from tagfill.losses.assume_negative import assume_negative
from tagfill.losses.asymmetric import asymmetric
from tagfill.losses.binary import binary, ignore_unknown
from tagfill.losses.consistency import consistency
from tagfill.losses.entropy_maximization import entropy_maximization
from tagfill.losses.expected_negative import expected_negative
from tagfill.losses.expected_positive import expected_positive, positive_count_penalty
from tagfill.losses.fixmatch import pseudo_labels
from tagfill.losses.full_exposure import full_exposure
from tagfill.losses.hill import hill
from tagfill.losses.large_loss import assume_negative_except, large_loss, large_losses
from tagfill.losses.likeliest import likeliest
from tagfill.losses.pairwise_rank import pairwise_rank
from tagfill.losses.patch import patch, patch_entries
from tagfill.losses.reduction import Reduction, reduce
from tagfill.losses.role import role, role_half
from tagfill.losses.selective import selective
from tagfill.losses.soft_exposure import soft_exposure
from tagfill.losses.splc import confident, splc
from tagfill.losses.weighted_known import weighted_known

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
