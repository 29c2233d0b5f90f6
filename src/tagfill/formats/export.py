"""What a writer asks before it writes: which labels were decided, and which locations show them.

A format that cannot say something refuses it here, in one sentence, before a file is touched.


A dataset image by image: its record, what is decided about it, and its rows.
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
from tagfill.formats.image_files import check_name
from tagfill.labels import NEGATIVE, POSITIVE, UNKNOWN, LabelMatrix

_MASK_HINT = ", and masks='box' writes the box of a mask"
_ROWS = 1 << 12  # as Python objects at a time


@dataclass(frozen=True)
class Location:
    """A row that shows where something is: positions of its image within the split and of its class, and the row."""

    image: int
    label: int
    row: dict[str, Any]


def require_splits(data: Dataset, known: Collection[str], format_name: str) -> None:
    """Refuse a split that a format has no place for."""
    if other := next((split for split in data.splits if split not in known), None):
        raise DatasetError(
            f"{format_name} has the splits {' and '.join(known)}, but {data.name} has {other} too; rename or merge it."
        )


def locations(
    data: Dataset, split: str, labels: LabelMatrix, kinds: Collection[str], format_name: str
) -> Iterator[Location]:
    """The rows of a split that show something where it is; those that newer rows overruled are left out.

    Args:
        data: to be written.
        split: of it.
        labels: of the split.
        kinds: that the format can carry.
        format_name: for messages.

    Raises:
        DatasetError: a row is of another kind, or speaks of a region in which a label is absent.
    """
    names = pa.array(data.names(data.split(split)), pa.string())
    codes = {label: code for code, label in enumerate(data.classes)}
    for batch in data.scan():
        located = pc.not_equal(batch["kind"].cast(pa.string()), "image")
        found = batch.filter(pc.and_(located, pc.is_in(batch["image"].cast(pa.string()), value_set=names)))
        for start in range(0, found.num_rows, _ROWS):
            rows = found.slice(start, _ROWS)
            places = pc.index_in(rows["image"].cast(pa.string()), value_set=names).to_pylist()
            for place, row in zip(places, rows.to_pylist(), strict=True):
                _refuse_unsayable(row, kinds, format_name)
                code = codes[row["label"]]
                if row["present"] and state(labels, place, code) == POSITIVE:
                    yield Location(place, code, row)


def box_kinds(masks: str) -> tuple[str, ...]:
    """The kinds of locations for a format that has boxes only: masks are refused, or written as their boxes."""
    one_of("masks", masks, ("refuse", "box"))
    return ("box", "mask") if masks == "box" else ("box",)


def state(labels: LabelMatrix, image: int, label: int) -> int:
    """What is known about one pair."""
    start, end = labels.starts[image], labels.starts[image + 1]
    at = start + int(np.searchsorted(labels.classes[start:end], label))
    return int(labels.values[at]) if at < end and labels.classes[at] == label else UNKNOWN


def pairs(labels: LabelMatrix, value: int) -> NDArray[np.int64]:
    """The pairs of a state as image × L + class, ascending."""
    chosen = labels.values == value
    keys: NDArray[np.int64] = labels.images()[chosen] * labels.width + labels.classes[chosen]
    return keys


def require_located(
    data: Dataset,
    split: str,
    labels: LabelMatrix,
    located: NDArray[np.int64],
    format_name: str,
    classes: Collection[int] | None = None,
) -> None:
    """Refuse present labels without a location, for a format that has no other way to say present.

    Args:
        data: to be written.
        split: of it.
        labels: of the split.
        located: pairs with a location.
        format_name: for the message.
        classes: those that need one, if not all do.
    """
    bare = np.setdiff1d(pairs(labels, POSITIVE), located)
    if classes is not None:
        bare = bare[np.isin(bare % max(labels.width, 1), list(classes))]
    if len(bare):
        image, label = divmod(int(bare[0]), labels.width)
        name = data.names(data.split(split))[image]
        raise DatasetError(
            f"{format_name} needs a box or a mask of whatever is present, but {len(bare):,} labels of split {split} "
            f"have none, the first being '{data.classes[label]}' of {name}; write another format, or leave them out."
        )


def _refuse_unsayable(row: dict[str, Any], kinds: Collection[str], format_name: str) -> None:
    if row["kind"] not in kinds:
        raise DatasetError(
            f"{format_name} cannot carry a {row['kind']}, but '{row['label']}' of {row['image']} has one; "
            f"it carries {' and '.join(kinds)} only{_MASK_HINT if row['kind'] == 'mask' else ''}."
        )
    if row["present"] is not None and not row["present"]:
        raise DatasetError(
            f"{format_name} cannot say that a region is empty, but a {row['kind']} says so of '{row['label']}' in "
            f"{row['image']}; drop that row."
        )


_IMAGES_AT_ONCE = 4096


@dataclass(frozen=True)
class ImageRows:
    """One image of a dataset.

    Attributes:
        image: its identity.
        split: that it belongs to.
        size: width and height, if the dataset knows them.
        states: what is decided about each label that somebody looked at; None is "cannot tell".
        rows: its annotation rows, in the order of the dataset.
    """

    image: str
    split: str
    size: tuple[int, int] | None
    states: dict[str, bool | None]
    rows: list[dict[str, Any]]

    @property
    def present(self) -> list[str]:
        """Labels that it shows, in the order of the classes."""
        return [label for label, state in self.states.items() if state]

    def locations(self, *kinds: str) -> list[dict[str, Any]]:
        """Rows of these kinds that show a label where it is; those that a newer row overruled are left out."""
        return [row for row in self.rows if row["kind"] in kinds and row["present"] and self.states.get(row["label"])]


def by_image(dataset: Dataset, *, with_rows: bool = True) -> Iterator[ImageRows]:
    """Every image in the order of the dataset; without rows it is quicker and needs less memory."""
    labels = dataset.labels()
    words = {POSITIVE: True, NEGATIVE: False}
    rows = _rows_by_image(dataset) if with_rows else iter([[]] * len(dataset))
    for at, (record, its_rows) in enumerate(zip(dataset.images.to_pylist(), rows, strict=True)):
        check_name(record["image"], dataset.name)
        entries = slice(int(labels.starts[at]), int(labels.starts[at + 1]))
        known = zip(labels.classes[entries].tolist(), labels.values[entries].tolist(), strict=True)
        yield ImageRows(
            image=record["image"],
            split=record["split"],
            size=(record["width"], record["height"]) if record["width"] and record["height"] else None,
            states={dataset.classes[label]: words.get(value) for label, value in known},
            rows=its_rows,
        )


def _rows_by_image(dataset: Dataset) -> Iterator[list[dict[str, Any]]]:
    """The rows of each image, some thousand images at a time."""
    rows = dataset.rows()
    codes = pc.index_in(rows["image"], value_set=dataset.images["image"]).to_numpy(zero_copy_only=False)
    order = np.argsort(codes, kind="stable")
    starts = np.searchsorted(codes[order], np.arange(len(dataset) + 1)).tolist()
    for first in range(0, len(dataset), _IMAGES_AT_ONCE):
        bounds = starts[first : first + _IMAGES_AT_ONCE + 1]
        block = rows.take(pa.array(order[bounds[0] : bounds[-1]])).to_pylist()
        for start, stop in pairwise(bounds):
            yield block[start - bounds[0] : stop - bounds[0]]
