"""What a reader must make of a file that was changed in some way."""

from __future__ import annotations

from enum import IntEnum
from typing import Any

from formats.comparing import rows, states
from tagfill.dataset import SCHEMA, Dataset


class Promise(IntEnum):
    """From the weakest to the strongest; each includes a clear error in place of a crash, but for the last two."""

    NO_CRASH = 0  # whatever is read now, it is no other exception than a TagfillError
    SAME_OR_REFUSED = 1  # the file still says the same, or it no longer says anything: no third meaning
    SAME = 2  # the same statements, in an order that may differ
    EXACTLY = 3  # the same dataset


def meaning(dataset: Dataset) -> dict[str, Any]:
    """What a dataset says, whatever the order and however often."""
    return {
        "images": {tuple(record.values()) for record in dataset.images.to_pylist()},
        "classes": set(dataset.classes),
        "hierarchy": set(dataset.hierarchy),
        "rows": set(rows(dataset)),
        "states": states(dataset),
    }


def content(dataset: Dataset) -> dict[str, Any]:
    """Everything in a dataset, in its order."""
    return {
        "images": dataset.images.to_pylist(),
        "classes": dataset.classes,
        "hierarchy": dataset.hierarchy,
        "rows": dataset.rows().select(SCHEMA.names).to_pylist(),
    }
