"""Everything that is wrong with a dataset, listed at once instead of one error at a time."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from tagfill.dataset import masks
from tagfill.dataset.hierarchy import Hierarchy
from tagfill.dataset.lookup import Lookup
from tagfill.dataset.resolve import (
    Selection,
    collect_answers,
    decide,
    describe_conflict,
    describe_contradiction,
    newest_rows,
    resolve_by_vote,
)
from tagfill.dataset.tables import KINDS
from tagfill.errors import DatasetError
from tagfill.labels import POSITIVE
from tagfill.progress import SILENT, Progress

if TYPE_CHECKING:
    from tagfill.dataset.dataset import Dataset

Severity = Literal["error", "warning"]


@dataclass(frozen=True)
class Problem:
    """One problem of a dataset.

    Attributes:
        kind: a short name, such as `unknown-label`.
        file: where.
        row: row of the table, counted from 0 without the header of a CSV file; None if it is not about a single row.
        what: what was found, in words.
        remedy: what to do about it.
        severity: an `error` prevents training, a `warning` does not.
    """

    kind: str
    file: str
    row: int | None
    what: str
    remedy: str
    severity: Severity = "error"

    def __str__(self) -> str:
        place = self.file if self.row is None else f"{self.file}, row {self.row}"
        return f"{place}: {self.what}; {self.remedy}."


def validate(dataset: Dataset, *, examples: int = 20, progress: Progress = SILENT) -> list[Problem]:
    """List the problems of a dataset, errors first.

    Args:
        dataset: its rows are read twice.
        examples: how many problems of each kind to list; the others are counted.
        progress: reports the number of rows read.

    >>> from tagfill.dataset import Dataset
    >>> for problem in validate(Dataset.open("my-data")):  # doctest: +SKIP
    ...     print(problem)
    my-data/annotations.csv, row 7: label 'ctas' is not in the class list; correct it, add it to the classes, or ...
    """
    problems = Problems(examples)
    if not dataset.classes:
        problems.add("no-class", dataset.where("dataset"), [None], "there is no class", "list the classes")
    _check_images(dataset.images, dataset.where("images"), problems)
    _check_rows(dataset, problems, progress)
    if dataset.classes:
        _check_labels(dataset, problems)
    return problems.list()


def require_valid(dataset: Dataset, *, progress: Progress = SILENT) -> None:
    """Raise if a dataset has a problem that prevents training; it is checked once.

    Args:
        dataset: to train on.
        progress: reports the number of rows read.

    Raises:
        DatasetError: naming the first error and the number of the others.
    """
    if dataset.__dict__.get(_VALID):
        return
    errors = [problem for problem in validate(dataset, examples=2, progress=progress) if problem.severity == "error"]
    if errors:
        folder = f"; 'tagfill inspect {dataset.folder}' lists all" if dataset.folder else ""
        more = f" There are more errors{folder}." if len(errors) > 1 else ""
        raise DatasetError(f"{errors[0]}{more}")
    dataset.__dict__[_VALID] = True  # like a cached property of this frozen object


_VALID = "_is_valid"


class Problems:
    """Collects problems: a limited number of examples of each kind, and the number of the others."""

    def __init__(self, examples: int) -> None:
        self._examples = examples
        self._found: dict[tuple[str, str], list[Problem]] = {}
        self._counts: dict[tuple[str, str], int] = {}

    def add(
        self,
        kind: str,
        file: str,
        rows: NDArray[np.integer] | list[int] | list[None],
        what: Callable[[int], str] | str,
        remedy: str,
        severity: Severity = "error",
    ) -> None:
        """Add one problem for each of `rows`; `what` may be a function of the position in `rows`."""
        found = self._found.setdefault((kind, file), [])
        for at, row in enumerate(rows[: max(self._examples - len(found), 0)]):
            text = what if isinstance(what, str) else what(at)
            found.append(Problem(kind, file, None if row is None else int(row), text, remedy, severity))
        self._counts[kind, file] = self._counts.get((kind, file), 0) + len(rows)

    def remaining(self, kind: str, file: str) -> int:
        """How many more examples of a kind are listed."""
        return max(self._examples - len(self._found.get((kind, file), ())), 0)

    def list(self) -> list[Problem]:
        """All problems, errors first, each kind followed by the number of those not shown."""
        listed = []
        for key, found in self._found.items():
            listed += found
            rest = self._counts[key] - len(found)
            if rest and found:
                last = found[-1]
                what = f"{rest:,} more of this kind ({last.kind})"
                listed.append(Problem(last.kind, last.file, None, what, last.remedy, last.severity))
        return sorted(listed, key=lambda problem: problem.severity != "error")


# The image table

_OUTSIDE = r"(^[/\\])|(^[A-Za-z]:[/\\])|((^|[/\\])\.\.([/\\]|$))"  # an absolute path, or one with ..


def _check_images(images: pa.Table, file: str, problems: Problems) -> None:
    """Add the problems of an image table."""
    if not images.num_rows:
        problems.add("no-image", file, [None], "the table has no image", "add some")
        return
    _check_names(images, file, problems)
    _check_repeated(images, file, problems)
    blank = _rows(pc.equal(pc.utf8_trim_whitespace(pc.fill_null(images["split"], "")), ""))
    problems.add("blank-split", file, blank, "the split has no name", "name it, such as train, val or test")
    for side in ("width", "height"):
        _check_sizes(images[side], side, file, problems)


def _check_sizes(column: pa.ChunkedArray, side: str, file: str, problems: Problems) -> None:
    wrong = _rows(pc.fill_null(pc.less_equal(column, 0), False))
    remedy = "give it in pixels, or leave it empty"
    problems.add("image-size", file, wrong, lambda at: f"{side} is {column[int(wrong[at])]}", remedy)


def _check_names(images: pa.Table, file: str, problems: Problems) -> None:
    names = images["image"]
    empty = _rows(pc.equal(pc.fill_null(names, ""), ""))
    problems.add("blank-image", file, empty, "the image has no name", "give its path below the image root")
    outside = _rows(pc.fill_null(pc.match_substring_regex(names, _OUTSIDE), False))
    problems.add(
        "image-outside-root",
        file,
        outside,
        lambda at: f"image '{names[int(outside[at])].as_py()}' is not below the image root",
        "give a relative path without '..'",
    )


def _check_repeated(images: pa.Table, file: str, problems: Problems) -> None:
    """Images that are listed twice, in the same split or in two."""
    if Lookup(images["image"]).distinct:  # cheaper than a dictionary of all names
        return
    coded = images["image"].combine_chunks().dictionary_encode()
    codes = coded.indices.fill_null(-1).to_numpy(zero_copy_only=False)
    if len(coded.dictionary) == len(codes):
        return
    order = np.argsort(codes, kind="stable")
    again = np.zeros(len(codes), dtype=bool)
    again[1:] = (codes[order][1:] == codes[order][:-1]) & (codes[order][1:] >= 0)
    began = np.maximum.accumulate(np.where(again, 0, np.arange(len(codes))))
    later = np.sort(order[again])
    first = np.empty(len(codes), dtype=np.int64)
    first[order] = order[began]
    split = images["split"].combine_chunks().dictionary_encode().indices.fill_null(-1).to_numpy(zero_copy_only=False)
    crossing = split[later] != split[first[later]]

    def named(rows: NDArray[np.int64], at: int) -> str:
        row = int(rows[at])
        name, here, there = images["image"][row], images["split"][row], images["split"][int(first[row])]
        if split[row] != split[first[row]]:
            return f"image '{name}' is in split '{here}' here and in split '{there}' in row {first[row]}"
        return f"image '{name}' is already listed in row {first[row]}"

    two, same = later[crossing], later[~crossing]
    problems.add("image-in-two-splits", file, two, lambda at: named(two, at), "keep it in one of them")
    problems.add("repeated-image", file, same, lambda at: named(same, at), "drop one of the rows")


def _rows(mask: pa.ChunkedArray) -> NDArray[np.int64]:
    return np.flatnonzero(mask.to_numpy())


# Annotation rows


def _check_rows(dataset: Dataset, problems: Problems, progress: Progress) -> None:
    images, classes = Lookup(dataset.images["image"]), Lookup(pa.array(dataset.classes, pa.string()))
    unknown = [[np.nan, np.nan]]  # the size of images that are not in the table
    known = np.stack([_side(dataset.images["width"]), _side(dataset.images["height"])], axis=1)
    sizes, file, offset = np.concatenate([known, unknown]), dataset.where(), 0
    with progress.bar("Checking rows", None, "rows") as bar:
        for batch in dataset.scan():
            columns = RowBatch(batch, images, classes, sizes)
            for check in CHECKS:
                rows = np.flatnonzero(check.find(columns))
                if len(rows):
                    shown = rows[: problems.remaining(check.kind, file)]
                    words = [check.what(record) for record in batch.take(pa.array(shown)).to_pylist()]
                    problems.add(check.kind, file, rows + offset, words.__getitem__, check.remedy, check.severity)
            offset += batch.num_rows
            bar.advance(batch.num_rows)


def _side(column: pa.ChunkedArray) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
    sizes: np.ndarray[tuple[int], np.dtype[np.float64]] = pc.cast(column, pa.float64()).to_numpy()
    return sizes


_EDGE = 1e-3  # how far a box may exceed its image, for coordinates that were rounded to pixels
_PLACE, _SIZE = ("x", "y"), ("w", "h")
_RASTER = ("rle", "rle_height", "rle_width")
NEEDS = {"image": (), "point": _PLACE, "box": _PLACE + _SIZE, "mask": _PLACE + _SIZE + _RASTER}

Mask = NDArray[np.bool_]


class RowBatch:
    """A batch of annotation rows: columns as arrays, and positions of images, labels and kinds in their lists."""

    def __init__(self, batch: pa.RecordBatch, images: Lookup, classes: Lookup, sizes: NDArray[np.float64]) -> None:
        self.batch = batch
        self.image, self.label = images.codes(batch["image"]), classes.codes(batch["label"])
        self.kind = Lookup(pa.array(KINDS, pa.string())).codes(batch["kind"])
        names = (*_PLACE, *_SIZE, *_RASTER)
        self.given: dict[str, Mask] = {
            name: batch[name].is_valid().to_numpy(zero_copy_only=False).astype(bool) for name in names
        }
        self.number: dict[str, NDArray[np.float64]] = {
            name: batch[name].cast(pa.float64()).to_numpy(zero_copy_only=False)  # null becomes NaN
            for name in names
            if name != "rle"
        }
        self.size = sizes[self.image]  # width and height of the image, NaN where it is not known

    def is_kind(self, name: str) -> Mask:
        """Which rows are of this kind."""
        return np.equal(self.kind, KINDS.index(name))

    def of_kind(self, lists: dict[str, tuple[str, ...]], column: str) -> Mask:
        """Which rows are of a kind whose list has the column."""
        return np.isin(self.kind, [code for code, name in enumerate(KINDS) if column in lists[name]])


@dataclass(frozen=True)
class RowCheck:
    """A kind of problem that a row can have.

    Attributes:
        kind: its name.
        find: which rows of a batch have it.
        what: describes the problem of a row.
        remedy: what to do.
        severity: error or warning.
    """

    kind: str
    find: Callable[[RowBatch], Mask]
    what: Callable[[dict[str, Any]], str]
    remedy: str
    severity: Severity = "error"


def _missing(rows: RowBatch) -> Mask:
    return _any(rows.of_kind(NEEDS, name) & ~rows.given[name] for name in rows.given)


def _superfluous(rows: RowBatch) -> Mask:
    known = rows.kind >= 0
    return _any(known & ~rows.of_kind(NEEDS, name) & rows.given[name] for name in rows.given)


def _not_finite(rows: RowBatch) -> Mask:
    return _any(rows.given[name] & ~np.isfinite(rows.number[name]) for name in (*_PLACE, *_SIZE))


def _outside(rows: RowBatch) -> Mask:
    numbers = [rows.number[name] for name in (*_PLACE, *_SIZE)]
    return _any(np.isfinite(number) & ((number < 0) | (number > 1)) for number in numbers)


def _empty(rows: RowBatch) -> Mask:
    return _any(rows.number[name] == 0 for name in _SIZE)


def _sticks_out(rows: RowBatch) -> Mask:
    edges = []
    for place, size in zip(_PLACE, _SIZE, strict=True):
        middle, half = rows.number[place], rows.number[size] / 2
        with np.errstate(invalid="ignore"):
            edges += [middle - half < -_EDGE, middle + half > 1 + _EDGE]
    return _any(edges) & ~_outside(rows) & ~_not_finite(rows)


def _bad_runs(rows: RowBatch) -> Mask:
    """Masks whose run lengths do not fill their raster."""
    bad = np.zeros(rows.batch.num_rows, dtype=bool)
    whole = rows.is_kind("mask") & rows.given["rle"] & rows.given["rle_height"] & rows.given["rle_width"]
    whole_rows = np.flatnonzero(whole)
    for row, rle in zip(whole_rows, rows.batch["rle"].take(pa.array(whole_rows)).to_pylist(), strict=True):
        height, width = rows.number["rle_height"][row], rows.number["rle_width"][row]
        bad[row] = height <= 0 or width <= 0 or _covered(rle) != height * width
    return bad


def _other_shape(rows: RowBatch) -> Mask:
    """Masks whose raster is not the image at another scale; each side may have been rounded to a whole pixel."""
    width, height = rows.size.T
    with np.errstate(invalid="ignore"):
        difference = rows.number["rle_width"] * height - rows.number["rle_height"] * width
        different: Mask = np.abs(difference) > width + height
    return rows.is_kind("mask") & different


def _any(masks: Any) -> Mask:
    found: Mask = np.logical_or.reduce(list(masks))
    return found


def _named(record: dict[str, Any], column: str) -> str:
    value = record[column]
    return f"there is no {column}" if value is None else f"{column} '{value}'"


def _numbers(record: dict[str, Any]) -> str:
    return ", ".join(f"{name} = {record[name]:.6g}" for name in (*_PLACE, *_SIZE) if record[name] is not None)


def _lacks(record: dict[str, Any]) -> str:
    names = [name for name in NEEDS[record["kind"]] if record[name] is None]
    return f"a row of kind {record['kind']} lacks {', '.join(names)}"


def _has_too_much(record: dict[str, Any]) -> str:
    allowed = NEEDS[record["kind"]]
    names = [name for name in (*_PLACE, *_SIZE, *_RASTER) if record[name] is not None and name not in allowed]
    return f"a row of kind {record['kind']} has {', '.join(names)}"


def _covered(rle: bytes) -> int | None:
    """How many pixels run lengths cover, zeros and ones; None if they cannot be read."""
    try:
        return int(masks.runs(rle).sum()) if rle else None
    except ValueError:
        return None


def _raster(record: dict[str, Any]) -> str:
    filled = _covered(record["rle"])
    runs = "the run lengths cannot be read" if filled is None else f"the run lengths cover {filled:,} pixels"
    return f"{runs}, and the raster is {record['rle_width']} × {record['rle_height']}"


CHECKS = (
    RowCheck(
        "unknown-label",
        lambda rows: rows.label < 0,
        lambda record: f"{_named(record, 'label')} is not in the class list" if record["label"] else "label is empty",
        "correct it, add it to the classes, or drop the row",
    ),
    RowCheck(
        "unknown-image",
        lambda rows: rows.image < 0,
        lambda record: f"{_named(record, 'image')} is not in the image table" if record["image"] else "image is empty",
        "correct it, add it to the images, or drop the row",
    ),
    RowCheck(
        "unknown-kind",
        lambda rows: rows.kind < 0,
        lambda record: f"kind is '{record['kind']}'" if record["kind"] else "kind is empty",
        f"use one of {', '.join(KINDS)}",
    ),
    RowCheck("missing-coordinates", _missing, _lacks, "give them, or make it a row of another kind"),
    RowCheck(
        "superfluous-coordinates", _superfluous, _has_too_much, "leave them empty, or make it a row of another kind"
    ),
    RowCheck("coordinates-not-finite", _not_finite, _numbers, "give finite numbers, or drop the row"),
    RowCheck(
        "coordinates-outside",
        _outside,
        lambda record: f"{_numbers(record)}, outside of 0 to 1",
        "divide coordinates by the width and height of the image",
    ),
    RowCheck(
        "empty-box",
        _empty,
        lambda record: f"a {record['kind']} without area, {_numbers(record)}",
        "give it a size, make it a point, or drop the row",
    ),
    RowCheck(
        "box-sticks-out",
        _sticks_out,
        lambda record: f"a {record['kind']} that reaches beyond the image, {_numbers(record)}",
        "check that x and y are its center, and clip it",
        "warning",
    ),
    RowCheck("mask-raster", _bad_runs, _raster, "encode the mask again with its own height and width"),
    RowCheck(
        "mask-shape",
        _other_shape,
        lambda record: (
            f"a raster of {record['rle_width']} × {record['rle_height']} that is not in proportion to the image"
        ),
        "check that height and width are not swapped, in the mask or in the image table",
        "warning",
    ),
)


# Labels


def _check_labels(dataset: Dataset, problems: Problems) -> None:
    """Contradictions between rows, the hierarchy, and classes without a known positive."""
    file, selection = dataset.where(), Selection.of(dataset, None)
    decided = decide(*collect_answers(dataset, selection.position, strict=False))
    keys, values = decided.keys, decided.values
    if len(decided.conflicts) and dataset.conflict == "majority":
        resolve_by_vote(decided, newest_rows(dataset, selection.position, decided.conflicts, strict=False))
    elif len(decided.conflicts):
        shown = decided.conflicts[: problems.remaining("contradiction", file)]
        found = newest_rows(dataset, selection.position, shown, strict=False)
        words = [describe_conflict(dataset, selection, found, int(key)) for key in shown]
        _add_words(problems, "contradiction", file, words, len(decided.conflicts))
    try:
        hierarchy = Hierarchy(dataset.classes, dataset.hierarchy)
    except DatasetError as error:
        what, _, remedy = str(error).rstrip(".").rpartition("; ")
        problems.add("hierarchy", dataset.where("dataset"), [None], what, remedy)
    else:
        keys, values, contradictions = hierarchy.close(keys, values)
        if len(contradictions):
            pairs = contradictions[: problems.remaining("hierarchy-contradiction", file)]
            found = newest_rows(dataset, selection.position, np.unique(pairs), strict=False)
            words = [describe_contradiction(dataset, selection, found, int(low), int(high)) for low, high in pairs]
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
    """Add sentences that end in a semicolon and the remedy."""
    parts = [text.rpartition("; ") for text in words]
    for what, _, remedy in parts:
        problems.add(kind, file, [None], what, remedy)
    if parts:
        problems.add(kind, file, [None] * (count - len(parts)), "", parts[-1][2])
