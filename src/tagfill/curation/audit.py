"""Audit: how many of the added tags are right, and how many tags are still missing, from a random sample.

Two populations of (image, label) pairs are sampled uniformly, without replacement:

    added     pairs that are said to be present by rows with a given source, or by predictions
    left out  pairs of the same splits, or of the predicted images, that are neither annotated nor added

A reviewer decides the sampled pairs in random order, without seeing a score or to which population a pair belongs. With
A added pairs, of which a share p is right, and B left-out pairs, of which a share m shows the label after all,

    precision = p            recall = A·p / (A·p + B·m)

Recall is about tags that were missing before: given tags count neither as found nor as missed.

"Cannot tell" and unanswered questions do not count, and are reported. Because the questions come in random order, those
answered by a reviewer who stops early are a random sample too.

Its decisions have a log of their own, `audit/decisions.jsonl`, so that what a review decided is asked again. They
become rows with the source `audit`, which correct what was added wrongly.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import NormalDist
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from numpy.typing import NDArray

from tagfill.curation.decisions import LogEntry
from tagfill.curation.review import AUDIT, ReviewSession
from tagfill.curation.suggestions import MISSING, SCHEMA, Suggestions
from tagfill.dataset import Dataset
from tagfill.errors import TagfillError
from tagfill.labels import in_sorted
from tagfill.rng import PairNumbers

FILE = "audit.json"
ADDED, LEFT_OUT = "added", "left_out"
CONFIDENCE = 0.95


@dataclass(frozen=True)
class Share:
    """A share of a population, estimated from a sample.

    Attributes:
        share: estimate; None without a decision.
        low: lower end of the interval.
        high: upper end of the interval.
        hits: decisions that the label is present.
        decisions: decisions that the label is present or absent.
        cannot_tell: decisions that count neither way.
        unanswered: sampled pairs without a decision.
        population: size of the population.
    """

    share: float | None
    low: float
    high: float
    hits: int
    decisions: int
    cannot_tell: int
    unanswered: int
    population: int


@dataclass(frozen=True)
class Estimate:
    """An estimate with its interval; `share` is None if nothing was decided."""

    share: float | None
    low: float
    high: float


@dataclass(frozen=True)
class AuditResult:
    """The result of an audit.

    Attributes:
        dataset: name of the dataset.
        what: what was added, such as "tags with source fill".
        seed: of the sample.
        added: share of the added tags that are right.
        left_out: share of the left-out pairs that show their label after all.
        recall: share of the tags that were missing and are now added.
    """

    dataset: str
    what: str
    seed: int
    added: Share
    left_out: Share
    recall: Estimate

    def sentences(self) -> list[str]:
        """What the audit found, for people."""
        lines = [f"Sample of {self.added.population:,} {self.what} and of {self.left_out.population:,} pairs left out"]
        if self.added.share is not None:
            counted = f"from {self.added.decisions:,} decisions"
            lines.append(f"Precision {_interval(self.added.share, self.added.low, self.added.high)}, {counted}")
        if self.recall.share is not None:
            counted = f"from {self.left_out.hits:,} tags found in {self.left_out.decisions:,} left-out pairs"
            lines.append(f"Recall {_interval(self.recall.share, self.recall.low, self.recall.high)}, {counted}")
        unclear = self.added.cannot_tell + self.left_out.cannot_tell
        unanswered = self.added.unanswered + self.left_out.unanswered
        if unclear or unanswered:
            lines.append(f"Not counted: {unclear:,} “cannot tell” and {unanswered:,} unanswered questions")
        return lines

    def to_json(self) -> dict[str, Any]:
        """Plain values for JSON; intervals hold with a confidence of 95 %."""
        return {
            "dataset": self.dataset,
            "what": self.what,
            "seed": self.seed,
            "confidence": CONFIDENCE,
            "precision": asdict(self.added),
            "left_out": asdict(self.left_out),
            "recall": asdict(self.recall),
            "statement": self.sentences(),
        }


def wilson(hits: int, decisions: int, confidence: float = CONFIDENCE) -> tuple[float, float]:
    """The Wilson score interval of a share.

        (k + z²/2 ± z·√(k(n−k)/n + z²/4)) / (n + z²)

    with k of n hits, and z the normal quantile of the confidence: 1.96 for 95 %. Unlike k/n ± z·√…, it stays within
    0 and 1 and covers the true share about as often as it says, also near 0 and 1. Without decisions it is (0, 1).

    Wilson, "Probable Inference, the Law of Succession, and Statistical Inference", JASA 22 (1927).

    >>> [round(end, 3) for end in wilson(113, 120)]
    [0.884, 0.971]
    """
    if decisions == 0:
        return 0.0, 1.0
    z = NormalDist().inv_cdf((1 + confidence) / 2)
    middle = hits + z * z / 2
    spread = z * (hits * (decisions - hits) / decisions + z * z / 4) ** 0.5
    low, high = ((middle + side * spread) / (decisions + z * z) for side in (-1, 1))
    return (0.0 if hits == 0 else low), (1.0 if hits == decisions else high)


def estimate_recall(added: Share, left_out: Share) -> Estimate:
    """Recall A·p / (A·p + B·m) from the two samples.

    The interval combines the ends of two Wilson intervals, each with a confidence of 97.5 %, so that both hold together
    with at least 95 % (Bonferroni): it is rather too wide than too narrow.

    Args:
        added: sample of what was added.
        left_out: sample of what was left out.
    """
    half = (1 + CONFIDENCE) / 2
    found = [added.population * end for end in wilson(added.hits, added.decisions, half)]
    missed = [left_out.population * end for end in wilson(left_out.hits, left_out.decisions, half)]

    def recall(right: float, lost: float) -> float:
        return right / (right + lost) if right + lost else 1.0

    low, high = recall(found[0], missed[1]), recall(found[1], missed[0])
    if added.share is None or left_out.share is None:
        return Estimate(None, low, high)
    return Estimate(recall(added.population * added.share, left_out.population * left_out.share), low, high)


@dataclass(frozen=True)
class AuditSample:
    """Pairs to decide.

    Attributes:
        what: what was added.
        seed: of the draw.
        population: size of each population.
        pairs: the sample of each population: (image, label), in random order.
    """

    what: str
    seed: int
    population: Mapping[str, int]
    pairs: Mapping[str, Sequence[tuple[str, str]]]

    def questions(self) -> Suggestions:
        """The pairs of both populations, mixed at random; the probability of each is 0.5, which tells nothing."""
        pairs = [pair for name in (ADDED, LEFT_OUT) for pair in self.pairs[name]]
        order = np.random.default_rng(self.seed).permutation(len(pairs))
        rows = [
            {"image": image, "label": label, "kind": MISSING, "annotated": None, "probability": 0.5, "value": 0.5}
            for image, label in (pairs[at] for at in order)
        ]
        return Suggestions(pa.Table.from_pylist(rows, schema=SCHEMA))

    def result(self, session: ReviewSession) -> AuditResult:
        """What the decisions in force say about the sample."""
        decisions = {entry.pair: entry for entry in session.current_decisions()}
        added, left_out = (self._share(name, decisions) for name in (ADDED, LEFT_OUT))
        recall = estimate_recall(added, left_out)
        return AuditResult(session.dataset.name, self.what, self.seed, added, left_out, recall)

    def _share(self, name: str, decisions: Mapping[tuple[str, str], LogEntry]) -> Share:
        answers = [decisions[pair].present for pair in self.pairs[name] if pair in decisions]
        hits, known = answers.count(True), len(answers) - answers.count(None)
        unanswered = len(self.pairs[name]) - len(answers)
        interval = wilson(hits, known)
        share = hits / known if known else None
        return Share(share, *interval, hits, known, answers.count(None), unanswered, self.population[name])


def draw_sample(
    dataset: Dataset,
    *,
    source: str | None = None,
    predictions: Path | None = None,
    added: int = 120,
    left_out: int = 120,
    seed: int = 0,
) -> AuditSample:
    """Draw pairs to audit; the same arguments give the same sample, also after the audit has added its own rows.

    Args:
        dataset: the dataset or what was filled in.
        source: rows with this source and a present label are what was added.
        predictions: instead, a file of `tagfill predict`, whose present labels of pairs without annotation were added.
        added: number of added pairs.
        left_out: number of left-out pairs.
        seed: of the draw.

    Example:
        >>> sample = draw_sample(Dataset.open("filled"), source="fill")  # doctest: +SKIP
        >>> sample.population  # doctest: +SKIP
        {'added': 1480, 'left_out': 42100}
    """
    if (source is None) == (predictions is None):
        raise TagfillError("An audit is of rows with one --source or of one file of --predictions; give one of them.")
    annotated, chosen = _keys(dataset, source)
    if predictions is None:
        what, splits = f"tags with source {source}", dataset.split_of_images().astype(str)
        images = np.flatnonzero(np.isin(splits, np.unique(splits[chosen // len(dataset.classes)])))
    else:
        what = f"present labels in {predictions.name}"
        chosen, images = _predicted(dataset, predictions)
        chosen = np.setdiff1d(chosen, annotated)
    if not len(chosen):
        raise TagfillError(
            f"Dataset {dataset.name} has no {what} to audit; its sources are {', '.join(_sources(dataset)) or 'none'}."
        )
    width = len(dataset.classes)
    order = np.argsort(PairNumbers.of(dataset.names(), dataset.classes, seed).bits(chosen // width, chosen % width))
    left, population = _draw_left_out(images, width, np.union1d(annotated, chosen), left_out, seed)
    return AuditSample(
        what,
        seed,
        {ADDED: len(chosen), LEFT_OUT: population},
        {ADDED: _pairs(dataset, chosen[order[:added]]), LEFT_OUT: _pairs(dataset, left)},
    )


def _pairs(dataset: Dataset, keys: NDArray[np.int64]) -> list[tuple[str, str]]:
    row, label = np.divmod(keys, len(dataset.classes))
    return [(name, dataset.classes[code]) for name, code in zip(dataset.names(row), label.tolist(), strict=True)]


def _draw_left_out(
    images: NDArray[np.int64], width: int, excluded: NDArray[np.int64], count: int, seed: int
) -> tuple[NDArray[np.int64], int]:
    """Draw pairs of these images that are not excluded; also return how many there are.

    Args:
        images: rows of the image table.
        width: number of classes.
        excluded: keys image·L + class, ascending.
        count: number of pairs to draw.
        seed: of the draw.
    """
    population = len(images) * width - int(np.isin(excluded // width, images).sum())
    rng = np.random.default_rng(seed)
    if population <= max(count, len(images) * width // 100):  # few are left, so drawing at random would rarely hit one
        keys = np.setdiff1d((images[:, None] * width + np.arange(width)).ravel(), excluded)
        return rng.permutation(keys)[:count], population
    drawn = dict[int, None]()  # in the order of the draw
    while len(drawn) < count:
        image, label = rng.integers(len(images), size=4096), rng.integers(width, size=4096)
        keys = images[image] * width + label
        drawn |= dict.fromkeys(keys[~in_sorted(excluded, keys)].tolist())
    return np.array(list(drawn)[:count], dtype=np.int64), population


def _keys(dataset: Dataset, source: str | None) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Sorted keys image·L + class of the pairs with a row, and of those that a row of the source calls present.

    The rows of audits do not count, or a continued audit would draw another sample.
    """
    names, classes = dataset.images["image"], pa.array(dataset.classes, pa.string())
    annotated, added = [np.empty(0, np.int64)], [np.empty(0, np.int64)]
    for batch in dataset.scan(["image", "label", "present", "source", "time"]):
        image, label = (batch[name].cast(pa.string()) for name in ("image", "label"))
        row = pc.index_in(image, value_set=names).to_numpy(zero_copy_only=False).astype(np.int64)
        code = pc.index_in(label, value_set=classes).to_numpy(zero_copy_only=False).astype(np.int64)
        key = row * len(classes) + code
        sources = pc.fill_null(batch["source"].cast(pa.string()), "")
        of_source = pc.and_(pc.equal(sources, source or ""), pc.fill_null(batch["present"], False))
        annotated.append(key[pc.not_equal(sources, AUDIT).to_numpy(zero_copy_only=False)])
        if source is not None:
            added.append(key[of_source.to_numpy(zero_copy_only=False)])
    return np.unique(np.concatenate(annotated)), np.unique(np.concatenate(added))


def _predicted(dataset: Dataset, path: Path) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Sorted keys of the pairs that a file of predictions calls present, and the rows of its images."""
    if path.suffix != ".parquet" or not path.is_file():
        raise TagfillError(f"{path} is not a .parquet file of 'tagfill predict'.")
    table = pq.read_table(path)
    if "present" not in table.column_names:
        raise TagfillError(f"{path} has no column 'present'; give a file of 'tagfill predict'.")
    row = pc.index_in(table["image"].cast(pa.string()), value_set=dataset.images["image"])
    if row.null_count:
        name = table["image"].filter(pc.is_null(row))[0].as_py()
        raise TagfillError(f"{path} is about the image '{name}', which dataset {dataset.name} does not have.")
    code = pc.index_in(table["label"].cast(pa.string()), value_set=pa.array(dataset.classes, pa.string()))
    if code.null_count:
        name = table["label"].filter(pc.is_null(code))[0].as_py()
        raise TagfillError(f"{path} is about the label '{name}', which dataset {dataset.name} does not have.")
    rows: NDArray[np.int64] = row.to_numpy().astype(np.int64)
    keys = rows * len(dataset.classes) + code.to_numpy().astype(np.int64)
    return np.unique(keys[table["present"].to_numpy()]), np.unique(rows)


def _sources(dataset: Dataset) -> list[str]:
    found = {name for batch in dataset.scan(["source"]) for name in pc.unique(batch["source"]).to_pylist()}
    return sorted(name for name in found if name)


def _interval(share: float, low: float, high: float) -> str:
    """A share and its interval in words.

    >>> _interval(0.9417, 0.886, 0.971)
    '94 %, between 89 and 97'
    """
    return f"{100 * share:.0f} %, between {100 * low:.0f} and {100 * high:.0f}"
