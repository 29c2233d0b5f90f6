"""Synthetic sources of any size, written in little memory: a long table of labels, and predictions in shards."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from numpy.typing import NDArray

CLASSES = 20_000
ROWS_PER_PHOTO = 4
CHUNK = 1 << 18  # photos whose rows are written, shuffled, together
SHARD = 1 << 20  # photos of a file of predictions
LOOKUPS = 0.01  # share of rows that are about a photo of long ago
PREDICTED = 4  # labels of a photo in a file of predictions

LABELS = pa.array([f"/m/{code:05x}" for code in range(CLASSES)], pa.string())


@dataclass(frozen=True)
class Written:
    """What a source holds."""

    photos: int
    rows: int
    bytes: int


def write_labels(path: Path, photos: int, seed: int = 0) -> Written:
    """Write a long table (image, label, value, split) as Parquet.

    Each photo has `ROWS_PER_PHOTO` rows on average, of distinct classes: few classes are frequent and many are rare.
    Rows come in the order in which photos arrive, shuffled within a chunk; one row in a hundred repeats what was said
    about a photo of an earlier chunk.
    """
    rng, rows, earlier = np.random.default_rng(seed), 0, np.empty(0, np.int64)
    fields = [("image", _TEXT), ("label", _TEXT), ("value", pa.bool_()), ("split", _TEXT)]
    with pq.ParquetWriter(path, pa.schema(fields), compression="zstd") as writer:
        for begin in range(0, photos, CHUNK):
            end = min(begin + CHUNK, photos)
            counts = 1 + rng.poisson(ROWS_PER_PHOTO - 1, end - begin)
            image = np.repeat(np.arange(begin, end), counts)
            keys = np.unique(image * CLASSES + draw_classes(rng, len(image)))
            again = rng.choice(earlier, int(LOOKUPS * len(keys))) if len(earlier) else earlier
            earlier = np.concatenate([earlier, rng.choice(keys, len(keys) // 50)])
            keys = rng.permutation(np.concatenate([keys, again]))
            writer.write_table(_label_rows(keys, fields))
            rows += len(keys)
    return Written(photos, rows, path.stat().st_size)


def write_predictions(folder: Path, photos: int, seed: int = 1) -> Written:
    """Write files of predictions, one for each million photos, as `tagfill predict --top-k` does."""
    folder.mkdir(parents=True)
    rng, rows = np.random.default_rng(seed), 0
    schema = pa.schema([("image", _TEXT), ("label", _TEXT), ("probability", pa.float32()), ("present", pa.bool_())])
    for number, first in enumerate(range(0, photos, SHARD)):
        with pq.ParquetWriter(folder / f"{number:03d}.parquet", schema, compression="zstd") as writer:
            for begin, end in spans(first, min(first + SHARD, photos), CHUNK):
                image = np.repeat(np.arange(end - begin, dtype=np.int32), PREDICTED)
                probability = rng.random(len(image), dtype=np.float32)
                columns = [
                    pa.DictionaryArray.from_arrays(pa.array(image), photo_names(np.arange(begin, end))),
                    pa.DictionaryArray.from_arrays(pa.array(draw_classes(rng, len(image)).astype(np.int32)), LABELS),
                    pa.array(probability),
                    pa.array(probability > 0.5),
                ]
                writer.write_table(pa.Table.from_arrays(columns, schema=schema))
                rows += len(image)
    return Written(photos, rows, sum(path.stat().st_size for path in folder.iterdir()))


def draw_classes(rng: np.random.Generator, size: int) -> NDArray[np.int64]:
    """Random classes whose frequencies fall as a power."""
    return (CLASSES * rng.random(size) ** 3).astype(np.int64)


def photo_names(codes: NDArray[np.int64]) -> pa.Array:
    """Names of photos, 22 characters each."""
    folder = pc.utf8_lpad(pa.array(codes % 1000).cast(pa.string()), 3, "0")
    number = pc.utf8_lpad(pa.array(codes).cast(pa.string()), 8, "0")
    return pc.binary_join_element_wise("train", folder, pc.binary_join_element_wise(number, ".jpg", ""), "/")


def spans(begin: int, end: int, size: int) -> Iterator[tuple[int, int]]:
    """Consecutive ranges of at most this size."""
    for first in range(begin, end, size):
        yield first, min(first + size, end)


_TEXT = pa.dictionary(pa.int32(), pa.string())


def _label_rows(keys: NDArray[np.int64], fields: list[tuple[str, pa.DataType]]) -> pa.Table:
    """Rows about these pairs; what is said about a pair is always the same."""
    image, place = np.unique(keys // CLASSES, return_inverse=True)
    columns = [
        pa.DictionaryArray.from_arrays(pa.array(place.astype(np.int32)), photo_names(image)),
        pa.DictionaryArray.from_arrays(pa.array((keys % CLASSES).astype(np.int32)), LABELS),
        pa.array((keys * np.int64(2654435761) >> 7) % 5 < 2),
        pa.DictionaryArray.from_arrays(pa.array(np.zeros(len(keys), np.int32)), pa.array(["train"])),
    ]
    return pa.Table.from_arrays(columns, schema=pa.schema(fields))
