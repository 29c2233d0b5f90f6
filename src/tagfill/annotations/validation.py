"""Everything that is wrong with a dataset, listed at once rather than one error after the other."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tagfill.annotations import deciding, image_checks, resolve
from tagfill.annotations.hierarchy import Hierarchy
from tagfill.annotations.lookup import Lookup
from tagfill.annotations.problems import Problem, Problems
from tagfill.annotations.row_checks import CHECKS, Columns
from tagfill.annotations.statements import collect, evidence
from tagfill.annotations.states import POSITIVE
from tagfill.errors import DatasetError
from tagfill.progress import SILENT, Progress

if TYPE_CHECKING:
    from tagfill.annotations.dataset import Dataset


def validate(dataset: Dataset, *, examples: int = 20, progress: Progress = SILENT) -> list[Problem]:
    """List the problems of a dataset, errors first.

    Args:
        dataset: its rows are streamed, twice.
        examples: how many of each kind to list; the others are counted.
        progress: shown how many rows are read.

    >>> from tagfill.annotations import Dataset
    >>> for problem in validate(Dataset.open("my-data")):  # doctest: +SKIP
    ...     print(problem)
    my-data/annotations.csv, row 7: label 'ctas' is not in the class list; correct it, add it to the classes, or ...
    """
    problems = Problems(examples)
    if not dataset.classes:
        problems.add("no-class", dataset.where("dataset"), [None], "there is no class", "list the classes")
    image_checks.check(dataset.images, dataset.where("images"), problems)
    _check_rows(dataset, problems, progress)
    _check_labels(dataset, problems)
    return problems.list()


def _check_rows(dataset: Dataset, problems: Problems, progress: Progress) -> None:
    images, classes = Lookup(dataset.images["image"]), Lookup(pa.array(dataset.classes, pa.string()))
    nowhere = [[np.nan, np.nan]]  # the size of images that are not in the table
    known = np.stack([_size(dataset.images["width"]), _size(dataset.images["height"])], axis=1)
    sizes, file, offset = np.concatenate([known, nowhere]), dataset.where(), 0
    with progress.bar("Checking rows", None, "rows") as bar:
        for batch in dataset.scan():
            columns = Columns(batch, images, classes, sizes)
            for check in CHECKS:
                rows = np.flatnonzero(check.find(columns))
                if len(rows):
                    shown = rows[: problems.room(check.kind, file)]
                    words = [check.what(record) for record in batch.take(pa.array(shown)).to_pylist()]
                    problems.add(check.kind, file, rows + offset, words.__getitem__, check.remedy, check.severity)
            offset += batch.num_rows
            bar.advance(batch.num_rows)


def _check_labels(dataset: Dataset, problems: Problems) -> None:
    """Contradictions, the hierarchy, and classes that no image is known to show."""
    file, selection = dataset.where(), deciding.Selection.of(dataset, None)
    decided = resolve.decide(*collect(dataset, selection.position, strict=False))
    keys, values = decided.keys, decided.values
    if len(decided.clashes) and dataset.conflict == "majority":
        deciding.settle(decided, evidence(dataset, selection.position, decided.clashes, strict=False))
    elif len(decided.clashes):
        shown = decided.clashes[: problems.room("contradiction", file)]
        found = evidence(dataset, selection.position, shown, strict=False)
        words = [deciding.clash(dataset, selection, found, int(key)) for key in shown]
        _add_words(problems, "contradiction", file, words, len(decided.clashes))
    try:
        hierarchy = Hierarchy(dataset.classes, dataset.hierarchy)
    except DatasetError as error:
        what, _, remedy = str(error).rstrip(".").rpartition("; ")
        problems.add("hierarchy", dataset.where("dataset"), [None], what, remedy)
    else:
        keys, values, contradictions = hierarchy.close(keys, values)
        if len(contradictions):
            pairs = contradictions[: problems.room("hierarchy-contradiction", file)]
            found = evidence(dataset, selection.position, np.unique(pairs), strict=False)
            words = [deciding.contradiction(dataset, selection, found, int(low), int(high)) for low, high in pairs]
            _add_words(problems, "hierarchy-contradiction", file, words, len(contradictions))
    if dataset.classes:
        positives = np.bincount(keys[values == POSITIVE] % len(dataset.classes), minlength=len(dataset.classes))
        without = np.flatnonzero(positives == 0)
        problems.add(
            "class-without-positive",
            file,
            [None] * len(without),
            lambda at: f"no image is known to show '{dataset.classes[without[at]]}'",
            "annotate some, or drop the class",
            "warning",
        )


def _add_words(problems: Problems, kind: str, file: str, words: list[str], count: int) -> None:
    """Add sentences that end with their remedy after a semicolon."""
    parts = [text.rpartition("; ") for text in words]
    for what, _, remedy in parts:
        problems.add(kind, file, [None], what, remedy)
    if parts:
        problems.add(kind, file, [None] * (count - len(parts)), "", parts[-1][2])


def _size(column: pa.ChunkedArray) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
    sizes: np.ndarray[tuple[int], np.dtype[np.float64]] = pc.cast(column, pa.float64()).to_numpy()
    return sizes
