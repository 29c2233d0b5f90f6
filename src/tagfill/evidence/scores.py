"""Evidence: what another tagger says about (image, label) pairs, kept beside a dataset and never mixed with its labels.

A dataset may have several, each a file `DATASET/evidence/NAME.parquet` with one row per score:

| column | meaning |
|---|---|
| image, label | the pair; both are names of the dataset |
| score | what the tagger says, on the scale that the file names |

Parquet's metadata hold the scale, the source and the time of the import. A pair without a row is missing: nothing is
known about it, and it is never taken as a low score. In memory, scores are compressed sparse rows like labels, so that
cost grows with the number of scores and not with images × classes.
"""

from __future__ import annotations

import json
import os
import re
import shutil
from collections.abc import Iterator
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from numpy.typing import NDArray

from tagfill.dataset import Dataset
from tagfill.errors import TagfillError, one_of, unknown_name
from tagfill.io import atomic_write
from tagfill.labels import expand_ranges

FOLDER = "evidence"
SCALES = ("logits", "probabilities", "softmax", "cosines")
SCHEMA = pa.schema(
    [
        pa.field("image", pa.dictionary(pa.int32(), pa.string()), nullable=False),
        pa.field("label", pa.dictionary(pa.int32(), pa.string()), nullable=False),
        pa.field("score", pa.float32(), nullable=False),
    ]
)
_METADATA = b"tagfill.evidence"
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
_BATCH = 1 << 18


@dataclass(frozen=True)
class ScoreMatrix:
    """Scores of N images and L classes, in compressed sparse rows.

    Attributes:
        starts: N+1 offsets into `classes` and `values`.
        classes: class of each score, ascending within an image.
        values: the scores.
        width: number of classes, L.
    """

    starts: NDArray[np.int64]
    classes: NDArray[np.int32]
    values: NDArray[np.float32]
    width: int

    @classmethod
    def from_keys(cls, keys: NDArray[np.int64], values: NDArray[np.floating], shape: tuple[int, int]) -> ScoreMatrix:
        """Build from distinct ascending keys image·L + class, and the score of each."""
        size, width = shape
        starts = np.searchsorted(keys, np.arange(size + 1, dtype=np.int64) * width).astype(np.int64, copy=False)
        return cls(starts, (keys % width).astype(np.int32), values.astype(np.float32, copy=False), width)

    @classmethod
    def from_dense(cls, scores: NDArray[np.floating]) -> ScoreMatrix:
        """Build from N×L scores, NaN where there is none; for small data.

        >>> ScoreMatrix.from_dense(np.array([[0.5, np.nan], [np.nan, 2.0]])).rows(np.array([1])).tolist()
        [[nan, 2.0]]
        """
        keys = np.flatnonzero(~np.isnan(scores))
        return cls.from_keys(keys, scores.ravel()[keys], (scores.shape[0], scores.shape[1]))

    def __len__(self) -> int:
        return len(self.starts) - 1

    def rows(self, index: NDArray[np.integer]) -> NDArray[np.float32]:
        """The scores of these images: B×L, NaN where there is none."""
        index = np.asarray(index, dtype=np.int64)
        dense = np.full((len(index), self.width), np.nan, dtype=np.float32)
        entry, row = expand_ranges(self.starts[index], self.starts[index + 1] - self.starts[index])
        dense[row, self.classes[entry]] = self.values[entry]
        return dense

    def images(self) -> NDArray[np.int64]:
        """The image of each score."""
        return np.repeat(np.arange(len(self)), np.diff(self.starts))

    def take(self, index: NDArray[np.integer]) -> ScoreMatrix:
        """The scores of these images, in this order."""
        index = np.asarray(index, dtype=np.int64)
        counts = self.starts[index + 1] - self.starts[index]
        entry, _ = expand_ranges(self.starts[index], counts)
        starts = np.concatenate([np.zeros(1, dtype=np.int64), np.cumsum(counts)])
        return ScoreMatrix(starts, self.classes[entry], self.values[entry], self.width)

    def with_values(self, values: NDArray[np.floating]) -> ScoreMatrix:
        """Other scores of the same pairs."""
        return replace(self, values=values.astype(np.float32, copy=False))


@dataclass(frozen=True)
class Evidence:
    """Scores of a tagger, and where they come from.

    Attributes:
        name: of the evidence; a dataset has at most one of a name.
        scale: `logits`; `probabilities`; `softmax`, probabilities that sum to one over the classes of an image; or
            `cosines`, similarities whose scale means nothing.
        source: file, model or text that the scores come from.
        time: of the import, in UTC.
        scores: of all images of the dataset, in the order of its image table.
    """

    name: str
    scale: str
    source: str
    time: datetime
    scores: ScoreMatrix

    def __post_init__(self) -> None:
        check_name(self.name)
        one_of("scale", self.scale, SCALES)

    def __len__(self) -> int:
        """The number of scores."""
        return len(self.scores.values)

    def __repr__(self) -> str:
        images = int((np.diff(self.scores.starts) > 0).sum())
        return f"<evidence {self.name}: {len(self):,} {self.scale} of {images:,} images, from {self.source}>"

    def save(self, dataset: Dataset, *, force: bool = False) -> Path:
        """Write the file beside the dataset, atomically.

        Args:
            dataset: opened from its folder.
            force: replace evidence of the same name.
        """
        path = evidence_path(dataset, self.name)
        if path.exists() and not force:
            raise TagfillError(f"{path} exists already; choose another name, or give --force to replace what it says.")
        metadata = {
            "name": self.name, "scale": self.scale, "source": self.source, "time": self.time.isoformat(),
        }  # fmt: skip
        schema = SCHEMA.with_metadata({_METADATA: json.dumps(metadata, ensure_ascii=False).encode()})
        names = dataset.images["image"].combine_chunks()
        with atomic_write(path) as file, pq.ParquetWriter(file, schema, compression="zstd") as parquet:
            for start in range(0, len(self), _BATCH):
                parquet.write_batch(_batch(self.scores, slice(start, start + _BATCH), names, dataset.classes, schema))
        return path


def _batch(
    scores: ScoreMatrix, part: slice, names: pa.Array, classes: tuple[str, ...], schema: pa.Schema
) -> pa.RecordBatch:
    entries = np.arange(part.start, min(part.stop, len(scores.values)))
    images, position = np.unique(np.searchsorted(scores.starts, entries, "right") - 1, return_inverse=True)
    columns = [
        pa.DictionaryArray.from_arrays(pa.array(position.astype(np.int32)), names.take(pa.array(images))),
        pa.DictionaryArray.from_arrays(pa.array(scores.classes[entries]), pa.array(classes, pa.string())),
        pa.array(scores.values[entries]),
    ]
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def check_name(name: str) -> None:
    """Raise if evidence cannot have this name, which is also that of a file."""
    if not _NAME.fullmatch(name):
        raise TagfillError(
            f"Evidence cannot be named '{name}'; use up to 64 letters, digits, dots, dashes and underscores."
        )


def evidence_path(dataset: Dataset, name: str) -> Path:
    """The file of evidence of a dataset on disk."""
    if dataset.folder is None:
        raise TagfillError(f"The dataset {dataset.name} is not saved yet; save it before evidence is stored beside it.")
    check_name(name)
    return dataset.folder / FOLDER / f"{name}.parquet"


def list_evidence(dataset: Dataset) -> list[str]:
    """Names of the evidence of a dataset, sorted; none for a dataset that is not on disk."""
    if dataset.folder is None:
        return []
    return sorted(path.stem for path in (dataset.folder / FOLDER).glob("*.parquet") if _NAME.fullmatch(path.stem))


def open_evidence(dataset: Dataset, name: str) -> Evidence:
    """Read evidence of a dataset.

    Raises:
        TagfillError: if there is none of this name, or if its file is damaged. Scores of images or classes that the
            dataset no longer has are left out.

    Example:
        >>> from tagfill.evidence import open_evidence
        >>> open_evidence(Dataset.open("photos"), "clip")  # doctest: +SKIP
        <evidence clip: 114,340 cosines of 5,717 images, from scores.parquet>
    """
    path = evidence_path(dataset, name)
    if not path.is_file():
        if known := list_evidence(dataset):
            raise unknown_name("evidence", name, known, of=f"dataset {dataset.name}")
        raise TagfillError(
            f"The dataset {dataset.name} has no evidence '{name}'; import some with "
            f"'tagfill evidence import SCORES {dataset.folder} --name {name}'."
        )
    about = read_description(path)
    shape = (len(dataset), len(dataset.classes))
    keys, values = [np.empty(0, np.int64)], [np.empty(0, np.float32)]
    try:
        for batch in _stream(path):
            image, label, score = locate(batch, dataset)
            there = (image >= 0) & (label >= 0)
            keys.append(image[there] * shape[1] + label[there])
            values.append(score[there].astype(np.float32))
    except (pa.ArrowException, OSError, ValueError) as error:
        raise TagfillError(f"{path} is damaged: {str(error).splitlines()[0]}; import it again.") from None
    key, value = np.concatenate(keys), np.concatenate(values)
    order = np.argsort(key, kind="stable")
    matrix = ScoreMatrix.from_keys(key[order], value[order], shape)
    return Evidence(about["name"], about["scale"], about["source"], datetime.fromisoformat(about["time"]), matrix)


def copy_evidence(dataset: Dataset, folder: Path) -> None:
    """Give another dataset folder the evidence of a dataset, as links to the same files where that is possible.

    Args:
        dataset: whose evidence is copied.
        folder: of a dataset of the same images; evidence of the same names there is replaced.
    """
    for name in list_evidence(dataset):
        source, target = evidence_path(dataset, name), folder / FOLDER / f"{name}.parquet"
        target.parent.mkdir(parents=True, exist_ok=True)
        target.unlink(missing_ok=True)
        try:
            os.link(source, target)
        except OSError:  # another file system, or one without links
            shutil.copyfile(source, target)


def read_description(path: Path) -> dict[str, Any]:
    """Name, scale, source and time of evidence, and its number of scores, without reading them."""
    try:
        file = pq.read_metadata(path)
        about: dict[str, Any] = json.loads((file.metadata or {})[_METADATA])
        if not {"name", "scale", "source", "time"} <= about.keys():
            raise ValueError
    except (pa.ArrowException, OSError, ValueError, KeyError):
        raise TagfillError(f"{path} is damaged or no file of 'tagfill evidence'; import the scores again.") from None
    return {**about, "scores": file.num_rows}


def locate(
    batch: pa.RecordBatch, dataset: Dataset
) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.floating]]:
    """Row of the image table, class and score of each row of a batch; -1 for names that the dataset does not have."""
    found = []
    for column, known in (("image", dataset.images["image"]), ("label", pa.array(dataset.classes, pa.string()))):
        values = batch[column]
        coded = values if pa.types.is_dictionary(values.type) else values.dictionary_encode()
        position = pc.index_in(coded.dictionary.cast(pa.string()), value_set=known).fill_null(-1).to_numpy()
        found.append(position.astype(np.int64)[coded.indices.to_numpy()])
    return found[0], found[1], batch["score"].to_numpy(zero_copy_only=False)


def now() -> datetime:
    """The time of an import, in whole seconds."""
    return datetime.now(UTC).replace(microsecond=0)


def _stream(path: Path) -> Iterator[pa.RecordBatch]:
    with pq.ParquetFile(path, read_dictionary=["image", "label"]) as file:
        yield from file.iter_batches(batch_size=_BATCH)
