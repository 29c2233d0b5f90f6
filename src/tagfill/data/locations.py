"""Locations of labels: the points, boxes and masks of a split, stored compactly and looked up by image.

A row is a location if it has present=true and kind point, box or mask, the label of its image is resolved as present,
and no newer row about the same image and label locates it again or says anything other than present. A newer row that
only confirms the image's label, as a reviewer does, does not change its locations. A row with present=false is about
its region only and is not a location. Storage is flat: 36 bytes per location, its run lengths if it is a mask, and 8
bytes per image; nothing grows with images × classes.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from tagfill.contract import Marks
from tagfill.dataset import KINDS, Dataset
from tagfill.dataset.lookup import Lookup
from tagfill.dataset.resolve import NO_TIME, Selection, stream_answers
from tagfill.errors import DatasetError
from tagfill.labels import POSITIVE, LabelMatrix, expand_ranges, in_sorted

_COLUMNS = ["image", "label", "present", "kind", "x", "y", "w", "h", "rle", "rle_height", "rle_width", "time"]
_MASK = pa.struct([("rle", pa.large_binary()), ("height", pa.int32()), ("width", pa.int32())])


@dataclass(frozen=True)
class Locations:
    """All locations of the images of a split.

    Attributes:
        starts: N+1 offsets into the other arrays; image i of the split has locations starts[i] to starts[i+1].
        label: class of each location.
        box: n×4 float32, center and size relative to the image; a point has size 0.
        masks: run lengths, height and width of each mask, null for points and boxes.
    """

    starts: NDArray[np.int64]
    label: NDArray[np.int32]
    box: NDArray[np.float32]
    masks: pa.StructArray

    @classmethod
    def read(cls, dataset: Dataset, split: str) -> Locations:
        """Read the locations of a split, in one pass over its rows, and a second one if rows have times.

        >>> Locations.read(Dataset.open("my-data"), "train").of(np.array([0])).label  # doctest: +SKIP
        array([3, 3, 17])
        """
        selection = Selection.of(dataset, split)
        found = _LocatedRows.scan(dataset, selection, dataset.labels(split))
        if found.timed:
            found = found.newest(dataset, selection)
        order = np.argsort(found.keys, kind="stable")
        image, width = found.keys[order] // len(dataset.classes), len(dataset.classes)
        starts = np.searchsorted(image, np.arange(len(selection.rows) + 1))
        label = (found.keys[order] % width).astype(np.int32)
        return cls(starts, label, found.box[order], found.masks.take(pa.array(order)))

    def __len__(self) -> int:
        return len(self.label)

    @property
    def nbytes(self) -> int:
        """Size in memory, in bytes."""
        return int(self.starts.nbytes + self.label.nbytes + self.box.nbytes + self.masks.nbytes)

    def of(self, index: NDArray[np.integer]) -> Marks:
        """Return the locations of these images of the split; `image` of the result is a position in `index`."""
        index = np.asarray(index, dtype=np.int64)
        entry, row = expand_ranges(self.starts[index], self.starts[index + 1] - self.starts[index])
        chosen = self.masks.take(pa.array(entry))
        masks = tuple(
            None if mask is None else (mask["rle"], mask["height"], mask["width"]) for mask in chosen.to_pylist()
        )
        return Marks(row, self.label[entry].astype(np.int64), self.box[entry].astype(np.float64), masks)


@dataclass(frozen=True)
class _LocatedRows:
    """Located rows in the order of the table: key image·L + class, box, mask, time."""

    keys: NDArray[np.int64]
    box: NDArray[np.float32]
    masks: pa.StructArray
    times: NDArray[np.int64]
    timed: bool

    @classmethod
    def scan(cls, dataset: Dataset, selection: Selection, labels: LabelMatrix) -> _LocatedRows:
        """Find the located rows of labels that are present, and whether any row of the dataset has a time."""
        images, classes = Lookup(dataset.images["image"]), Lookup(pa.array(dataset.classes, pa.string()))
        kinds, width = Lookup(pa.array(KINDS, pa.string())), len(dataset.classes)
        positive = labels.values == POSITIVE
        present = labels.images()[positive] * width + labels.classes[positive]
        keys, boxes, masks, times = [np.empty(0, np.int64)], [np.empty((0, 4), np.float32)], [pa.nulls(0, _MASK)], []
        timed, offset = False, 0
        for batch in dataset.scan(_COLUMNS):
            timed = timed or batch["time"].null_count < batch.num_rows
            kind = kinds.codes(batch["kind"])
            located = pc.fill_null(batch["present"], False).to_numpy(zero_copy_only=False)
            use = np.flatnonzero(located & (kind > KINDS.index("image")))
            image = selection.position[images.codes(batch["image"].take(pa.array(use)))]
            key = image * width + classes.codes(batch["label"].take(pa.array(use)))
            chosen = (image >= 0) & in_sorted(present, key)
            use, key = use[chosen], key[chosen]
            rows = batch.take(pa.array(use))
            keys.append(key)
            boxes.append(_boxes(rows, kind[use] == KINDS.index("point"), use + offset, dataset))
            masks.append(_masks(rows, kind[use] == KINDS.index("mask")))
            times.append(pc.fill_null(rows["time"].cast(pa.int64()), NO_TIME).to_numpy(zero_copy_only=False))
            offset += batch.num_rows
        time = np.concatenate([np.empty(0, np.int64), *times])
        return cls(np.concatenate(keys), np.concatenate(boxes), pa.concat_arrays(masks), time, timed)

    def newest(self, dataset: Dataset, selection: Selection) -> _LocatedRows:
        """Keep those that no newer row about the same image and label locates again, denies or doubts."""
        pairs = np.unique(self.keys)
        newest = np.full(len(pairs), NO_TIME)
        np.maximum.at(newest, np.searchsorted(pairs, self.keys), self.times)
        for answers in stream_answers(dataset, selection.position):
            if answers.times is not None:
                about = np.flatnonzero((answers.values != POSITIVE) & in_sorted(pairs, answers.keys))
                np.maximum.at(newest, np.searchsorted(pairs, answers.keys[about]), answers.times[about])
        live = np.flatnonzero(self.times == newest[np.searchsorted(pairs, self.keys)])
        return _LocatedRows(
            self.keys[live], self.box[live], self.masks.take(pa.array(live)), self.times[live], self.timed
        )


def _boxes(
    rows: pa.RecordBatch, point: NDArray[np.bool_], number: NDArray[np.int64], dataset: Dataset
) -> NDArray[np.float32]:
    """Center and size of each row; raise for a row without coordinates."""
    columns = [pc.fill_null(rows[name], np.nan).to_numpy(zero_copy_only=False) for name in ("x", "y", "w", "h")]
    box = np.stack(columns, axis=1).astype(np.float32)
    box[point, 2:] = 0
    if not np.isfinite(box).all():
        row = number[np.flatnonzero(~np.isfinite(box).all(axis=1))[0]]
        raise DatasetError(
            f"{dataset.where()}, row {row}: a location needs x and y, and w and h unless it is a point; "
            "'tagfill inspect' names every such row."
        )
    return box


def _masks(rows: pa.RecordBatch, mask: NDArray[np.bool_]) -> pa.StructArray:
    """Run lengths with their height and width, null for points and boxes."""
    drawn = mask & rows["rle"].is_valid().to_numpy(zero_copy_only=False)
    parts = [rows["rle"].cast(pa.large_binary()), rows["rle_height"], rows["rle_width"]]
    return pa.StructArray.from_arrays(parts, fields=list(_MASK), mask=pa.array(~drawn))
