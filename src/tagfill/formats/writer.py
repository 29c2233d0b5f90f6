"""What writers share: checks before the first file is touched, and the dataset image by image.

A format that cannot express something refuses it here, in one sentence, unless an option of the writer says what to
give up.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from tagfill.dataset import Dataset
from tagfill.errors import DatasetError, one_of
from tagfill.formats.dataset_builder import check_absent_means
from tagfill.formats.image_files import check_image_path
from tagfill.labels import NEGATIVE, POSITIVE, UNKNOWN, LabelMatrix

_ROWS_AT_ONCE = 1 << 12  # turned into Python objects
_IMAGES_AT_ONCE = 4096


def require_splits(dataset: Dataset, known: Collection[str], format_name: str) -> None:
    """Raise if the dataset has a split that the format has no place for."""
    if other := next((split for split in dataset.splits if split not in known), None):
        raise DatasetError(
            f"{format_name} has the splits {' and '.join(known)}, but {dataset.name} also has {other}; rename or merge "
            "it."
        )


def require_complete(labels: LabelMatrix, unknown: str, format_name: str, split: str | None = None) -> None:
    """Raise if labels are unknown, for a format that is read as complete.

    Args:
        labels: to be written.
        unknown: the writer's option: `refuse`, or `absent` to write unknown labels as absent.
        format_name: for the message.
        split: that the labels belong to, if not all of the dataset; for the message.
    """
    one_of("unknown", unknown, ["refuse", "absent"])
    count = _count_unknown(labels)
    if count and unknown == "refuse":
        raise DatasetError(
            f"{format_name} cannot express unknown labels, but {count:,} of {len(labels) * labels.width:,} "
            f"labels{_of(split)} are unknown; unknown='absent' writes them as absent."
        )


def require_decided(labels: LabelMatrix, undecided: str, format_name: str, split: str | None = None) -> None:
    """Raise if labels are "cannot tell", for a format that has no such state.

    Args:
        labels: to be written.
        undecided: the writer's option: `refuse`, or `drop` to write such labels as not annotated.
        format_name: for the message.
        split: that the labels belong to, if not all of the dataset; for the message.
    """
    one_of("undecided", undecided, ["refuse", "drop"])
    count = int(np.count_nonzero(labels.values == UNKNOWN))
    if count and undecided == "refuse":
        raise DatasetError(
            f"{format_name} cannot express 'cannot tell', but {count:,} labels{_of(split)} are undecided; "
            "undecided='drop' writes them as not annotated."
        )


def check_present_only(labels: LabelMatrix, absent_means: str | None, format_name: str) -> None:
    """Raise if labels are absent and others unknown, for a format that lists present labels only.

    Args:
        labels: to be written.
        absent_means: how the files will be read: `absent` writes unknown labels as absent, `unknown` drops what was
            verified absent, None loses nothing.
        format_name: for the message.
    """
    if absent_means is not None:
        check_absent_means(absent_means)
        return
    absent = int(np.count_nonzero(labels.values == NEGATIVE))
    unknown = _count_unknown(labels)
    if absent and unknown:
        raise DatasetError(
            f"{format_name} lists present labels only, but {absent:,} are verified absent and {unknown:,} unknown; "
            "absent_means='absent' writes the unknown ones as absent, absent_means='unknown' drops the absent ones."
        )


@dataclass(frozen=True)
class Location:
    """A row with a location: position of its image within the split, position of its class, and the row itself."""

    image: int
    label: int
    row: dict[str, Any]


def location_kinds(masks: str) -> tuple[str, ...]:
    """Return the kinds of locations of a format that has boxes only: masks are refused, or written as their boxes."""
    one_of("masks", masks, ("refuse", "box"))
    return ("box", "mask") if masks == "box" else ("box",)


def iter_locations(
    dataset: Dataset, split: str, labels: LabelMatrix, kinds: Collection[str], format_name: str
) -> Iterator[Location]:
    """Iterate over the rows of a split that locate a present label; rows that newer ones overrule are left out.

    Args:
        dataset: to be written.
        split: of the dataset.
        labels: of the split.
        kinds: of locations that the format can carry.
        format_name: for messages.

    Raises:
        DatasetError: a row is of another kind, or says that a label is absent in a region.
    """
    names = pa.array(dataset.names(dataset.split(split)), pa.string())
    codes = {label: code for code, label in enumerate(dataset.classes)}
    for batch in dataset.scan():
        located = pc.not_equal(batch["kind"].cast(pa.string()), "image")
        found = batch.filter(pc.and_(located, pc.is_in(batch["image"].cast(pa.string()), value_set=names)))
        for start in range(0, found.num_rows, _ROWS_AT_ONCE):
            rows = found.slice(start, _ROWS_AT_ONCE)
            positions = pc.index_in(rows["image"].cast(pa.string()), value_set=names).to_pylist()
            for position, row in zip(positions, rows.to_pylist(), strict=True):
                _check_location(row, kinds, format_name)
                code = codes[row["label"]]
                if row["present"] and label_state(labels, position, code) == POSITIVE:
                    yield Location(position, code, row)


def require_located(
    dataset: Dataset, split: str, labels: LabelMatrix, located: NDArray[np.int64], format_name: str
) -> None:
    """Raise if a present label has no location, for a format that has no other way to say present.

    Args:
        dataset: to be written.
        split: of the dataset.
        labels: of the split.
        located: pairs with a location, as image × L + class.
        format_name: for the message.
    """
    chosen = labels.values == POSITIVE
    present = labels.images()[chosen] * labels.width + labels.classes[chosen]
    bare = np.setdiff1d(present, located)
    if len(bare):
        image, label = divmod(int(bare[0]), labels.width)
        name = dataset.names(dataset.split(split))[image]
        raise DatasetError(
            f"{format_name} needs a box or a mask for every present label, but {len(bare):,} labels of split {split} "
            f"have none, the first being '{dataset.classes[label]}' of {name}; write another format, or leave them out."
        )


def label_state(labels: LabelMatrix, image: int, label: int) -> int:
    """Return what is known about one (image, label) pair: POSITIVE, NEGATIVE or UNKNOWN."""
    start, end = labels.starts[image], labels.starts[image + 1]
    at = start + int(np.searchsorted(labels.classes[start:end], label))
    return int(labels.values[at]) if at < end and labels.classes[at] == label else UNKNOWN


@dataclass(frozen=True)
class ImageRows:
    """One image of a dataset.

    Attributes:
        image: its identity.
        split: that it belongs to.
        size: width and height, if the dataset knows them.
        states: the decided state of each label that was annotated; None is "cannot tell".
        rows: its annotation rows, in the order of the dataset.
    """

    image: str
    split: str
    size: tuple[int, int] | None
    states: dict[str, bool | None]
    rows: list[dict[str, Any]]

    @property
    def present(self) -> list[str]:
        """Present labels, in the order of the classes."""
        return [label for label, state in self.states.items() if state]

    def locations(self, *kinds: str) -> list[dict[str, Any]]:
        """Return the rows of these kinds that locate a present label; rows that newer ones overrule are left out."""
        return [row for row in self.rows if row["kind"] in kinds and row["present"] and self.states.get(row["label"])]


def iter_images(dataset: Dataset, *, with_rows: bool = True) -> Iterator[ImageRows]:
    """Iterate over images in the order of the dataset; without rows it is faster and needs less memory."""
    labels = dataset.labels()
    words = {POSITIVE: True, NEGATIVE: False}
    rows = _rows_by_image(dataset) if with_rows else iter([[]] * len(dataset))
    for at, (record, its_rows) in enumerate(zip(dataset.images.to_pylist(), rows, strict=True)):
        check_image_path(record["image"], dataset.name)
        entries = slice(int(labels.starts[at]), int(labels.starts[at + 1]))
        known = zip(labels.classes[entries].tolist(), labels.values[entries].tolist(), strict=True)
        yield ImageRows(
            image=record["image"],
            split=record["split"],
            size=(record["width"], record["height"]) if record["width"] and record["height"] else None,
            states={dataset.classes[label]: words.get(value) for label, value in known},
            rows=its_rows,
        )


def _count_unknown(labels: LabelMatrix) -> int:
    """Count the pairs that are neither present nor absent, including "cannot tell"."""
    known = np.count_nonzero((labels.values == POSITIVE) | (labels.values == NEGATIVE))
    return len(labels) * labels.width - int(known)


def _of(split: str | None) -> str:
    return "" if split is None else f" of split {split}"


def _check_location(row: dict[str, Any], kinds: Collection[str], format_name: str) -> None:
    if row["kind"] not in kinds:
        hint = ", and masks='box' writes the box of a mask" if row["kind"] == "mask" else ""
        raise DatasetError(
            f"{format_name} cannot carry a {row['kind']}, but '{row['label']}' of {row['image']} has one; "
            f"it carries {' and '.join(kinds)} only{hint}."
        )
    if row["present"] is not None and not row["present"]:
        raise DatasetError(
            f"{format_name} cannot express that a region is empty, but a {row['kind']} says so about '{row['label']}' "
            f"in {row['image']}; drop that row."
        )


def _rows_by_image(dataset: Dataset) -> Iterator[list[dict[str, Any]]]:
    """Iterate over the rows of each image, a few thousand images at a time."""
    rows = dataset.rows()
    codes = pc.index_in(rows["image"], value_set=dataset.images["image"]).to_numpy(zero_copy_only=False)
    order = np.argsort(codes, kind="stable")
    starts = np.searchsorted(codes[order], np.arange(len(dataset) + 1)).tolist()
    for first in range(0, len(dataset), _IMAGES_AT_ONCE):
        bounds = starts[first : first + _IMAGES_AT_ONCE + 1]
        block = rows.take(pa.array(order[bounds[0] : bounds[-1]])).to_pylist()
        for start, stop in pairwise(bounds):
            yield block[start - bounds[0] : stop - bounds[0]]
