"""The CSV files of Open Images, read and turned into rows a block at a time."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pa_csv
from numpy.typing import NDArray

from tagfill.errors import DatasetError
from tagfill.formats import text_files
from tagfill.progress import SILENT, Progress

FLAGS = {
    "IsOccluded": "occluded",
    "IsTruncated": "truncated",
    "IsGroupOf": "group",
    "IsDepiction": "depiction",
    "IsInside": "inside",
}
CORNERS = ("XMin", "XMax", "YMin", "YMax")
_TYPES = {
    "ImageID": pa.string(),
    "Source": pa.string(),
    "LabelName": pa.string(),
    "Confidence": pa.float32(),
    **dict.fromkeys(CORNERS, pa.float64()),
    **dict.fromkeys(FLAGS, pa.int8()),
}
_BLOCK = 4 << 20  # bytes


def blocks(path: Path, columns: tuple[str, ...], progress: Progress = SILENT) -> Iterator[pa.RecordBatch]:
    """Some columns of a CSV file."""
    _, header = next(text_files.cells(path))
    text_files.require_distinct(path, header)
    try:
        with (
            pa_csv.open_csv(
                path,
                read_options=pa_csv.ReadOptions(block_size=_BLOCK),
                convert_options=pa_csv.ConvertOptions(
                    include_columns=columns, column_types={name: _TYPES[name] for name in columns}
                ),
            ) as reader,
            progress.bar(f"Reading {path.name}", None, "rows") as bar,
        ):
            for batch in reader:
                yield batch
                bar.advance(batch.num_rows)
    except (pa.ArrowException, KeyError) as error:
        problem = " ".join(str(error).strip("'\"").split())
        raise DatasetError(f"{path} cannot be read: {problem}.") from None


def image_names(ids: pa.Array, folder: str) -> pa.Array:
    """Images' paths below the root."""
    strange = pc.match_substring_regex(ids, r"^$|/|\x00")
    if pc.any(strange).as_py():
        wrong = ids.filter(strange)[0].as_py()
        raise DatasetError(f"'{wrong[:60]}' is not the id of an image of Open Images; mend the file.")
    return pc.binary_join_element_wise(folder + "/", ids, ".jpg", "")


def label_rows(batch: pa.RecordBatch, path: Path, folder: str, names: Mapping[str, str]) -> dict[str, Any]:
    """Columns of rows about whole images, without labels that are no class."""
    wrong = np.flatnonzero(~np.isin(batch["Confidence"].to_numpy(zero_copy_only=False), (0.0, 1.0)))
    if len(wrong):
        row = batch.slice(int(wrong[0]), 1).to_pylist()[0]
        raise DatasetError(
            f"{path}: label {row['LabelName']} of image {row['ImageID']} has a confidence of {row['Confidence']}, but "
            "verified labels have 1 or 0; machine labels are not verified."
        )
    columns = _shared(batch, folder, names)
    kept = columns.pop("kept")
    return {**columns, "present": pc.equal(batch["Confidence"].filter(kept), 1.0)}


def box_rows(batch: pa.RecordBatch, path: Path, folder: str, names: Mapping[str, str]) -> dict[str, Any]:
    """Columns of rows about boxes, without labels that are no class."""
    columns = _shared(batch, folder, names)
    kept = columns.pop("kept")
    left, right, top, bottom = (batch[name].filter(kept).to_numpy(zero_copy_only=False) for name in CORNERS)
    finite = np.isfinite([left, right, top, bottom]).all(axis=0)
    wrong = np.flatnonzero(~((right >= left) & (bottom >= top) & finite))
    if len(wrong):
        row = batch.filter(kept).slice(int(wrong[0]), 1).to_pylist()[0]
        raise DatasetError(f"{path}: a box of {row['LabelName']} in image {row['ImageID']} ends before it begins.")
    size = len(left)
    return {
        **columns,
        "present": pa.array(np.ones(size, dtype=bool)),
        "kind": pa.array(["box"]).take(pa.array(np.zeros(size, dtype=np.int64))),
        "x": (left + right) / 2,
        "y": (top + bottom) / 2,
        "w": right - left,
        "h": bottom - top,
        "flags": _flags(batch.filter(kept)),
    }


def _shared(batch: pa.RecordBatch, folder: str, names: Mapping[str, str]) -> dict[str, Any]:
    coded = batch["LabelName"].dictionary_encode()
    known = pa.array([names.get(identity) for identity in coded.dictionary.to_pylist()], pa.string())
    labels = known.take(coded.indices)
    kept = labels.is_valid()
    return {
        "kept": kept,
        "image": image_names(batch["ImageID"].filter(kept), folder),
        "label": labels.filter(kept),
        "source": batch["Source"].filter(kept),
    }


def _flags(batch: pa.RecordBatch) -> pa.Array:
    """A list of flags for each row, null where it is empty; -1 stands for a flag that nobody checked."""
    given: NDArray[np.bool_] = np.stack(
        [batch[name].to_numpy(zero_copy_only=False) == 1 for name in FLAGS], axis=1
    ).reshape(-1, len(FLAGS))
    counts = given.sum(axis=1)
    offsets = np.concatenate([[0], np.cumsum(counts)]).astype(np.int32)
    values = pa.array(list(FLAGS.values())).take(pa.array(np.nonzero(given)[1]))
    return pa.ListArray.from_arrays(pa.array(offsets), values, mask=pa.array(counts == 0))
