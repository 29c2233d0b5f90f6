"""Datasets compared by what they say."""

from __future__ import annotations

from typing import Any

from tagfill.dataset import Dataset

LOCATED = ("image", "label", "present", "kind", "x", "y", "w", "h", "rle", "rle_height", "rle_width", "flags")


def rows(dataset: Dataset, columns: tuple[str, ...] = LOCATED) -> list[tuple[Any, ...]]:
    """Rows in a canonical order, flags sorted and None where there are none."""
    found = []
    for row in dataset.rows().to_pylist():
        row["flags"] = tuple(sorted(row["flags"])) if row["flags"] else None
        found.append(tuple(row[column] for column in columns))
    return sorted(found, key=repr)


def states(dataset: Dataset) -> dict[str, dict[str, int]]:
    """The decided labels of each image."""
    dense = dataset.labels().dense().tolist()
    return {
        name: dict(zip(dataset.classes, values, strict=True))
        for name, values in zip(dataset.names(), dense, strict=True)
    }


def same(first: Dataset, second: Dataset) -> bool:
    """Whether two datasets have the same images, classes, splits and rows; sources and times do not count."""
    return (
        first.classes == second.classes
        and first.images.to_pylist() == second.images.to_pylist()
        and set(first.hierarchy) == set(second.hierarchy)
        and rows(first) == rows(second)
    )
