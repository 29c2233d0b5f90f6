"""What every protocol shares: draw for training and validation, keep the drawn labels, and say what was done.

Only training images lose labels. Validation and test images keep all of theirs; the rows of validation images that the
draw would have kept carry the flag `observed`, so that a method can also be validated on partial labels.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from tagfill.annotations import NEGATIVE, POSITIVE, Dataset, LabelMatrix
from tagfill.annotations.identity import RowsHash
from tagfill.annotations.spooling import RowSpool
from tagfill.errors import DatasetError, TagfillError
from tagfill.protocols import observed
from tagfill.protocols.image_rows import image_rows
from tagfill.protocols.pair_numbers import PairNumbers

SECONDS_PER_LABEL = 1.0
_HASHED = ["image", "label", "present", "kind", "x", "y", "w", "h", "seconds"]

Draw = Callable[[LabelMatrix, PairNumbers], LabelMatrix]
"""Which known labels of some images are kept, decided by the numbers of their pairs."""


def simulate(
    data: Dataset, name: str, draw: Draw, *, seed: int, parameters: Mapping[str, Any], complete: bool
) -> Dataset:
    """Draw from the training and the validation split alike, and assemble the result.

    Args:
        data: the source.
        name: of the protocol.
        draw: its rule.
        seed: another seed draws other labels.
        parameters: what to record beside the seed.
        complete: whether the rule needs every label of the split to be known.
    """
    check_seed(seed)
    drawn = {}
    for split in drawn_splits(data):
        labels = complete_labels(data, split, name) if complete else data.labels(split)
        drawn[split] = draw(labels, PairNumbers.of(data.names(data.split(split)), data.classes, seed))
    return assemble(data, name, spread(data, drawn), seed=seed, parameters=parameters)


def drawn_splits(data: Dataset) -> list[str]:
    """The training split, which must exist, and the validation split if there is one."""
    data.split("train")
    return [name for name in ("train", "val") if name in data.splits]


def complete_labels(data: Dataset, split: str, name: str) -> LabelMatrix:
    """The labels of a split, or an error if some are unknown."""
    labels = data.labels(split)
    if not labels.complete():
        known = int((labels.values >= 0).sum())
        raise DatasetError(
            f"The {name} protocol draws from complete labels, but in split {split} of {data.name} only "
            f"{known:,} of {len(labels) * labels.width:,} are known; start from a fully labelled dataset."
        )
    return labels


def check_seed(seed: int, most: int | None = None) -> None:
    """Refuse a negative seed, and one above the most that a generator takes."""
    if seed < 0:
        raise TagfillError(f"The seed is {seed}; give 0 or more.")
    if most is not None and seed > most:
        raise TagfillError(f"The seed is {seed}; the published generator takes {most:,} at the most.")


def spread(data: Dataset, drawn: Mapping[str, LabelMatrix]) -> LabelMatrix:
    """The kept labels of some splits as one label matrix over all images of the dataset."""
    image = [data.split(split)[kept.images()] for split, kept in drawn.items()]
    return LabelMatrix.from_entries(
        np.concatenate(image),
        np.concatenate([kept.classes for kept in drawn.values()]),
        np.concatenate([kept.values for kept in drawn.values()]),
        (len(data), len(data.classes)),
    )


def assemble(
    data: Dataset,
    name: str,
    kept: LabelMatrix,
    *,
    seed: int,
    parameters: Mapping[str, Any],
    splits: NDArray[np.object_] | None = None,
    rows: Iterable[pa.RecordBatch] | None = None,
    seconds: float | None = None,
    details: Mapping[str, Any] | None = None,
) -> Dataset:
    """The simulated dataset.

    Args:
        data: the source.
        name: of the protocol.
        kept: what the draw keeps, over all images of `data`; test images do not matter.
        seed: to record.
        parameters: to record.
        splits: the new split of each image, if it changes.
        rows: the rows of training images, if they are not plain image-level labels.
        seconds: what the kept labels cost; by default one second each.
        details: more to record about what was kept.
    """
    if splits is None:
        splits = data.split_of_images()
    training = splits == "train"
    spool, content = RowSpool(), RowsHash()
    for batch in image_rows(data, kept, training, name) if rows is None else rows:
        content.update(batch.select(_HASHED))
        spool.add(batch)
    for batch in observed.rows_of_others(data, kept, splits):
        spool.add(batch)
    return data.with_splits(splits).replace(
        annotations=spool.close(),
        truth=data.folder,
        protocol={
            "name": name,
            "seed": seed,
            "parameters": dict(parameters),
            "source": data.name,
            "images": {split: int((splits == split).sum()) for split in dict.fromkeys(splits.tolist())},
            "kept": {**_counts(kept, training, seconds), **(details or {})},
            "hash": content.hexdigest(),
        },
        folder=None,
    )


def _counts(kept: LabelMatrix, training: NDArray[np.bool_], seconds: float | None) -> dict[str, Any]:
    """What training images still know, in plain numbers."""
    per_image = np.diff(kept.starts)
    mine = np.repeat(training, per_image)
    positives = int(((kept.values == POSITIVE) & mine).sum())
    negatives = int(((kept.values == NEGATIVE) & mine).sum())
    return {
        "positives": positives,
        "negatives": negatives,
        "unknown": int(training.sum()) * kept.width - positives - negatives,
        "images": int(((per_image > 0) & training).sum()),
        "seconds": float(SECONDS_PER_LABEL * (positives + negatives) if seconds is None else seconds),
    }
