"""Small fully labeled datasets in memory, and views of the labels that a protocol kept."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa

from tagfill.dataset import IMAGES_SCHEMA, Dataset, from_records

SIZES = {"train": 60, "val": 20, "test": 10}
CLASSES = ("animal", "cat", "dog", "vehicle", "car", "bus", "tram", "tree")
EDGES = (("cat", "animal"), ("dog", "animal"), ("car", "vehicle"), ("bus", "vehicle"), ("tram", "bus"))
PARENTS = dict(EDGES)

Labels = dict[str, dict[str, int]]


def made(
    *, sizes: dict[str, int] = SIZES, share: float = 0.3, hierarchical: bool = False, located: bool = True
) -> Dataset:
    """Random complete labels; each positive has one or two boxes if `located`."""
    rng = np.random.default_rng(5)
    images, rows = [], []
    for split, size in sizes.items():
        for index in range(size):
            name = f"{split}/{index}.jpg"
            images.append({"image": name, "split": split, "width": 100, "height": 80})
            shown = {label for label in CLASSES if rng.random() < share}
            if hierarchical:
                shown = {upper for label in shown for upper in path(label)}
            for label in CLASSES:
                rows += _rows(name, label, label in shown, located, rng)
    hierarchy = EDGES if hierarchical else ()
    return Dataset(
        "made", Path("pictures"), CLASSES, from_records(images, IMAGES_SCHEMA), from_records(rows), hierarchy
    )


def path(label: str) -> list[str]:
    """A class and its ancestors."""
    return [label, *path(PARENTS[label])] if label in PARENTS else [label]


def _rows(image: str, label: str, present: bool, located: bool, rng: np.random.Generator) -> list[dict[str, object]]:
    row = {"image": image, "label": label, "present": present, "source": "truth"}
    if not (present and located):
        return [row]
    return [
        {**row, "kind": "box", "x": rng.uniform(0.3, 0.7), "y": rng.uniform(0.3, 0.7), "w": 0.2, "h": 0.1}
        for _ in range(int(rng.integers(1, 3)))
    ]


def shuffled(data: Dataset) -> Dataset:
    """The same dataset with images, rows and classes in another order."""
    rng = np.random.default_rng(9)
    rows = data.rows()
    return data.replace(
        images=data.images.take(pa.array(rng.permutation(len(data)))),
        annotations=rows.take(pa.array(rng.permutation(rows.num_rows))),
        classes=tuple(rng.permutation(data.classes).tolist()),
    )


def truth(data: Dataset, split: str = "train") -> Labels:
    """The labels of a split as {image: {label: 1 or 0}}."""
    dense = data.labels(split).dense().tolist()
    return {
        image: {label: value for label, value in zip(data.classes, row, strict=True) if value >= 0}
        for image, row in zip(data.names(data.split(split)), dense, strict=True)
    }


def kept(part: Dataset) -> Labels:
    """Labels stated by the rows of training images."""
    found: Labels = {name: {} for name in part.names(part.split("train"))}
    for row in part.rows().to_pylist():
        if row["image"] in found:
            found[row["image"]][row["label"]] = int(row["present"])
    return found


def observed(part: Dataset) -> set[tuple[str, str]]:
    """Pairs whose rows have the flag."""
    return {(row["image"], row["label"]) for row in part.rows().to_pylist() if "observed" in (row["flags"] or [])}
