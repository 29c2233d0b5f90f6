"""What a search for pseudo-labels found, and how good it is where the truth is known.

PatchCluster: unlabelled images are pseudo-labelled by cells that look like the marked cells of a class.

    μ_c = mean feature of all marked cells of class c           (I+PC: mean pooled feature of images that show c)
    D_c(r) = 1 − cos(feature of cell r, μ_c)
    z̃_c = 1 if min_r D_c(r) ≤ d⁺,   0 if min_r D_c(r) > d⁻,   else unknown
    L_pl = w L_image(z̃), and with `level: patch` also w L_patch of the nearest cell

A term to add to the method that learns from people's labels: `patchml+patchcluster`. Prototypes and pseudo-labels are
made in evaluation passes when its first epoch begins, with the network as it then is, and kept in memory; a later stage
that starts with that memory uses them as they are, which is how one retrains from pretrained weights. `refresh` makes
them anew every so many epochs. A class without a marked cell has no prototype and no pseudo-label.

PatchML: Patch Based Learning for Multi-label Image Classification. The published d⁺ of 0.30 to 0.35 is that of DeiT's
features, and d⁻ is not given: both are chosen on the validation split unless they are given. The paper marks all cells
within d⁺ at the patch level, and finds that this level does not help; here it is the nearest one alone.
"""

from __future__ import annotations

from typing import Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from tagfill import losses
from tagfill.contract import Batch, Decisions, Marks, Prediction, Ranks, Task
from tagfill.errors import TagfillError
from tagfill.labels import NEGATIVE, POSITIVE, UNKNOWN, LabelMatrix
from tagfill.memory.statistics import FAR, Prototypes
from tagfill.methods.base import Stateless, grid_of, pseudo_labelled
from tagfill.methods.evidence import DistanceCounts, Thresholds
from tagfill.methods.patchml import patch_targets

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


Distance = float | Literal["auto"]


class PatchCluster(Stateless):
    """Pseudo-labels by the nearest class prototypes.

    Args:
        features: prototypes of marked cells (`patch`), or of whole images (`image`, I+PC).
        d_positive: d⁺, or `auto` to choose it on the validation split.
        d_negative: d⁻, or `auto`.
        precision: of pseudo-positives on validation that an automatic d⁺ asks for.
        missed: share of validation's positives that an automatic d⁻ may give away as negatives.
        scope: pseudo-label `unlabelled_images` only, or `all_unknown` labels.
        level: learn from pseudo-labels of images (`image`), or also of their nearest cells (`patch`).
        weight: w, of the pseudo-labels.
        gammas: γ of positives, negatives and unknowns.
        min_cover: share of a cell that a box or mask must cover to mark it.
        refresh: epochs between two makings of pseudo-labels; None makes them once.
        limit: pseudo-labels an image at most: the nearest positives, then the farthest negatives.
    """

    paper = "PatchML: Patch Based Learning for Multi-label Image Classification"

    def __init__(
        self,
        *,
        features: Literal["patch", "image"] = "patch",
        d_positive: Distance = "auto",
        d_negative: Distance = "auto",
        precision: float = 0.9,
        missed: float = 0.02,
        scope: Literal["unlabelled_images", "all_unknown"] = "unlabelled_images",
        level: Literal["image", "patch"] = "image",
        weight: float = 1.0,
        gammas: tuple[float, float, float] = (0.0, 1.0, 4.0),
        min_cover: float = 0.0,
        refresh: int | None = None,
        limit: int = 100,
    ) -> None:
        given = [value for value in (d_positive, d_negative) if not isinstance(value, str)]
        if any(not 0 <= value <= 2 for value in given) or (len(given) == 2 and not given[0] < given[1]):
            raise TagfillError(
                f"d_positive is {d_positive} and d_negative {d_negative}; give distances in 0 to 2, the smaller first."
            )
        if refresh is not None and refresh < 1:
            raise TagfillError(f"refresh is {refresh}; give a number of epochs, or leave it out.")
        self.needs = frozenset({"memory", "maps", "marks"})
        self._features, self._scope, self._level, self._weight = features, scope, level, weight
        self._gammas, self._min_cover, self._refresh, self._limit = gammas, min_cover, refresh, limit
        self._d_positive = None if d_positive == "auto" else float(d_positive)
        self._d_negative = None if d_negative == "auto" else float(d_negative)
        self._precision, self._missed = precision, missed
        self._last: tuple[Tensor, Tensor] | None = None
        self.findings: Findings | None = None

    def setup(self, task: Task) -> None:
        """Ask for the list of pseudo-labels."""
        self._task, self._grid = task, grid_of("patchcluster", task)
        self._found = task.memory.found_labels(limit=self._limit)

    def begin_epoch(self, epoch: int) -> None:
        """Make pseudo-labels where there are none yet, and every `refresh` epochs."""
        due = self._refresh is not None and epoch > 1 and (epoch - 1) % self._refresh == 0
        if not self._found.made or due:
            self._look()

    def loss(self, batch: Batch, prediction: Prediction) -> dict[str, Tensor]:
        """The loss of the pseudo-labels of these images, mean over all images of the batch."""
        pseudo, cells = (part.to(batch.labels.device) for part in self._found.read(batch.index))
        pseudo = pseudo.masked_fill(batch.labels != UNKNOWN, UNKNOWN)
        self._last = batch.index, pseudo
        loss = losses.selective(prediction.logits, pseudo, gammas=self._gammas, mode="ignore", reduction="batchmean")
        if self._level == "patch":
            assert prediction.maps is not None
            loss = loss + self._patch_loss(prediction.maps, batch, pseudo, cells)
        return {"pseudo": self._weight * loss}

    def decisions(self) -> Decisions | None:
        """The pseudo-labels of the last step."""
        return None if self._last is None else pseudo_labelled(*self._last)

    def _patch_loss(self, maps: Tensor, batch: Batch, pseudo: Tensor, cells: Tensor) -> Tensor:
        """Nearest cells as if somebody had put a point into their middle."""
        image, label = (part.cpu().numpy() for part in torch.nonzero(pseudo == POSITIVE, as_tuple=True))
        row, column = np.divmod(cells.cpu().numpy()[image, label].astype(np.int64), self._grid[1])
        place = np.stack([(column + 0.5) / self._grid[1], (row + 0.5) / self._grid[0]], axis=1)
        points = Marks(image, label, np.concatenate([place, np.zeros_like(place)], axis=1), (None,) * len(image))
        targets = patch_targets(points, batch.geometry, pseudo, (maps.shape[2], maps.shape[3]))
        entries = losses.patch_entries(maps[targets.image, targets.label], targets.cells, gammas=self._gammas)
        return entries.sum() / max(len(maps), 1)

    def _look(self) -> None:
        """Prototypes, distances, pseudo-labels: two passes over the training images, one over validation."""
        prototypes = self._prototypes()
        thresholds = self._thresholds(prototypes)
        findings = Findings(self._truth(), thresholds, self._limit)
        for batch, prediction in self._task.predict("train"):
            distance, cell = prototypes.nearest(features_of(prediction, self._features))
            wanted = (batch.labels == UNKNOWN) & (distance < FAR)
            if self._scope == "unlabelled_images":
                wanted &= ~(batch.labels != UNKNOWN).any(1, keepdim=True)
            findings.add(batch.index, distance.masked_fill(~wanted, FAR), cell)
        findings.share(self._task.ranks)
        self._found.replace(*findings.labels())
        self.findings = findings
        self._task.say(f"patchcluster: {findings.told()}")

    def _prototypes(self) -> Prototypes:
        prototypes: Prototypes | None = None
        for batch, prediction in self._task.predict("train"):
            features = features_of(prediction, self._features)
            prototypes = prototypes or Prototypes(len(self._task.classes), features.shape[1])
            if self._features == "image":
                image, label = torch.nonzero(batch.labels == POSITIVE, as_tuple=True)
                prototypes.add(features[image], label)
                continue
            assert batch.marks is not None
            grid = (features.shape[2], features.shape[3])
            targets = patch_targets(batch.marks, batch.geometry, batch.labels, grid, min_cover=self._min_cover)
            pair, row, column = torch.nonzero(targets.cells == POSITIVE, as_tuple=True)
            prototypes.add(features[targets.image[pair], :, row, column], targets.label[pair])
        assert prototypes is not None
        prototypes.share(self._task.ranks)
        if not prototypes.known.any():
            raise TagfillError(
                "The method 'patchcluster' found nothing marked in the training images; give it points, boxes or masks."
            )
        return prototypes

    def _thresholds(self, prototypes: Prototypes) -> Thresholds:
        counts = DistanceCounts()
        if self._d_positive is None or self._d_negative is None:
            for batch, prediction in self._task.predict("val"):
                counts.add(prototypes.nearest(features_of(prediction, self._features))[0], batch.labels)
            counts.share(self._task.ranks)
            if not len(counts):
                raise TagfillError(
                    "Distances of patchcluster are chosen on the validation split, which has no known label of a class "
                    "with a prototype; set d_positive and d_negative."
                )
        return counts.choose(self._d_positive, self._d_negative, precision=self._precision, missed=self._missed)

    def _truth(self) -> LabelMatrix | None:
        """Complete labels to report by, where the dataset has them; nothing is learned from them."""
        try:
            return self._task.truth()
        except TagfillError:
            return None
