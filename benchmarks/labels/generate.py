"""A dataset folder of any size, of random labels, written in little memory."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import yaml

from tagfill.dataset import IMAGES_SCHEMA, SCHEMA, table

CHUNK = 1 << 18
FIRST_DAY = 1_600_000_000_000_000  # microseconds


def names(codes: np.ndarray) -> pa.Array:
    """Image names of the usual length, 22 characters."""
    return pa.array([f"train/{code % 1000:03d}/{code:08d}.jpg" for code in codes.tolist()], pa.string())


def generate(folder: Path, *, rows: int, images: int, classes: int, shuffled: bool, seed: int = 0) -> None:
    """Write a dataset folder.

    Args:
        folder: to write into.
        rows: annotations, on random images; the classes of an image are distinct.
        images: in the image table; some of them without any row.
        classes: of which few are frequent and many rare.
        shuffled: whether rows come in random order and with times, rather than in the order of images and without.
        seed: of all draws.
    """
    folder.mkdir(parents=True)
    rng = np.random.default_rng(seed)
    listed = [f"/m/{code:05x}" for code in range(classes)]
    description = {"name": folder.name, "root": ".", "classes": listed}
    (folder / "dataset.yaml").write_text(yaml.safe_dump(description, sort_keys=False), encoding="utf-8")
    with pq.ParquetWriter(folder / "images.parquet", IMAGES_SCHEMA, compression="zstd") as writer:
        for begin in range(0, images, CHUNK):
            codes = np.arange(begin, min(begin + CHUNK, images))
            writer.write_table(table({"image": names(codes), "split": ["train"] * len(codes)}, IMAGES_SCHEMA))
    keys = _keys(rng, rows, images, classes)
    if shuffled:
        rng.shuffle(keys)
    with pq.ParquetWriter(folder / "annotations.parquet", SCHEMA, compression="zstd") as writer:
        for begin in range(0, len(keys), CHUNK):
            part = keys[begin : begin + CHUNK]
            columns = {
                "image": names(part // classes),
                "label": pa.array(listed).take(pa.array(part % classes)),
                "present": pa.array(rng.random(len(part)) < 0.4),
                "source": pa.array(["verification"]).take(pa.array(np.zeros(len(part), np.int64))),
            }
            if shuffled:
                moments = FIRST_DAY + rng.integers(0, 10**14, len(part))
                columns["time"] = pa.array(moments).cast(pa.timestamp("us", tz="UTC"))
            writer.write_table(table(columns))


def _keys(rng: np.random.Generator, rows: int, images: int, classes: int) -> np.ndarray:
    """Distinct image·L + class, ascending; class frequencies fall as a power."""
    keys = np.empty(0, np.int64)
    while len(keys) < rows:
        missing = rows - len(keys)
        label = (classes * rng.random(missing) ** 3).astype(np.int64)
        keys = np.unique(np.concatenate([keys, rng.integers(0, images, missing) * classes + label]))
    return keys
