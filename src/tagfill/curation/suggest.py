"""Suggest which (image, label) pairs to check: labels that are probably missing, annotations that are probably wrong.

    value = H(p) · −log₂(share of images that show the class)

H is the entropy of the probability in bits: checking what is certain teaches nothing. The second factor is the
information of finding the class, so rare classes come first. Which annotations are probably wrong, and how many, is
decided by `label_errors.py`.
"""

from __future__ import annotations

import os
import tempfile
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from tagfill.curation.crossfit import TRAIN, ScoredImages, cross_fit
from tagfill.curation.estimates import EstimateSummary, LabelEstimates, summarize
from tagfill.curation.label_errors import LabelErrors, find_label_errors
from tagfill.curation.suggestions import MISSING, SCHEMA, WRONG, SuggestionQuality, Suggestions, measure
from tagfill.dataset import Dataset
from tagfill.dataset.description import FILE as DATASET_FILE
from tagfill.deprecation import renamed
from tagfill.errors import TagfillError, one_of
from tagfill.progress import NOTEBOOK, Progress

ORDERS = ("probability", "value")
_MOST_PAIRS = 10_000_000  # pairs whose annotations are judged together
_SPARE_PAIRS = 10_000  # beyond four times the limit, before the top is chosen


@dataclass(frozen=True)
class SuggestResult:
    """Suggestions and how they were made.

    Attributes:
        suggestions: likely missing labels first, then likely wrong annotations.
        folds: number of models trained for cross-validation; 0 if the run itself scored the images.
        calibration: mean expected calibration error before and after calibration; None without labels to measure it.
        measured: quality of the suggestions; None if the complete labels are unknown.
        estimates: how many labels are missing, and where the probabilities come from.
        label_errors: annotations that are probably wrong, before the limits `wrong` and `per_class`; its images are
            rows of the image table.
        weights: of the model and of each piece of evidence; empty if none was used.
    """

    suggestions: Suggestions
    folds: int
    calibration: tuple[float, float] | None
    measured: SuggestionQuality | None
    estimates: EstimateSummary
    label_errors: LabelErrors
    weights: Mapping[str, float] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        """Plain values for JSON."""
        kinds = self.suggestions.table["kind"].to_pylist()
        return {
            "suggestions": len(kinds),
            **{kind: kinds.count(kind) for kind in (MISSING, WRONG)},
            "folds": self.folds,
            "calibration_error": None
            if self.calibration is None
            else {"before": self.calibration[0], "after": self.calibration[1]},
            "estimates": self.estimates.to_json(),
            "measured": None if self.measured is None else self.measured.to_json(),
            "label_errors": self.label_errors.to_json(),
            "weights": dict(self.weights),
        }


def suggest(
    dataset: Dataset | str | os.PathLike[str],
    run: str | os.PathLike[str],
    *,
    split: str = TRAIN,
    folds: int | None = None,
    missing: int = 10_000,
    wrong: int = 1_000,
    per_class: int | None = None,
    minimum: float = 0.1,
    order: str = "probability",
    features: str | os.PathLike[str] | None = None,
    evidence: Sequence[str] | None = None,
    out: str | Path | None = None,
    jobs: int | None = None,
    workers: int = 0,
    device: str = "auto",
    seconds: float = 2.0,
    progress: Progress = NOTEBOOK,
) -> SuggestResult:
    """Suggest unknown labels that are probably present, and annotations that are probably wrong.

    Args:
        dataset: the dataset or its folder; its rows decide what is unknown.
        run: a run or its folder, or a model folder.
        split: split of the images.
        folds: number of models to train, so that no image is scored by a model that was trained on it; by default 5
            for the training split, and 0 (the run itself) for any other.
        missing: maximum number of unknown labels to suggest.
        wrong: maximum number of annotations to suggest for a check; fewer, or none, if there is no evidence.
        per_class: maximum number of suggestions per class, of each kind.
        minimum: leave out unknown labels below this probability.
        order: `probability` or `value` (see the module's description).
        features: a feature cache, or its folder, to use instead of images; by default, fold models use that of the run.
        evidence: names of evidence of other taggers to combine with the model (`tagfill.curation.combination`); by
            default all that the dataset has, and an empty list for none.
        out: folder for the fold models, which a second call reuses; by default they are deleted.
        jobs: number of processes that train; one per core by default.
        workers: number of threads that decode images.
        device: of the networks: `cpu`, `cuda`, `mps`, or `auto`.
        seconds: time that a reviewer needs per suggestion, for the number of labels found per hour.
        progress: shows the runs.

    Example:
        >>> from tagfill.curation.suggest import suggest
        >>> found = suggest("photos", "runs/photos-en")  # doctest: +SKIP
        >>> found.suggestions.save(Path("suggestions.parquet"))  # doctest: +SKIP
    """
    one_of("order", order, ORDERS)
    if is_dataset(run) and not is_dataset(dataset):
        warnings.warn(
            "suggest takes the dataset first and the run second; the old order will stop working in version 0.3.",
            DeprecationWarning,
            stacklevel=2,
        )
        dataset, run = run, dataset
    data = dataset if isinstance(dataset, Dataset) else Dataset.open(dataset)
    if folds is None:
        folds = 5 if split == TRAIN else 0
    if folds and split != TRAIN:
        raise TagfillError(f"--folds is for the training split; the run was not trained on '{split}', so leave it out.")
    top = TopPairs(missing, per_class, lambda pairs: pairs.value if order == "value" else pairs.probability)
    doubts, learned = Doubts(data), split == TRAIN and not folds
    errors: list[tuple[float, float]] = []
    estimates: list[LabelEstimates] = []
    weights: Mapping[str, float] = {}
    with tempfile.TemporaryDirectory() as temporary:
        scored = cross_fit(
            Path(run),
            data,
            split,
            folds=folds,
            out=Path(out or temporary),
            features=None if features is None else Path(features),
            jobs=jobs,
            workers=workers,
            device=device,
            evidence=evidence,
            progress=progress,
        )
        for images in scored:
            weights = images.weights
            estimates.append(images.estimates)
            if images.errors is not None and images.errors not in errors:
                errors.append(images.errors)
            top.add(_unknown_pairs(data, images, minimum))
            if not learned:
                doubts.add(images)
    doubted, label_errors = doubts.result(wrong, per_class)
    if learned:
        label_errors = LabelErrors.none("the run was trained on these annotations; --folds 5 can doubt them")
    table = pa.concat_tables([pair_table(data, MISSING, top.top()), pair_table(data, WRONG, doubted)])
    origin = {"run": str(Path(run).absolute()), "dataset": data.name, "split": split, "identities": data.identities}
    suggestions = Suggestions(table, origin)
    calibration = (
        None if not errors else (float(np.mean([e[0] for e in errors])), float(np.mean([e[1] for e in errors])))
    )
    quality = measure(suggestions, data, split, seconds)
    return SuggestResult(suggestions, folds, calibration, quality, summarize(estimates), label_errors, weights)


def describe_weights(weights: Mapping[str, float]) -> str:
    """How much the model and each piece of evidence count, as a sentence.

    >>> describe_weights({"model": 0.4, "clip": 0.6})
    'Weights learned from known labels: model 0.40, clip 0.60'
    """
    return "Weights learned from known labels: " + ", ".join(f"{name} {share:.2f}" for name, share in weights.items())


def is_dataset(source: Dataset | str | os.PathLike[str]) -> bool:
    """Whether this is a dataset or the folder of one; a run is neither."""
    return isinstance(source, Dataset) or (Path(source) / DATASET_FILE).is_file()


def _unknown_pairs(data: Dataset, images: ScoredImages, minimum: float) -> Pairs:
    """Pairs of some images that are not annotated and probably present."""
    labels = data.labels()
    known = labels.rows(images.rows)
    probability = images.estimates(images.logits, known)
    value = entropy(probability) * rarity(images.shares)
    missing = ~labels.is_annotated(images.rows) & (probability >= minimum)
    return Pairs.where(missing, images.rows, probability, value, known)


class Doubts:
    """Annotations of a stream of images that are probably wrong; blocks that fit into memory are judged one by one."""

    def __init__(self, data: Dataset) -> None:
        self._data = data
        self._images: list[ScoredImages] = []
        self._size = 0
        self._found: list[LabelErrors] = []
        self._pairs = Pairs.empty()

    def add(self, images: ScoredImages) -> None:
        """Take more images."""
        annotated = images.take(np.flatnonzero(self._data.labels().is_annotated(images.rows).any(1)))
        self._images.append(annotated)
        self._size += annotated.logits.size
        if self._size >= _MOST_PAIRS:
            self._judge()

    def result(self, limit: int, per_class: int | None) -> tuple[Pairs, LabelErrors]:
        """The most suspicious annotations in order, and all of them."""
        if self._images:
            self._judge()
        if not self._found:
            return Pairs.empty(), LabelErrors.none("nothing is annotated")
        errors = LabelErrors.merge(self._found)
        position = {pair: number for number, pair in enumerate(zip(self._pairs.row, self._pairs.label, strict=True))}
        kept = np.arange(len(errors)) if per_class is None else np.flatnonzero(first_per_group(errors.label, per_class))
        chosen = [position[errors.image[number], errors.label[number]] for number in kept[:limit]]
        return self._pairs.take(np.array(chosen, dtype=np.int64)), errors

    def _judge(self) -> None:
        labels = self._data.labels()
        rows = np.concatenate([images.rows for images in self._images])
        logits = np.concatenate([images.logits for images in self._images])
        errors = find_label_errors(logits, labels.rows(rows))
        starts = np.cumsum([0, *(len(images.rows) for images in self._images)])
        batch = np.searchsorted(starts, errors.image, "right") - 1
        for number in np.unique(batch):
            images = self._images[number]
            image, label = errors.image[batch == number] - starts[number], errors.label[batch == number]
            mask = np.zeros(images.logits.shape, dtype=bool)
            mask[image, label] = True
            probability = images.calibration(images.logits)  # independent of the annotation
            value = entropy(probability) * rarity(images.shares)
            pairs = Pairs.where(mask, images.rows, probability, value, labels.rows(images.rows))
            self._pairs = self._pairs.concatenate(pairs)
        self._found.append(replace(errors, image=rows[errors.image]))
        self._images, self._size = [], 0


def pair_table(data: Dataset, kind: str, pairs: Pairs) -> pa.Table:
    """Pairs as suggestions of a kind."""
    names = pa.array(data.classes, pa.string())
    columns = [
        data.images["image"].take(pa.array(pairs.row)),
        names.take(pa.array(pairs.label)),
        pa.array([kind] * len(pairs), pa.string()),
        pa.array(pairs.annotated == 1, pa.bool_(), mask=pairs.annotated < 0),
        pa.array(pairs.probability.astype(np.float32)),
        pa.array(pairs.value.astype(np.float32)),
    ]
    return pa.table(columns, schema=SCHEMA)


@dataclass
class Pairs:
    """Columns of (image, label) pairs.

    Attributes:
        row: row of the image table.
        label: index of the class.
        probability: that the image shows the class.
        value: expected value of checking the pair.
        annotated: current label: 1 present, 0 absent, -1 unknown.
    """

    row: NDArray[np.int64]
    label: NDArray[np.int64]
    probability: NDArray[np.float64]
    value: NDArray[np.float64]
    annotated: NDArray[np.int8]

    @classmethod
    def where(
        cls,
        mask: NDArray[np.bool_],
        rows: NDArray[np.int64],
        probability: NDArray[np.float64],
        value: NDArray[np.float64],
        annotated: NDArray[np.integer],
    ) -> Pairs:
        """Select pairs by a mask.

        Args:
            mask: n×L.
            rows: n rows of the image table.
            probability: n×L.
            value: n×L.
            annotated: n×L.
        """
        image, label = np.nonzero(mask)
        known = annotated[image, label].astype(np.int8)
        return cls(rows[image], label, probability[image, label], value[image, label], known)

    @classmethod
    def empty(cls) -> Pairs:
        """No pairs."""
        return cls(np.empty(0, np.int64), np.empty(0, np.int64), np.empty(0), np.empty(0), np.empty(0, np.int8))

    def __len__(self) -> int:
        return len(self.row)

    def take(self, which: NDArray[np.integer]) -> Pairs:
        """The pairs at these positions, in this order."""
        return Pairs(*(getattr(self, field.name)[which] for field in fields(self)))

    def concatenate(self, other: Pairs) -> Pairs:
        """These pairs followed by others."""
        return Pairs.concatenated([self, other])

    @classmethod
    def concatenated(cls, parts: Sequence[Pairs]) -> Pairs:
        """The pairs of all parts, one part after the other."""
        every = [cls.empty(), *parts]
        return cls(*(np.concatenate([getattr(part, f.name) for part in every]) for f in fields(cls)))


class TopPairs:
    """The top pairs of a stream, without keeping the rest.

    Pairs are collected and sorted only when they have become several times as many as can be kept, so that the time per
    pair depends neither on the length of the stream nor on the limits.

    Args:
        limit: number of pairs to keep.
        per_class: limit per class; None for none.
        key: sort key of pairs, largest first; ties are in the order of image and class.
    """

    def __init__(self, limit: int, per_class: int | None, key: Callable[[Pairs], NDArray[np.float64]]) -> None:
        self._limit, self._per_class, self._key = limit, per_class, key
        self._parts: list[Pairs] = []
        self._size = 0
        self._floors = np.empty(0)

    def add(self, pairs: Pairs) -> None:
        """Take more pairs of the stream."""
        self._parts.append(pairs)
        self._size += len(pairs)
        if self._size > 4 * self._limit + _SPARE_PAIRS:
            self._shrink()

    def top(self) -> Pairs:
        """The top pairs so far, in order."""
        pairs = Pairs.concatenated(self._parts)
        order = np.lexsort((pairs.label, pairs.row, -self._key(pairs)))
        if self._per_class is not None:
            order = order[first_per_group(pairs.label[order], self._per_class)]
        return pairs.take(order[: self._limit])

    def floor(self, label: NDArray[np.integer]) -> NDArray[np.float64]:
        """A key below which a pair of this class is not kept, whatever follows; -inf if there is none yet."""
        floors: NDArray[np.float64] = np.append(self._floors, -np.inf)[np.minimum(label, len(self._floors))]
        return floors

    def _shrink(self) -> None:
        """Keep the top alone, and note the key of the last pair of each class that is full, and of all if they are."""
        kept = self.top()
        self._parts, self._size = [kept], len(kept)
        key, count = self._key(kept), np.bincount(kept.label)
        self._floors = np.full(len(count), -np.inf if len(kept) < self._limit else key.min(initial=np.inf))
        if self._per_class is not None:
            lowest = np.full(len(count), np.inf)
            np.minimum.at(lowest, kept.label, key)
            full = count >= self._per_class
            self._floors[full] = np.maximum(self._floors[full], lowest[full])


def first_per_group(groups: NDArray[np.int64], limit: int) -> NDArray[np.bool_]:
    """A mask of the first `limit` members of each group.

    >>> first_per_group(np.array([3, 1, 3, 3, 1]), 2).tolist()
    [True, True, True, False, True]
    """
    order = np.argsort(groups, kind="stable")
    ordered = groups[order]
    begins = np.searchsorted(ordered, ordered)
    first = np.empty(len(groups), dtype=bool)
    first[order] = np.arange(len(groups)) - begins < limit
    return first


def entropy(probability: NDArray[np.float64]) -> NDArray[np.float64]:
    """Entropy of a binary variable in bits.

    >>> entropy(np.array([0.0, 0.5, 1.0])).tolist()
    [0.0, 1.0, 0.0]
    """
    p = np.clip(probability, 1e-12, 1 - 1e-12)
    bits = -(p * np.log2(p) + (1 - p) * np.log2(1 - p))
    return np.where((probability <= 0) | (probability >= 1), 0.0, bits)


def rarity(shares: NDArray[np.float64]) -> NDArray[np.float64]:
    """Information in bits of finding each class, from the shares of images that show it.

    >>> rarity(np.array([1.0, 0.25])).tolist()
    [-0.0, 2.0]
    """
    return -np.log2(np.clip(shares, 1e-9, 1))


__getattr__ = renamed(__name__, {"Suggested": "SuggestResult"})
