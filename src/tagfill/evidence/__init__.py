"""Outside evidence: what other taggers say about the images of a dataset, kept beside its labels and used as a prior.

import tagfill

tagfill.evidence.import_scores("clip.parquet", "photos", name="clip")
tagfill.evidence.evaluate_evidence("photos", "clip").mean  # mean average precision
tagfill.evidence.open_evidence(tagfill.Dataset.open("photos"), "clip")
"""

from __future__ import annotations

from tagfill.evidence.debias import DebiasedScores, class_trust, combine, debias, standardize
from tagfill.evidence.evaluation import EvidenceQuality, describe, evaluate_evidence
from tagfill.evidence.importing import ImportResult, find_scale, import_scores, read_class_map
from tagfill.evidence.scores import (
    SCALES,
    Evidence,
    ScoreMatrix,
    copy_evidence,
    evidence_path,
    list_evidence,
    open_evidence,
    read_description,
)

__all__ = [
    "SCALES",
    "DebiasedScores",
    "Evidence",
    "EvidenceQuality",
    "ImportResult",
    "ScoreMatrix",
    "class_trust",
    "combine",
    "copy_evidence",
    "debias",
    "describe",
    "evaluate_evidence",
    "evidence_path",
    "find_scale",
    "import_scores",
    "list_evidence",
    "open_evidence",
    "read_class_map",
    "read_description",
    "standardize",
]
