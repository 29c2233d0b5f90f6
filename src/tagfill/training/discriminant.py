"""Linear discriminants: heads behind a frozen backbone that are computed in seconds instead of trained.

    w_c ∝ (Σ + λ s I)⁻¹ (m_c − m),                     s = tr Σ / D

Σ and m are covariance and mean of the pooled features of all images, m_c is their mean over images that show class c.
The other images need no label: a tag that is missing at random takes one image away from m_c and changes nothing else,
while a loss would push its score down. λ keeps the many directions with little variance from deciding.

**lda** takes m_c over the images with a known tag (λ = 5), of images with a known label. Where absent labels were
annotated like present ones, m is the mean of the images without class c instead.

**lda-soft** is a second round on all images, each weighted by the probability t_ic that it shows class c (λ = 1):

    m_c = Σ_i t_ic x_i / Σ_i t_ic

Known labels are 1 or 0. The others come from `lda`, cross-fitted and boosted like the final model. If labels were
annotated present and absent alike, t is the calibrated score. If only tags are known, the calibrated score s is the
probability that a tag was given; q, the mean of s over the given tags, is the share of tags that were given, and

    t = (1 − q)/q · s/(1 − s),  at most 1

**lda-cells** looks closer (λ = 1). A tag is about a part of its image: m_c is the mean over the tenth of the cells of
each image with a known tag of c in which the class map of `lda` is highest, and m and Σ are those of all cells. Its
class maps are sharper than those of heads that learned from whole images.

Friedman, Regularized discriminant analysis, JASA 1989; Elkan and Noto, Learning classifiers from only positive and
unlabeled data, KDD 2008.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from tagfill.data import Source
from tagfill.dataset import Dataset
from tagfill.labels import NEGATIVE, POSITIVE, UNKNOWN, LabelMatrix
from tagfill.models import Classifier
from tagfill.models.classifier import create_head
from tagfill.probabilities import calibrate
from tagfill.rng import generator
from tagfill.training.evaluation import LoadedModel

LDA, LDA_SOFT, LDA_CELLS = "lda", "lda-soft", "lda-cells"
DISCRIMINANTS = (LDA, LDA_SOFT, LDA_CELLS)
SHRINKAGE = {LDA: 5.0, LDA_SOFT: 1.0, LDA_CELLS: 1.0}  # λ
_LEVEL = 2.0  # standard deviations of a class's logits that an image must be above the mean for a logit of 0
_LEAST_SHIFT = 1e-4  # of the mean of a class, in standard deviations of the features; less is rounding
_FOLDS = 3
_MOST_IMAGES, _MOST_PAIRS = 50_000, 200_000_000  # that are used; of more images, a sample
_CALIBRATION_PAIRS = 4_000_000  # that the scores are calibrated on
_BLOCK_ROWS = 4096
_CELL_SHARE = 0.1  # of the cells of an image that show its tag
_MOST_CELL_IMAGES, _MOST_CELLS = 20_000, 40_000  # images whose cells are used, and cells for their mean and covariance


@dataclass(frozen=True)
class Moments:
    """Sums over images from which covariances are computed; sums over parts of the images can be subtracted.

    Attributes:
        count: number of images.
        total: D, sum of their features.
        products: D×D, sum of the outer products of their features.

    >>> features = torch.tensor([[0.0], [2.0], [4.0]])
    >>> (Moments.of(features) - Moments.of(features[2:])).covariance
    tensor([[1.]], dtype=torch.float64)
    """

    count: int
    total: Tensor
    products: Tensor

    @classmethod
    def of(cls, features: Tensor) -> Moments:
        """Sums over n×D features."""
        width = features.shape[1]
        total, products = torch.zeros(width, dtype=torch.float64), torch.zeros(width, width, dtype=torch.float64)
        for start in range(0, len(features), _BLOCK_ROWS):
            wide = features[start : start + _BLOCK_ROWS].double()
            total += wide.sum(0)
            products.addmm_(wide.T, wide)
        return cls(len(features), total, products)

    def __sub__(self, other: Moments) -> Moments:
        return Moments(self.count - other.count, self.total - other.total, self.products - other.products)

    @property
    def mean(self) -> Tensor:
        """D."""
        return self.total / max(self.count, 1)

    @property
    def covariance(self) -> Tensor:
        """D×D."""
        return self.products / max(self.count, 1) - torch.outer(self.mean, self.mean)


def weighted_means(features: Tensor, weights: Callable[[slice], NDArray[np.floating]]) -> tuple[Tensor, Tensor]:
    """Mean features of each class, L×D, and the sum of its weights, L.

    Args:
        features: n×D.
        weights: returns the n×L weights of some rows.
    """
    width = weights(slice(0, 0)).shape[1]
    totals, sums = torch.zeros(width), torch.zeros(width, features.shape[1], dtype=torch.float64)
    for start in range(0, len(features), _BLOCK_ROWS):
        rows = slice(start, start + _BLOCK_ROWS)
        part = torch.from_numpy(weights(rows)).float()
        totals += part.sum(0)
        sums += part.T @ features[rows]
    return sums / totals.double().clamp(min=1e-12)[:, None], totals


def discriminant(moments: Moments, directions: Tensor, shrinkage: float) -> tuple[Tensor, Tensor]:
    """Weights L×D and biases L of the discriminants, whose logits have a standard deviation of 1 and a mean of -2.

    Args:
        moments: of the features.
        directions: L×D, mean of the images of each class minus that of the others. Zero except for rounding, as with
            the same weight for all images, gives weights of zero.
        shrinkage: λ.
    """
    covariance = moments.covariance
    moved = directions.norm(dim=1) > _LEAST_SHIFT * covariance.trace().sqrt()
    directions = torch.where(moved[:, None], directions, 0.0)
    scale = covariance.diagonal().mean().clamp(min=1e-12)
    shrunk = covariance + shrinkage * scale * torch.eye(len(covariance), dtype=torch.float64)
    weight = torch.cholesky_solve(directions.T, torch.linalg.cholesky(shrunk)).T
    deviation = ((weight @ covariance) * weight).sum(1).clamp(min=0).sqrt()
    weight = weight / torch.where(deviation > 0, deviation, torch.ones_like(deviation))[:, None]
    return weight.float(), (-(weight @ moments.mean) - _LEVEL).float()


def soft_targets(
    logits: NDArray[np.floating], labels: NDArray[np.integer], *, tags_only: bool
) -> Callable[[slice], NDArray[np.float32]]:
    """Probabilities that images show classes; returns a function of rows, because all of them may not fit into memory.

    Args:
        logits: N×L, of models that were not trained on these images.
        labels: N×L, 1 present, 0 absent, -1 unknown.
        tags_only: whether absent labels were not annotated, or only now and then.

    >>> logits, labels = np.array([[4.0], [3.0], [2.0], [-3.0]]), np.array([[1], [-1], [1], [-1]])
    >>> targets = soft_targets(logits, labels, tags_only=True)(slice(0, 4))
    >>> float(targets[0, 0]), bool(targets[1, 0] > targets[3, 0])
    (1.0, True)
    """
    drawn = generator(0, "soft targets").permutation(len(labels))[: max(1, _CALIBRATION_PAIRS // labels.shape[1])]
    known = labels[drawn]
    shown = np.where(known == POSITIVE, POSITIVE, NEGATIVE) if tags_only else known
    calibration = calibrate(logits[drawn], shown)
    given = calibration(logits[drawn])[known == POSITIVE]
    share = float(np.clip(given.mean(), 1e-6, 1 - 1e-6)) if len(given) else 0.5

    def targets(rows: slice) -> NDArray[np.float32]:
        score = calibration(logits[rows])
        if tags_only:
            score = np.minimum((1 - share) / share * score / np.maximum(1 - score, 1e-12), 1.0)
        found = np.where(labels[rows] == POSITIVE, 1.0, np.where(labels[rows] == NEGATIVE, 0.0, score))
        return found.astype(np.float32)

    return targets


def tags_only(labels: LabelMatrix) -> bool:
    """Whether labels were annotated only where they are present, apart from a few such as those of a review.

    >>> tags_only(LabelMatrix.from_dense(np.array([[1, -1, -1], [-1, 1, 0]])))
    True
    """
    return bool(2 * labels.negatives.sum() <= labels.positives.sum())


def fit_discriminants(
    names: Sequence[str],
    model: Classifier,
    dataset: Dataset,
    source_of: Callable[[Classifier], Source],
    *,
    boost: float,
    seed: int,
) -> list[Classifier]:
    """Compute discriminants from the training images.

    Args:
        names: of `DISCRIMINANTS`.
        model: with the backbone.
        dataset: the data.
        source_of: returns the features or images that a model needs.
        boost: of the final model, with which images are scored between the rounds.
        seed: of the folds.

    Returns:
        The model with a `cam` head for each name.
    """
    width = len(dataset.classes)
    plain = _with_head(model, torch.zeros(width, model.head.channels or 0), torch.zeros(width), 1.0)
    positions, features = _pooled_features(LoadedModel(plain, dataset, source_of(plain)), seed)
    matrix = dataset.labels("train")
    labels, only_tags = matrix.rows(positions), tags_only(matrix)
    annotated = np.flatnonzero((labels != UNKNOWN).any(1))

    def first_round(rows: NDArray[np.int64], moments: Moments) -> tuple[Tensor, Tensor]:
        part, known = features[torch.from_numpy(rows)], labels[rows]
        means, counts = weighted_means(part, lambda block: known[block] == POSITIVE)
        others = moments.mean.expand_as(means)
        if not only_tags:
            absent, absent_counts = weighted_means(part, lambda block: known[block] == NEGATIVE)
            others = torch.where(absent_counts[:, None] > 0, absent, others)
        return discriminant(moments, torch.where(counts[:, None] > 0, means - others, 0.0), SHRINKAGE[LDA])

    of_annotated = Moments.of(features[torch.from_numpy(annotated)])
    heads = {LDA: first_round(annotated, of_annotated)}
    if LDA_SOFT in names:
        logits = np.zeros(labels.shape, np.float32)
        folds = min(_FOLDS, len(annotated))
        order = generator(seed, "discriminant folds").permutation(len(labels))
        for fold in range(folds) if not matrix.complete() else ():
            held_out = np.sort(order[fold::folds])
            kept = np.setdiff1d(annotated, held_out)
            without = of_annotated - Moments.of(features[torch.from_numpy(np.intersect1d(annotated, held_out))])
            scorer = _with_head(model, *first_round(kept, without), boost)
            scored = LoadedModel(scorer, dataset, source_of(scorer)).predict("train", positions[held_out])
            logits[held_out] = np.concatenate([prediction.logits.numpy() for _, prediction in scored])
        targets = soft_targets(logits, labels, tags_only=only_tags)
        moments = Moments.of(features)
        means, _ = weighted_means(features, targets)
        shown = torch.from_numpy((labels == POSITIVE).any(0))  # without a tag, all targets of a class are alike
        directions = torch.where(shown[:, None], means - moments.mean, 0.0)
        heads[LDA_SOFT] = discriminant(moments, directions, SHRINKAGE[LDA_SOFT])
    if LDA_CELLS in names:
        scorer = _with_head(model, *heads[LDA], max(boost, 2.0))  # a head that boosts gets features of cells
        loaded = LoadedModel(scorer, dataset, source_of(scorer))
        drawn = np.sort(generator(seed, "discriminant cells").permutation(annotated)[:_MOST_CELL_IMAGES])
        means, counts, moments = _cell_statistics(loaded, positions[drawn], labels[drawn], *heads[LDA], seed=seed)
        directions = torch.where(counts[:, None] > 0, means - moments.mean, 0.0)
        heads[LDA_CELLS] = discriminant(moments, directions, SHRINKAGE[LDA_CELLS])
    return [_with_head(model, *heads[name], 1.0) for name in names]


def _pooled_features(loaded: LoadedModel, seed: int) -> tuple[NDArray[np.int64], Tensor]:
    """Positions in the training split of the images that can be decoded, or of a sample, and their features, n×D."""
    size, width = len(loaded.dataset.split("train")), len(loaded.dataset.classes)
    most = max(1, min(_MOST_IMAGES, _MOST_PAIRS // width))
    drawn = np.sort(generator(seed, "discriminant sample").permutation(size)[:most])
    positions, found = [], []
    for batch, prediction in loaded.predict("train", drawn):
        assert prediction.features is not None
        features = prediction.features.float()
        positions.append(batch.index.numpy())
        found.append(features if features.ndim == 2 else features.mean((2, 3)))
    return np.concatenate(positions), torch.cat(found)


def _cell_statistics(
    loaded: LoadedModel,
    positions: NDArray[np.int64],
    labels: NDArray[np.integer],
    weight: Tensor,
    bias: Tensor,
    *,
    seed: int,
) -> tuple[Tensor, Tensor, Moments]:
    """Mean features of the cells that show each class, L×D; its number of tags, L; and the moments of all cells.

    Args:
        loaded: a model and features of cells.
        positions: of the images in the training split.
        labels: n×L, of these images.
        weight: L×D, of the class maps that choose the cells of a tag.
        bias: L.
        seed: of the sample of cells for the moments.
    """
    row_of = {int(position): row for row, position in enumerate(positions)}
    sums, counts = torch.zeros(weight.shape, dtype=torch.float64), torch.zeros(len(weight))
    sample = list[Tensor]()
    per_image = max(1, _MOST_CELLS // max(len(positions), 1))
    for batch, prediction in loaded.predict("train", positions):
        assert prediction.features is not None
        cells = prediction.features.float().flatten(2).transpose(1, 2)
        for image, position in zip(cells, batch.index.tolist(), strict=True):
            sample.append(image[_some_cells(len(image), per_image, seed, position)])
            for c in np.flatnonzero(labels[row_of[position]] == POSITIVE):
                scores = image @ weight[c] + bias[c]
                shown = scores.topk(max(1, round(_CELL_SHARE * len(scores)))).indices
                sums[c] += image[shown].mean(0).double()
                counts[c] += 1
    return sums / counts.double().clamp(min=1)[:, None], counts, Moments.of(torch.cat(sample))


def _some_cells(cells: int, count: int, seed: int, position: int) -> Tensor:
    """Indices of some cells of an image."""
    return torch.from_numpy(generator(seed, "sampled cells", index=position).permutation(cells)[:count])


def _with_head(model: Classifier, weight: Tensor, bias: Tensor, boost: float) -> Classifier:
    """The backbone with a `cam` head that has these weights."""
    options = {"boost": boost, "boost_train": False} if boost != 1 else {}
    head = create_head("cam", weight.shape[1], weight.shape[0], seed=0, **options)
    head.get_submodule("fc").load_state_dict({"weight": weight, "bias": bias})
    return Classifier(model.backbone, head, "cam", model.classes).eval()
