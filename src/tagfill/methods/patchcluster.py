"""PatchCluster: unlabeled images are pseudo-labeled by cells that look like the marked cells of a class.

    μ_c = mean feature of all marked cells of class c           (I+PC: mean pooled feature of images that show c)
    D_c(r) = 1 − cos(feature of cell r, μ_c)
    z̃_c = 1 if min_r D_c(r) ≤ d⁺,   0 if min_r D_c(r) > d⁻,   else unknown
    L_pl = w_image L_image(z̃) + w_patch L_patch(z̃), where L_patch marks the nearest cell     (w_patch = 0 by default)

A term to add to the method that learns from annotated labels: `patchml+patchcluster`. Prototypes and pseudo-labels are
made in evaluation passes at the start of the first epoch, with the network of that moment, and kept in memory. A later
stage that starts with that memory uses them unchanged, which is how one retrains from pretrained weights; `refresh`
makes them again every few epochs. A class without a marked cell has no prototype and no pseudo-label.

The distances that mean present and absent are chosen on images whose labels are known:

    d⁺  the largest distance up to which at least the share `precision` of the near labels is present
    d⁻  the smallest distance beyond which at most the share `missed` of the present labels lies; above d⁺

They are counted in steps of 0.001, so that memory does not depend on the number of images, and counts of several
processes add up.

PatchML: Patch Based Learning for Multi-label Image Classification. The published d⁺ of 0.30 to 0.35 is that of DeiT's
features, and d⁻ is not given: both are chosen on the validation split unless they are set. The paper marks all cells
within d⁺ at the patch level, and finds w_patch = 0 best; here it is the nearest one only.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from tagfill import losses
from tagfill.contract import Batch, Decisions, Marks, Prediction, Ranks, Task, upload
from tagfill.deprecation import warn_renamed
from tagfill.errors import TagfillError
from tagfill.labels import NEGATIVE, POSITIVE, UNKNOWN, LabelMatrix
from tagfill.memory.statistics import FAR, Prototypes
from tagfill.methods.base import BaseMethod, PseudoLabelScope, by_label_state, grid_of, pseudo_label_decisions
from tagfill.methods.patchml import patch_targets

Threshold = float | Literal["auto"]

_COUNTS = ("candidates", "positives", "negatives", "right positives", "right negatives", "judged", "true positives")
_TOO_MANY = 0.5  # share of pseudo-positives among all candidates above which distances cannot be right
_STEPS = 1000  # that a distance of 1 is counted in
_LARGEST = 2  # cosine distance


class PatchCluster(BaseMethod):
    """Pseudo-labels by the nearest class prototypes.

    Args:
        features: prototypes of marked cells (`patch`), or of whole images (`image`, I+PC).
        d_positive: d⁺, or `auto` to choose it on the validation split.
        d_negative: d⁻, or `auto`.
        precision: of pseudo-positives on validation that an automatic d⁺ requires.
        missed: share of the positives on validation that an automatic d⁻ may label as negatives.
        scope: pseudo-label `unlabeled_images` only, or `all_unknown` labels.
        w_image: weight of the pseudo-labels of images.
        w_patch: weight of the pseudo-labels of their nearest cells.
        gammas: γ of positives, negatives and unknowns.
        min_cover: share of a cell that a box or mask must cover to mark it.
        refresh: make pseudo-labels again after this many epochs; None makes them once.
        limit: pseudo-labels per image, at most: the nearest positives, then the farthest negatives.
        level: deprecated; `patch` sets `w_patch` to `w_image`.
        weight: deprecated name of `w_image`.
    """

    learns_from_labels = "never"
    paper = "PatchML: Patch Based Learning for Multi-label Image Classification"

    def __init__(
        self,
        *,
        features: Literal["patch", "image"] = "patch",
        d_positive: Threshold = "auto",
        d_negative: Threshold = "auto",
        precision: float = 0.9,
        missed: float = 0.02,
        scope: PseudoLabelScope = "unlabeled_images",
        w_image: float = 1.0,
        w_patch: float = 0.0,
        gammas: Sequence[float] = (0.0, 1.0, 4.0),
        min_cover: float = 0.0,
        refresh: int | None = None,
        limit: int = 100,
        level: Literal["image", "patch"] | None = None,
        weight: float | None = None,
    ) -> None:
        if weight is not None:
            warn_renamed("options.patchcluster.weight", "options.patchcluster.w_image")
            w_image = weight
        if level is not None:
            warn_renamed("options.patchcluster.level", "options.patchcluster.w_patch")
            w_patch = w_image if level == "patch" else 0.0
        if w_image < 0 or w_patch < 0:
            raise TagfillError(f"w_image is {w_image:g} and w_patch {w_patch:g} in patchcluster; give 0 or more.")
        given = [value for value in (d_positive, d_negative) if not isinstance(value, str)]
        if any(not 0 <= value <= 2 for value in given) or (len(given) == 2 and not given[0] < given[1]):
            raise TagfillError(
                f"d_positive is {d_positive} and d_negative {d_negative}; give distances in 0 to 2, the smaller first."
            )
        if refresh is not None and refresh < 1:
            raise TagfillError(f"refresh is {refresh}; give a number of epochs, or leave it out.")
        self.needs = frozenset({"memory", "maps", "marks"})
        self._features, self._w_image, self._w_patch = features, w_image, w_patch
        self._all_unknown = scope == "all_unknown"
        self._gammas = by_label_state("options.patchcluster.gammas", gammas)
        self._min_cover, self._refresh, self._limit = min_cover, refresh, limit
        self._d_positive = None if d_positive == "auto" else float(d_positive)
        self._d_negative = None if d_negative == "auto" else float(d_negative)
        self._precision, self._missed = precision, missed
        self._last: tuple[Tensor, Tensor] | None = None
        self.last_search: PseudoLabelSearch | None = None

    def setup(self, task: Task) -> None:
        """Ask for the list of pseudo-labels."""
        self._task, self._grid = task, grid_of("patchcluster", task)
        self._found_labels = task.memory.found_labels(limit=self._limit)

    def begin_epoch(self, epoch: int) -> None:
        """Make pseudo-labels if there are none yet, and every `refresh` epochs."""
        due = self._refresh is not None and epoch > 1 and (epoch - 1) % self._refresh == 0
        if not self._found_labels.made or due:
            self._search()

    def loss(self, batch: Batch, prediction: Prediction) -> dict[str, Tensor]:
        """The loss of the pseudo-labels of these images, mean over all images of the batch."""
        pseudo, cells = self._found_labels.read(batch.index)
        pseudo = pseudo.masked_fill(batch.labels_on_host != UNKNOWN, UNKNOWN)
        self._last = batch.index, pseudo
        labels = upload(pseudo, prediction.logits.device)
        loss = losses.selective(prediction.logits, labels, gammas=self._gammas, mode="ignore", reduction="batchmean")
        loss = self._w_image * loss
        if self._w_patch:
            assert prediction.maps is not None
            loss = loss + self._w_patch * self._patch_loss(prediction.maps, batch, pseudo, cells)
        return {"pseudo": loss}

    def decisions(self) -> Decisions | None:
        """The pseudo-labels of the last step."""
        return None if self._last is None else pseudo_label_decisions(*self._last)

    def _patch_loss(self, maps: Tensor, batch: Batch, pseudo: Tensor, cells: Tensor) -> Tensor:
        """The patch loss of nearest cells, each marked by a point in its center; `pseudo` and `cells` on the host."""
        image, label = np.nonzero(pseudo.numpy() == POSITIVE)
        row, column = np.divmod(cells.numpy()[image, label].astype(np.int64), self._grid[1])
        place = np.stack([(column + 0.5) / self._grid[1], (row + 0.5) / self._grid[0]], axis=1)
        points = Marks(image, label, np.concatenate([place, np.zeros_like(place)], axis=1), (None,) * len(image))
        targets = patch_targets(points, batch.geometry, pseudo, (maps.shape[2], maps.shape[3])).to(maps.device)
        entries = losses.patch_entries(maps[targets.image, targets.label], targets.cells, gammas=self._gammas)
        return entries.sum() / max(len(maps), 1)

    def _search(self) -> None:
        """Make prototypes, thresholds and pseudo-labels: two passes over the training images, one over validation."""
        prototypes = self._prototypes()
        thresholds = self._thresholds(prototypes)
        search = PseudoLabelSearch(self._truth(), thresholds, self._limit)
        for batch, prediction in self._task.predict("train"):
            distance, cell = prototypes.nearest(features_of(prediction, self._features))
            wanted = (batch.labels == UNKNOWN) & (distance < FAR)
            if not self._all_unknown:
                wanted &= ~(batch.labels != UNKNOWN).any(1, keepdim=True)
            search.add(batch.index, distance.masked_fill(~wanted, FAR), cell)
        search.share(self._task.ranks)
        self._found_labels.replace(*search.labels())
        self.last_search = search
        self._task.say(f"patchcluster: {search.summary()}")

    def _prototypes(self) -> Prototypes:
        prototypes: Prototypes | None = None
        for batch, prediction in self._task.predict("train"):
            features = features_of(prediction, self._features)
            prototypes = prototypes or Prototypes(len(self._task.classes), features.shape[1])
            if self._features == "image":
                image, label = torch.nonzero(batch.labels_on_host == POSITIVE, as_tuple=True)
                prototypes.add(features[image], label)
                continue
            assert batch.marks is not None
            grid = (features.shape[2], features.shape[3])
            targets = patch_targets(batch.marks, batch.geometry, batch.labels_on_host, grid, min_cover=self._min_cover)
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
                    "The method 'patchcluster' chooses its distances on the validation split, which has no known label "
                    "of a class with a prototype; set d_positive and d_negative."
                )
        return counts.choose(self._d_positive, self._d_negative, precision=self._precision, missed=self._missed)

    def _truth(self) -> LabelMatrix | None:
        """Complete labels for the report, if the dataset has them; nothing is learned from them."""
        try:
            return self._task.truth()
        except TagfillError:
            return None


def features_of(prediction: Prediction, level: str) -> Tensor:
    """B×D×H×W features of cells (`patch`), or B×D of whole images (`image`)."""
    features = prediction.features
    assert features is not None
    return features.mean((2, 3)) if level == "image" and features.ndim == 4 else features


class PseudoLabelSearch:
    """Pseudo-labels found so far, as a sparse list, and how many of them are right where the truth is known.

    Args:
        truth: complete labels to compare with; None if there are none.
        thresholds: the distances that mean present and absent.
        limit: labels per image, at most.
    """

    def __init__(self, truth: LabelMatrix | None, thresholds: Thresholds, limit: int) -> None:
        self._truth, self.thresholds, self._limit = truth, thresholds, limit
        self._parts: list[list[Tensor]] = [[torch.empty(0, dtype=torch.int64) for _ in range(4)]]
        self._counts = torch.zeros(len(_COUNTS), dtype=torch.int64)

    def add(self, index: Tensor, distance: Tensor, cell: Tensor) -> None:
        """Label some images by their distances and nearest cells, B×L; entries at `FAR` get no label."""
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
        """Collect the labels and counts of all processes."""
        columns = [torch.cat(column) for column in zip(*self._parts, strict=True)]
        self._parts = [[torch.cat(ranks.gather(column)) for column in columns]]
        self._counts = ranks.sum(self._counts)

    def labels(self) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int8], NDArray[np.int16]]:
        """Image, class, value and cell of each pseudo-label."""
        image, label, value, cell = (torch.cat(column).numpy() for column in zip(*self._parts, strict=True))
        return image, label, value.astype(np.int8), cell.astype(np.int16)

    def counts(self) -> dict[str, int]:
        """Labels of each kind; the last four are 0 without the truth."""
        return dict(zip(_COUNTS, self._counts.tolist(), strict=True))

    def summary(self) -> str:
        """One sentence: how many labels, by which distances, how good, and a warning if that cannot be right."""
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
            text += "; warning: no label is near enough to be present, set a larger d_positive or a lower precision"
        elif n["positives"] > _TOO_MANY * n["candidates"]:
            text += "; warning: more than half of the labels would be present, set a smaller d_positive"
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


@dataclass(frozen=True)
class Thresholds:
    """Distances, and their quality on the labels they were chosen on.

    Attributes:
        positive: d⁺; if it is negative, no label is near enough.
        negative: d⁻.
        precision: share of the labels within d⁺ that are present; NaN if there are none.
        recall: share of the present labels that lie within d⁺.
        missed: share of the present labels that lie beyond d⁻.
    """

    positive: float
    negative: float
    precision: float
    recall: float
    missed: float


class DistanceCounts:
    """Numbers of known present and absent labels at each distance."""

    def __init__(self) -> None:
        self._counts = torch.zeros(2, _LARGEST * _STEPS + 1, dtype=torch.int64)

    def add(self, distances: Tensor, labels: Tensor) -> None:
        """Count distances and labels, B×L; unknown labels and classes without a prototype do not count."""
        for value in (NEGATIVE, POSITIVE):
            chosen = distances[(labels == value) & (distances <= _LARGEST)].cpu()
            steps = (chosen.clamp(min=0).double() * _STEPS).ceil().long()
            self._counts[value] += torch.bincount(steps, minlength=self._counts.shape[1])

    def share(self, ranks: Ranks) -> None:
        """Sum over all processes."""
        self._counts = ranks.sum(self._counts)

    def __len__(self) -> int:
        """The number of known labels."""
        return int(self._counts.sum())

    def choose(self, positive: float | None, negative: float | None, *, precision: float, missed: float) -> Thresholds:
        """Choose the two distances; one that is given stays unchanged.

        Args:
            positive: d⁺, None to choose it.
            negative: d⁻, None to choose it.
            precision: required of the labels within d⁺.
            missed: the share of present labels that may lie beyond d⁻.
        """
        absent, present = (self._counts[value].cumsum(0).double() for value in (NEGATIVE, POSITIVE))
        near, everything = absent + present, present[-1].clamp(min=1)
        if positive is None:
            good = torch.nonzero((near > 0) & (present >= precision * near))
            tight = int(torch.searchsorted(near, near[int(good[-1])])) if len(good) else -1
            positive = tight / _STEPS
        if negative is None:
            beyond = (present[-1] - present) / everything
            first = int(torch.nonzero(beyond <= missed)[0])
            negative = max(first / _STEPS, positive + 1 / _STEPS)
        at, far = (min(max(round(value * _STEPS), -1), len(near) - 1) for value in (positive, negative))
        inside = (float(present[at]), float(near[at])) if at >= 0 else (0.0, 0.0)
        return Thresholds(
            positive,
            negative,
            inside[0] / inside[1] if inside[1] else float("nan"),
            inside[0] / float(everything),
            float((present[-1] - (present[far] if far >= 0 else 0)) / everything),
        )
