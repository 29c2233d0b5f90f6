"""What a reader promises about a file that was changed in some way."""

from __future__ import annotations

from enum import IntEnum
from typing import Any

from formats.compare import rows, states
from tagfill.dataset import SCHEMA, Dataset


class Promise(IntEnum):
    """From the weakest to the strongest; each includes a clear error in place of a crash, except the last two."""

    NO_CRASH = 0  # no other exception than a TagfillError, whatever is read
    SAME_OR_REFUSED = 1  # the same statements, or an error
    SAME = 2  # the same statements, in an order that may differ
    EXACTLY = 3  # the same dataset


def meaning(dataset: Dataset) -> dict[str, Any]:
    """Return the statements of a dataset, without their order and repetitions."""
    return {
        "images": {tuple(record.values()) for record in dataset.images.to_pylist()},
        "classes": set(dataset.classes),
        "hierarchy": set(dataset.hierarchy),
        "rows": set(rows(dataset)),
        "states": states(dataset),
    }


def content(dataset: Dataset) -> dict[str, Any]:
    """Return everything in a dataset, in order."""
    return {
        "images": dataset.images.to_pylist(),
        "classes": dataset.classes,
        "hierarchy": dataset.hierarchy,
        "rows": dataset.rows().select(SCHEMA.names).to_pylist(),
    }
