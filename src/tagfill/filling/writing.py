"""Choosing what to add, and writing everything that a result consists of; `filled.json` comes last.

    choose   tags to add, so that the expected share of right ones meets the target
    ask      what is uncertain, and given tags that may be wrong
    write    the tables, the datasets, the model, the report, and then the numbers for the next call

A call that is killed in between leaves the numbers of the earlier result, so the next one writes everything again.
"""

from __future__ import annotations

import shutil
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from tagfill.curation.estimates import NOT_CALIBRATED, choose_additions
from tagfill.curation.review import FOLDER
from tagfill.curation.suggestions import MISSING, SCHEMA, Suggestions
from tagfill.dataset import Dataset
from tagfill.dataset.tables import from_records
from tagfill.filling import report
from tagfill.filling.candidates import CANDIDATES, DOUBTS, Scored
from tagfill.filling.outputs import write_formats
from tagfill.filling.summary import (
    DATASET,
    FILLED,
    KNOWN,
    MODEL,
    SOURCE,
    SUMMARY_FILE,
    TO_REVIEW,
    WORK,
    ClassSummary,
    Example,
    FillSummary,
    Keep,
    PastFill,
    Settings,
    absolute_path,
)
from tagfill.filling.table import TableLayout, write_filled
from tagfill.io import exclusive_lock, replace_folder, write_json
from tagfill.labels import UNKNOWN
from tagfill.models import Classifier
from tagfill.training import Run

LEAST_TO_REVIEW = 0.1  # probability from which a pair is worth a question
MOST_TO_REVIEW = 5000
EXAMPLES = 6  # photos per class in the report


def save_summary(folder: Path, summary: FillSummary) -> None:
    """Write the report and then `filled.json`, which says that everything else is there."""
    report.write(folder, summary)
    write_json(folder / SUMMARY_FILE, summary.model_dump(mode="json"))


@dataclass(frozen=True)
class ResultWriter:
    """Writes the result of what is known and of what was scored.

    Attributes:
        folder: of the result.
        key: of what is known and of the settings.
        settings: how the result is made.
        layout: of `filled.csv`.
        known: given tags and decisions.
        decisions: rows of reviews and audits.
    """

    folder: Path
    key: str
    settings: Settings
    layout: TableLayout
    known: Dataset
    decisions: pa.Table

    def write(self, run: Run, scored: Scored, past: list[PastFill], seconds: dict[str, float]) -> None:
        """Choose what to add, and write all files.

        Args:
            run: of the trained model.
            scored: what scoring found out.
            past: earlier results in the same folder, oldest first.
            seconds: that each phase took.
        """
        candidates = pq.read_table(self.folder / WORK / self.key / CANDIDATES)
        candidates = candidates.sort_by([("probability", "descending"), ("image", "ascending"), ("label", "ascending")])
        threshold = self._threshold(candidates, scored)
        chosen = pc.greater_equal(candidates["probability"], threshold)
        added, left = candidates.filter(chosen), candidates.filter(pc.invert(chosen))
        self._save_datasets(added)
        write_filled(self.folder / FILLED, self.known, added, self.layout)
        questions = self._questions(left)
        questions.save(self.folder / TO_REVIEW, spreadsheet=self.settings.spreadsheet)
        self._save_model(run, scored)
        write_formats(
            Dataset.open(self.folder / DATASET),
            self.folder,
            self.settings.formats,
            spreadsheet=self.settings.spreadsheet,
        )
        save_summary(self.folder, self._summarize(added, questions, scored, threshold, past, seconds))

    def _threshold(self, candidates: pa.Table, scored: Scored) -> float:
        """The lowest probability of a tag that is added; above 1 if none is."""
        keep = Keep.parse(self.settings.keep)
        if keep.by == "probability":
            return keep.value
        if scored.estimates.source == NOT_CALIBRATED:  # scores are not probabilities
            return 2.0
        probability = candidates["probability"].to_numpy()[None]
        unknown = np.full(probability.shape, UNKNOWN)
        return min(choose_additions(probability, unknown, precision=keep.value).threshold, 2.0)

    def _save_datasets(self, added: pa.Table) -> None:
        """Save what is known, and the same with the added tags."""
        pairs = added.select(["image", "label"]).to_pylist()
        rows = from_records([{**pair, "present": True, "source": SOURCE} for pair in pairs])
        for name, more in ((KNOWN, []), (DATASET, [rows])):
            target = self.folder / name
            with exclusive_lock(target / FOLDER, "is reviewing"):
                self.known.replace(annotations=pa.concat_tables([self.known.rows(), *more])).save(target)

    def _questions(self, left: pa.Table) -> Suggestions:
        """What is worth asking a person: the most probable pairs that were not added, and doubted annotations."""
        left = left.filter(pc.greater_equal(left["probability"], LEAST_TO_REVIEW)).slice(0, MOST_TO_REVIEW)
        size = left.num_rows
        columns = {
            "image": left["image"],
            "label": left["label"],
            "kind": pa.array([MISSING] * size, pa.string()),
            "annotated": pa.nulls(size, pa.bool_()),
            "probability": left["probability"],
            "value": left["probability"],
        }
        missing = pa.table([columns[name] for name in SCHEMA.names], schema=SCHEMA)
        doubted = pq.read_table(self.folder / WORK / self.key / DOUBTS)
        decided = {(row["image"], row["label"]) for row in self.decisions.select(["image", "label"]).to_pylist()}
        new = [(row["image"], row["label"]) not in decided for row in doubted.to_pylist()]
        return Suggestions(pa.concat_tables([missing, doubted.filter(pa.array(new, pa.bool_())).cast(SCHEMA)]))

    def _save_model(self, run: Run, scored: Scored) -> None:
        model = Classifier.load(run.model_folder)
        model.calibration = scored.calibration if scored.calibration.savable else None
        keep = Keep.parse(self.settings.keep)
        threshold = keep.value if keep.by == "probability" else scored.threshold(keep.value)
        model.thresholds = None if model.calibration is None else (threshold,) * len(model.classes)
        temporary = self.folder / WORK / "model"
        shutil.rmtree(temporary, ignore_errors=True)
        model.save(temporary)
        replace_folder(temporary, self.folder / MODEL)

    def _summarize(
        self,
        added: pa.Table,
        questions: Suggestions,
        scored: Scored,
        threshold: float,
        past: list[PastFill],
        seconds: dict[str, float],
    ) -> FillSummary:
        known, given = self.known, self.known.labels()
        missing = questions.table.filter(pc.equal(questions.table["kind"], MISSING))
        examples, surest = _examples(added), _examples(missing)
        asked = Counter(questions.table["label"].to_pylist())
        classes = [
            ClassSummary(
                name=name,
                given=int(tags),
                added=len(examples.get(name, [])),
                expected_right=sum(one.probability for one in examples.get(name, [])),
                expected_missing=expected,
                to_review=asked[name],
                examples=_spread(examples.get(name, []), EXAMPLES),
                surest=surest.get(name, [])[:EXAMPLES],
            )
            for name, tags, expected in zip(known.classes, given.positives, scored.expected, strict=True)
        ]
        return FillSummary(
            key=self.key,
            settings=self.settings,
            name=known.name,
            root=absolute_path(known.root),
            photos=len(known),
            tagged_photos=int((given.positives_per_image() > 0).sum()),
            given=int(given.positives.sum()),
            added=added.num_rows,
            photos_with_additions=len(pc.unique(added["image"])),
            threshold=None if threshold > 1 else threshold,
            expected_precision=float(np.mean(added["probability"].to_numpy(), dtype=np.float64)) if added else None,
            expected_missing=float(sum(scored.expected)),
            decisions=self.decisions.num_rows,
            to_review=len(questions),
            estimates=scored.estimates,
            weights=scored.weights,
            doubts=scored.doubts,
            doubted=len(questions) - missing.num_rows,
            val_mAP=scored.val_mAP,
            classes=classes,
            past=past,
            layout=self.layout,
            audit=None,
            seconds={name: round(value, 1) for name, value in seconds.items()},
        )


def _examples(pairs: pa.Table) -> dict[str, list[Example]]:
    """The photos of each class, most probable first."""
    found: dict[str, list[Example]] = {}
    for row in pairs.select(["image", "label", "probability"]).to_pylist():
        found.setdefault(row["label"], []).append(Example(image=row["image"], probability=row["probability"]))
    return found


def _spread(examples: Sequence[Example], count: int) -> list[Example]:
    """Some examples from the most to the least probable, evenly spread.

    >>> [one.image for one in _spread([Example(image=name, probability=0.9) for name in "abcde"], 3)]
    ['a', 'c', 'e']
    """
    if len(examples) <= count:
        return list(examples)
    return [examples[at] for at in np.linspace(0, len(examples) - 1, count).round().astype(int)]
