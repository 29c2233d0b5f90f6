"""What a search for pseudo-labels found, and how good it is where the truth is known."""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from tagfill.contract import NEGATIVE, POSITIVE, UNKNOWN, LabelMatrix, Prediction, Ranks
from tagfill.memory.prototypes import FAR
from tagfill.methods.distances import Thresholds

_COUNTS = ("candidates", "positives", "negatives", "right positives", "right negatives", "judged", "true positives")
_EVERYTHING = 0.5  # share of pseudo-positives among all candidates above which distances cannot be right


def features_of(prediction: Prediction, level: str) -> Tensor:
    """B×D×H×W features of cells (`patch`), or B×D of whole images (`image`)."""
    features = prediction.features
    assert features is not None
    return features.mean((2, 3)) if level == "image" and features.ndim == 4 else features


class Findings:
    """Pseudo-labels, added batch by batch, as a sparse list.

    Args:
        truth: complete labels to count by; None where nobody has them.
        thresholds: the distances that mean present and absent.
        limit: labels an image at most.
    """

    def __init__(self, truth: LabelMatrix | None, thresholds: Thresholds, limit: int) -> None:
        self._truth, self.thresholds, self._limit = truth, thresholds, limit
        self._parts: list[list[Tensor]] = [[torch.empty(0, dtype=torch.int64) for _ in range(4)]]
        self._counts = torch.zeros(len(_COUNTS), dtype=torch.int64)

    def add(self, index: Tensor, distance: Tensor, cell: Tensor) -> None:
        """Distances and nearest cells of some images, B×L; `FAR` for what is not to be labelled."""
        distance, cell, index = distance.cpu(), cell.cpu(), index.cpu()
        wanted = distance < FAR
        near, far = distance <= self.thresholds.positive, (distance > self.thresholds.negative) & wanted
        labels = torch.full(distance.shape, UNKNOWN, dtype=torch.int8)
        labels[far], labels[near & wanted] = NEGATIVE, POSITIVE
        rank = torch.where(labels == POSITIVE, distance - 2 * FAR, torch.where(far, -distance, FAR))
        within = torch.zeros_like(wanted).scatter_(1, rank.argsort(dim=1, stable=True)[:, : self._limit], True)
        labels.masked_fill_(~within, UNKNOWN)
        row, label = torch.nonzero(labels != UNKNOWN, as_tuple=True)
        self._parts.append([index[row], label, labels[row, label].long(), cell[row, label]])
        self._count(index, wanted, labels)

    def share(self, ranks: Ranks) -> None:
        """Bring together what all processes found."""
        columns = [torch.cat(column) for column in zip(*self._parts, strict=True)]
        self._parts = [[torch.cat(ranks.gather(column)) for column in columns]]
        self._counts = ranks.sum(self._counts)

    def labels(self) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int8], NDArray[np.int16]]:
        """Image, class, value and cell of each pseudo-label."""
        image, label, value, cell = (torch.cat(column).numpy() for column in zip(*self._parts, strict=True))
        return image, label, value.astype(np.int8), cell.astype(np.int16)

    def counts(self) -> dict[str, int]:
        """How many there are of each kind; those that need the truth count judged labels only."""
        return dict(zip(_COUNTS, self._counts.tolist(), strict=True))

    def told(self) -> str:
        """In words: how many, by which distances, how good, and a warning where that cannot be right."""
        n, d = self.counts(), self.thresholds
        text = (
            f"{n['positives']:,} pseudo-positives and {n['negatives']:,} pseudo-negatives among {n['candidates']:,} "
            f"unknown labels, by distances up to {d.positive:.3f} and beyond {d.negative:.3f}"
        )
        if not np.isnan(d.precision):
            text += f" (on validation: precision {d.precision:.3f}, recall {d.recall:.3f}, missed {d.missed:.3f})"
        if n["judged"]:
            text += (
                f"; against the truth: precision {_share(n['right positives'], n['positives'])}, "
                f"recall {_share(n['right positives'], n['true positives'])}, "
                f"negatives right {_share(n['right negatives'], n['negatives'])}"
            )
        if not n["positives"]:
            text += "; warning: nothing is near enough to be present, set a larger d_positive or a lower precision"
        elif n["positives"] > _EVERYTHING * n["candidates"]:
            text += "; warning: more than half of everything is called present, set a smaller d_positive"
        return text

    def _count(self, index: Tensor, wanted: Tensor, labels: Tensor) -> None:
        positive, negative = labels == POSITIVE, labels == NEGATIVE
        counts = [wanted.sum(), positive.sum(), negative.sum()]
        if self._truth is None:
            self._counts[:3] += torch.stack(counts)
            return
        true = torch.from_numpy(self._truth.rows(index.numpy()))
        judged = wanted & (true != UNKNOWN)
        counts += [(positive & (true == POSITIVE)).sum(), (negative & (true == NEGATIVE)).sum()]
        self._counts += torch.stack([*counts, judged.sum(), (judged & (true == POSITIVE)).sum()])


def _share(part: int, whole: int) -> str:
    return f"{part / whole:.3f}" if whole else "–"
