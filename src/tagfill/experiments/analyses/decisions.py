"""What methods decide about labels that nobody gave, epoch by epoch, and how often they are right.

    right      an entry that was read as present or left out is right if it is a positive that nobody annotated,
               one that was read as absent if it is absent
    precision  right entries / decided entries whose truth is known
    recall     right entries / missed positives of the training images (or unobserved absent ones)

With the same rate, LL-R with a boost rejects more missed positives than without in every epoch (Kim et al., CVPR 2023,
Fig. 5). Needs runs with `record: [decisions]`; the truth is joined here, training does not know it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tagfill.errors import TagfillError
from tagfill.experiments import figures
from tagfill.experiments.analyses import subjects
from tagfill.experiments.analyses.subjects import Question, Subject, mean_and_deviation
from tagfill.experiments.report import Figure, Section, Table
from tagfill.io import nan_to_none
from tagfill.labels import NEGATIVE, POSITIVE, UNKNOWN, LabelMatrix
from tagfill.training import records

MEANINGS = {POSITIVE: "read as present", UNKNOWN: "left out", NEGATIVE: "read as absent"}


@dataclass(frozen=True)
class Judged:
    """Entries that a method decided alike in an epoch.

    Attributes:
        epoch: over all stages, from 1.
        kind: rejected, flipped, ignored or pseudo-labelled.
        meaning: what they were read as.
        decided: how many.
        known: of those, how many were not observed and have a known truth.
        right: of those, how many are right.
        sought: entries of the training images that would be right.
    """

    epoch: int
    kind: str
    meaning: str
    decided: int
    known: int
    right: int
    sought: int

    @property
    def precision(self) -> float:
        """Share of the decided entries that are right; NaN where there are none."""
        return self.right / self.known if self.known else float("nan")

    @property
    def recall(self) -> float:
        """Share of what there is to find; NaN where there is nothing."""
        return self.right / self.sought if self.sought else float("nan")


def decisions(question: Question) -> Section:
    """Labels rejected, flipped, ignored or pseudo-labelled in each epoch, and how many truly are missed positives.

    Args:
        question: the runs, which have recorded their decisions.
    """
    found = {label: [list(judged(subject)) for subject in question.seeds_of(label)] for label in question.labels}
    lines = {
        (label, kind, meaning): seeds
        for label, seeds in found.items()
        for kind, meaning in dict.fromkeys((each.kind, each.meaning) for seed in seeds for each in seed)
    }
    if not lines:
        raise TagfillError("These methods take labels as they are and decide nothing; look at ll-r, en, csl or splc.")
    several = {label for label in found if sum(key[0] == label for key in lines) > 1}
    named = {key: f"{key[0]}: {key[1]}, {key[2]}" if key[0] in several else key[0] for key in lines}
    curves = {
        named[key]: [[each for each in seed if (each.kind, each.meaning) == key[1:]] for seed in seeds]
        for key, seeds in lines.items()
    }
    rows = [
        (*key, each.epoch, each.decided, each.right, nan_to_none(each.precision, 4), nan_to_none(each.recall, 4), seed)
        for key, seeds in lines.items()
        for seed, epochs in enumerate(seeds)
        for each in epochs
        if (each.kind, each.meaning) == key[1:]
    ]
    last = [_last(key, curves[named[key]]) for key in lines]
    columns = ("run", "kind", "meaning", "epoch", "decided", "right", "precision", "recall", "seed")
    figures = []
    for name, absent in (("decisions", False), ("decisions-absent", True)):
        shown = {named[key]: curves[named[key]] for key in lines if (key[2] == MEANINGS[NEGATIVE]) == absent}
        if shown:
            these = [row for row in rows if (row[2] == MEANINGS[NEGATIVE]) == absent]
            data = Table(name, "Decided entries of each epoch, and those that are right.", columns, these)
            figures.append(_drawn(shown, data, "absent labels found" if absent else "missed positives found"))
    ends = ("run", "kind", "meaning", "decided", "right", "precision", "recall")
    facts: dict[str, Any] = {
        named[key]: dict(zip(ends[3:], row[3:], strict=True)) for key, row in zip(lines, last, strict=True)
    }
    text = (
        "An entry that was left out or read as present is right if it is a positive that nobody annotated; one that "
        "was read as absent is right if it is absent."
    )
    table = Table("decisions-last", "Decisions of the last epoch, means over seeds.", ends, last)
    return Section("decisions", "Decisions about missing labels", (text,), tuple(figures), (table,), facts=facts)


def judged(subject: Subject) -> Iterator[Judged]:
    """Compare what a run wrote down with the truth about its training images."""
    truth, known = subject.truth(), subject.dataset.labels("train")
    sought = {NEGATIVE: _unobserved(known, truth, NEGATIVE)}
    sought[POSITIVE] = sought[UNKNOWN] = _unobserved(known, truth, POSITIVE)
    written = False
    for epoch in records.read_records(subject.run):
        if not epoch.has("decisions"):
            continue
        written = True
        number = subject.run.recipe.epochs_before(epoch.stage) + epoch.epoch
        entries = [epoch.column(f"decisions.{name}") for name in ("image", "label", "kind", "value")]
        yield from _of_epoch(number, entries, known, truth, sought)
    if not written:
        raise TagfillError(
            f"The run {subject.run.folder} has not written down its decisions; train it with --set record=decisions."
        )


def _of_epoch(
    epoch: int,
    entries: list[NDArray[Any]],
    known: LabelMatrix,
    truth: LabelMatrix,
    sought: dict[int, int],
) -> Iterator[Judged]:
    image, label, kind, value = entries
    observed, true = _values(known, image, label), _values(truth, image, label)
    for code, name in enumerate(records.KINDS):
        for read_as, meaning in MEANINGS.items():
            these = (kind == code) & (value == read_as)
            if these.any():
                counted = these & (observed == UNKNOWN) & (true != UNKNOWN)
                right = counted & (true == (NEGATIVE if read_as == NEGATIVE else POSITIVE))
                numbers = (int(these.sum()), int(counted.sum()), int(right.sum()))
                yield Judged(epoch, name, meaning, *numbers, sought[read_as])


def _values(labels: LabelMatrix, image: NDArray[np.integer], label: NDArray[np.integer]) -> NDArray[np.int8]:
    """Labels of many entries, images in blocks."""
    found = np.empty(len(image), dtype=np.int8)
    order = np.argsort(image, kind="stable")
    for block in np.array_split(order, max(1, len(order) // 20_000)):
        rows, at = np.unique(image[block], return_inverse=True)
        found[block] = labels.rows(rows)[at, label[block]]
    return found


def _unobserved(known: LabelMatrix, truth: LabelMatrix, value: int) -> int:
    """Entries that nobody annotated and that truly are so."""
    return sum(
        int(((rows == UNKNOWN) & (truth.rows(np.arange(part.start, part.stop)) == value)).sum())
        for part, rows in known.blocks()
    )


def _last(key: tuple[str, str, str], seeds: list[list[Judged]]) -> tuple[Any, ...]:
    ends = [seed[-1] for seed in seeds if seed]
    numbers = [
        mean_and_deviation([float(getattr(each, name)) for each in ends])[0]
        for name in ("decided", "right", "precision", "recall")
    ]
    return (*key, *(nan_to_none(number, 3) for number in numbers))


def _drawn(curves: dict[str, list[list[Judged]]], data: Table, found: str) -> Figure:
    figure, panels = figures.new_panels(11.2, 3.8, columns=3)
    measures = {"right": found, "precision": "precision, percent", "recall": "recall, percent"}
    for panel, (measure, name) in zip(panels, measures.items(), strict=True):
        scale = 1 if measure == "right" else 100
        for position, (label, seeds) in enumerate(curves.items()):
            epochs = sorted({each.epoch for seed in seeds for each in seed})
            values = [[scale * getattr(e, measure) for seed in seeds for e in seed if e.epoch == at] for at in epochs]
            pairs = [mean_and_deviation(each) for each in values]
            subjects.line(panel, epochs, pairs, position, label)
        subjects.dress(panel, "", "epoch", name)
        subjects.whole_numbers(panel.xaxis)
        panel.set_ylim(bottom=0)
    subjects.legend(figure, panels[0])
    return figures.finished(
        figure,
        data.name,
        "Entries that a method decided in each epoch and that truly are what it took them for: how many, which share "
        "of its decisions, and which share of what there is to find.",
        f"Three panels over epochs with {len(curves)} lines.",
        data,
    )
