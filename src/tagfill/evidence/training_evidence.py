"""Evidence for training: what methods ask about the images of the training split."""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from tagfill.dataset import Dataset
from tagfill.errors import TagfillError
from tagfill.evidence.debias import DebiasedScores, debias, to_log_odds
from tagfill.evidence.scores import Evidence, list_evidence, open_evidence
from tagfill.labels import LabelMatrix


@dataclass(frozen=True)
class TrainingEvidence:
    """Evidence of the training images; implements `tagfill.contract.TaggerEvidence`.

    Attributes:
        pieces: each of them, with the scores of the training images in their order.
        labels: known labels of the training images.
        expected: stated labels per image; None to estimate them.
    """

    pieces: tuple[Evidence, ...]
    labels: LabelMatrix
    expected: float | None = None

    @classmethod
    def open(
        cls, dataset: Dataset, names: Sequence[str] | None = None, expected: float | None = None
    ) -> TrainingEvidence:
        """Read evidence of a dataset.

        Args:
            dataset: with a training split.
            names: of the evidence; None is all.
            expected: stated labels per image.

        Raises:
            TagfillError: if there is none.
        """
        wanted = list_evidence(dataset) if names is None else list(names)
        if not wanted:
            raise TagfillError(
                f"The dataset {dataset.name} has no evidence to learn from; import some with 'tagfill evidence import "
                f"SCORES {dataset.folder} --name NAME', or choose another method."
            )
        rows = dataset.split("train")
        found = (open_evidence(dataset, name) for name in wanted)
        pieces = tuple(replace(piece, scores=piece.scores.take(rows)) for piece in found)
        return cls(pieces, dataset.labels("train"), expected)

    @cached_property
    def debiased(self) -> DebiasedScores:
        """Probabilities of all pieces together."""
        return debias(self.pieces, self.labels, expected=self.expected)

    @property
    def trust(self) -> NDArray[np.float64]:
        """L: how well the evidence ranks the known tags of each class, from 0 (chance) to 1."""
        return self.debiased.trust

    @property
    def checksum(self) -> int:
        """Changes if a score does, so that a run is not resumed with other evidence."""
        found = 0
        for piece in self.pieces:
            for column in (piece.scores.starts, piece.scores.classes, piece.scores.values):
                found = zlib.crc32(column.tobytes(), found)
        return found

    def probabilities(self, index: NDArray[np.integer], labels: NDArray[np.integer]) -> NDArray[np.float32]:
        """B×L debiased probabilities, NaN where there is no evidence; see `DebiasedScores.probabilities`."""
        return self.debiased.probabilities(index, labels).astype(np.float32)

    def softmax(self, index: NDArray[np.integer], temperature: float) -> NDArray[np.float32]:
        """B×L raw scores as probabilities that sum to one over the scored classes of an image; NaN without a score.

        Cosines are divided by the temperature; other scales have their own. Several pieces of evidence are averaged.
        """
        found = []
        for piece in self.pieces:
            x = to_log_odds(piece.scores.rows(index), piece.scale) / (temperature if piece.scale == "cosines" else 1.0)
            top = np.max(x, axis=1, keepdims=True, initial=-1e30, where=~np.isnan(x))
            power = np.exp(x - top)
            found.append(power / np.maximum(np.nansum(power, axis=1, keepdims=True), 1e-30))
        count = sum((~np.isnan(p)).astype(np.float64) for p in found)
        total = sum(np.nan_to_num(p) for p in found)
        return np.where(count > 0, total / np.maximum(count, 1), np.nan).astype(np.float32)
