"""What methods decide about unknown labels in each epoch, and how often they are right.

    right      an entry read as present or left out is right if it is a positive that was not annotated; an entry read
               as absent is right if it is absent
    precision  right entries / decided entries whose truth is known
    recall     right entries / missed positives of the training images (or unobserved absent labels)

At the same rate, LL-R with a boost rejects more missed positives than without, in every epoch (Kim et al., CVPR 2023,
Fig. 5). Needs runs with `record: [decisions]`; training does not know the truth, it is only used here.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tagfill import figures
from tagfill.errors import TagfillError
from tagfill.experiments.analyses.inputs import AnalysisInput, AnalyzedRun, mean_and_deviation
from tagfill.experiments.report import Figure, Section, Table
from tagfill.experiments.report.section import report_figure
from tagfill.io import nan_to_none
from tagfill.labels import NEGATIVE, POSITIVE, UNKNOWN, LabelMatrix
from tagfill.training import records

MEANINGS = {POSITIVE: "read as present", UNKNOWN: "left out", NEGATIVE: "read as absent"}


@dataclass(frozen=True)
class DecisionCounts:
    """Entries that a method decided in the same way in an epoch.

    Attributes:
        epoch: over all stages, from 1.
        kind: rejected, flipped, ignored or pseudo-labeled.
        meaning: what they were read as.
        decided: number of entries.
        known: of those, entries that were not observed and whose truth is known.
        right: of those, entries that are right.
        total: entries of all training images that would be right.
    """

    epoch: int
    kind: str
    meaning: str
    decided: int
    known: int
    right: int
    total: int

    @property
    def precision(self) -> float:
        """Share of the decided entries that are right; NaN if there are none."""
        return self.right / self.known if self.known else float("nan")

    @property
    def recall(self) -> float:
        """Share of all entries that would be right; NaN if there are none."""
        return self.right / self.total if self.total else float("nan")


def analyze_decisions(inputs: AnalysisInput) -> Section:
    """Labels rejected, flipped, ignored or pseudo-labeled in each epoch, and how many of them are missed positives.

    Args:
        inputs: runs that have recorded their decisions.
    """
    counts = {label: [list(count_decisions(run)) for run in inputs.seeds_of(label)] for label in inputs.labels}
    lines = {
        (label, kind, meaning): [
            [each for each in seed if (each.kind, each.meaning) == (kind, meaning)] for seed in seeds
        ]
        for label, seeds in counts.items()
        for kind, meaning in dict.fromkeys((each.kind, each.meaning) for seed in seeds for each in seed)
    }
    if not lines:
        raise TagfillError("These methods use labels unchanged and decide nothing; analyze ll-r, en, csl or splc.")
    several = {label for label in counts if sum(key[0] == label for key in lines) > 1}
    names = {key: f"{key[0]}: {key[1]}, {key[2]}" if key[0] in several else key[0] for key in lines}
    columns = ("run", "kind", "meaning", "epoch", "decided", "right", "precision", "recall", "seed")
    drawn = []
    for name, absent in (("decisions", False), ("decisions-absent", True)):
        shown = {key: seeds for key, seeds in lines.items() if (key[2] == MEANINGS[NEGATIVE]) == absent}
        if not shown:
            continue
        rows = [
            (*key, e.epoch, e.decided, e.right, nan_to_none(e.precision, 4), nan_to_none(e.recall, 4), seed)
            for key, seeds in shown.items()
            for seed, epochs in enumerate(seeds)
            for e in epochs
        ]
        data = Table(name, "Decided entries of each epoch, and those that are right.", columns, rows)
        curves = {names[key]: seeds for key, seeds in shown.items()}
        drawn.append(_draw(curves, data, "absent labels found" if absent else "missed positives found"))
    measures = ("decided", "right", "precision", "recall")
    last = []
    for key, seeds in lines.items():
        ends = [seed[-1] for seed in seeds if seed]
        means = [mean_and_deviation([float(getattr(each, measure)) for each in ends])[0] for measure in measures]
        last.append((*key, *(nan_to_none(mean, 3) for mean in means)))
    facts: dict[str, Any] = {
        names[key]: dict(zip(measures, row[3:], strict=True)) for key, row in zip(lines, last, strict=True)
    }
    text = (
        "An entry that was left out or read as present is right if it is a positive that was not annotated; an entry "
        "that was read as absent is right if it is absent."
    )
    headings = ("run", "kind", "meaning", *measures)
    table = Table("decisions-last", "Decisions of the last epoch, means over seeds.", headings, last)
    return Section("decisions", "Decisions about missing labels", (text,), tuple(drawn), (table,), facts=facts)


def count_decisions(run: AnalyzedRun) -> Iterator[DecisionCounts]:
    """Compare the recorded decisions of a run with the truth about its training images."""
    truth, known = run.truth(), run.dataset.labels("train")
    totals = {NEGATIVE: _count_unobserved(known, truth, NEGATIVE)}
    totals[POSITIVE] = totals[UNKNOWN] = _count_unobserved(known, truth, POSITIVE)
    recorded = False
    for record in records.read_records(run.run):
        if not record.has("decisions"):
            continue
        recorded = True
        epoch = run.run.recipe.epochs_before(record.stage) + record.epoch
        image, label, kind, value = (record.column(f"decisions.{name}") for name in ("image", "label", "kind", "value"))
        observed, true = _entries(known, image, label), _entries(truth, image, label)
        for code, name in enumerate(records.KINDS):
            for read_as, meaning in MEANINGS.items():
                these = (kind == code) & (value == read_as)
                if these.any():
                    counted = these & (observed == UNKNOWN) & (true != UNKNOWN)
                    right = counted & (true == (NEGATIVE if read_as == NEGATIVE else POSITIVE))
                    numbers = (int(these.sum()), int(counted.sum()), int(right.sum()))
                    yield DecisionCounts(epoch, name, meaning, *numbers, totals[read_as])
    if not recorded:
        raise TagfillError(
            f"The run {run.run.folder} has not recorded its decisions; train it with --set record=decisions."
        )


def _entries(labels: LabelMatrix, image: NDArray[np.integer], label: NDArray[np.integer]) -> NDArray[np.int8]:
    """Labels of many pairs of image and class, in blocks of images."""
    found = np.empty(len(image), dtype=np.int8)
    order = np.argsort(image, kind="stable")
    for block in np.array_split(order, max(1, len(order) // 20_000)):
        rows, at = np.unique(image[block], return_inverse=True)
        found[block] = labels.rows(rows)[at, label[block]]
    return found


def _count_unobserved(known: LabelMatrix, truth: LabelMatrix, value: int) -> int:
    """Number of entries that were not annotated and whose true label is `value`."""
    return sum(
        int(((rows == UNKNOWN) & (truth.rows(np.arange(part.start, part.stop)) == value)).sum())
        for part, rows in known.blocks()
    )


def _draw(curves: dict[str, list[list[DecisionCounts]]], data: Table, found: str) -> Figure:
    figure, panels = figures.new_panels(11.2, 3.8, columns=3)
    measures = {"right": found, "precision": "precision, percent", "recall": "recall, percent"}
    for panel, (measure, name) in zip(panels, measures.items(), strict=True):
        scale = 1 if measure == "right" else 100
        for position, (label, seeds) in enumerate(curves.items()):
            epochs = sorted({each.epoch for seed in seeds for each in seed})
            values = [[scale * getattr(e, measure) for seed in seeds for e in seed if e.epoch == at] for at in epochs]
            figures.plot_mean_and_band(panel, epochs, [mean_and_deviation(v) for v in values], position, label)
        figures.label_panel(panel, "", "epoch", name)
        figures.integer_ticks(panel.xaxis)
        panel.set_ylim(bottom=0)
    figures.legend_above(figure, panels[0])
    return report_figure(
        figure,
        data.name,
        "Entries that a method decided about correctly in each epoch: their number, their share of all decisions "
        "(precision), and their share of all entries to be found (recall).",
        f"Three panels over epochs with {len(curves)} lines.",
        data,
    )
