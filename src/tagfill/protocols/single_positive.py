"""One observed positive an image: the published single-positive protocol, bit for bit.

Labels of an official split are drawn in the order of its images from `RandomState(seed)`, created anew for each
split: the positives of an image are shuffled and the first one is observed; then its negatives are shuffled too, of
which none is kept, because that uses up random numbers and so decides what later images get. A dataset that has no test
split is divided as published: of official train, a permutation from another `RandomState(seed)` leaves one fifth for
validation; official val becomes test.

Training images keep their one positive. Validation and test images keep all their labels; the rows of validation
images that the draw would have kept carry the flag `observed`.

Cole et al., Multi-Label Learning from Single Positive Labels, CVPR 2021.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from tagfill.annotations import POSITIVE, SCHEMA, Dataset, LabelMatrix, table
from tagfill.errors import DatasetError

VALIDATION_SHARE = 0.2
OBSERVED = "observed"


def single_positive(data: Dataset, *, seed: int = 1200) -> Dataset:
    """Keep one random positive label of each training image.

    Args:
        data: fully labelled, with splits train and val (which is then divided as published) or train, val and test.
        seed: 1200 in the published splits.

    Returns:
        The simulated dataset; `truth` points to the folder of `data`.

    Example:
        >>> import tagfill  # doctest: +SKIP
        >>> part = tagfill.protocols.single_positive(tagfill.Dataset.open("voc"), seed=1200)  # doctest: +SKIP
    """
    official = [name for name in ("train", "val") if len(data.split(name))]
    drawn = {name: draw(_complete(data, name), seed) for name in official}
    splits = np.array(data.images["split"].to_pylist(), dtype=object)
    if "test" not in data.splits:
        _, val = divide(len(data.split("train")), seed)
        splits[data.split("val")] = "test"
        splits[data.split("train")[val]] = "val"
    observed = np.full(len(data), -1, dtype=np.int64)
    for name in official:
        observed[data.split(name)] = drawn[name]
    images = data.images.set_column(1, "split", pa.array(splits.tolist(), pa.string()))
    rows, kept = _keep(data, splits, observed)
    counts = {name: int((splits == name).sum()) for name in ("train", "val", "test")}
    return data.replace(
        images=images,
        annotations=rows,
        truth=data.folder,
        protocol={"name": "single-positive", "seed": seed, "images": counts, "observed_positives": kept},
        folder=None,
    )


def draw(labels: LabelMatrix, seed: int) -> NDArray[np.int64]:
    """The observed class of each image, -1 where it has no positive."""
    rng = np.random.RandomState(seed)
    observed = np.full(len(labels), -1, dtype=np.int64)
    for part, dense in labels.blocks():
        for row, known in enumerate(dense, start=part.start):
            positives, negatives = np.flatnonzero(known == POSITIVE), np.flatnonzero(known != POSITIVE)
            rng.shuffle(positives)
            rng.shuffle(negatives)
            if len(positives):
                observed[row] = positives[0]
    return observed


def divide(size: int, seed: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Positions for training and for validation, each ascending.

    >>> divide(5717, 1200)[1][:5].tolist()
    [5, 6, 11, 15, 22]
    """
    held_out = round(VALIDATION_SHARE * size)
    order = np.random.RandomState(seed).permutation(size)
    return np.sort(order[: size - held_out]), np.sort(order[size - held_out :])


def _complete(data: Dataset, split: str) -> LabelMatrix:
    labels = data.labels(split)
    if not labels.complete():
        known = int((labels.values >= 0).sum())
        raise DatasetError(
            f"The single-positive protocol draws from complete labels, but in split {split} of {data.name} only "
            f"{known:,} of {len(labels) * labels.width:,} are known; start from a fully labelled dataset."
        )
    return labels


def _keep(data: Dataset, splits: NDArray[np.object_], observed: NDArray[np.int64]) -> tuple[pa.Table, int]:
    """Rows of validation and test images as they are, and one image-level row for each training image."""
    names = data.names()
    training = np.flatnonzero((splits == "train") & (observed >= 0))
    kept = table(
        {
            "image": [names[row] for row in training],
            "label": [data.classes[observed[row]] for row in training],
            "present": [True] * len(training),
            "source": ["single-positive"] * len(training),
        }
    )
    rest = data.rows()
    clean = rest.filter(
        pc.is_in(rest["image"], value_set=pa.array([names[row] for row in np.flatnonzero(splits != "train")]))
    )
    flagged = {(names[row], data.classes[observed[row]]) for row in np.flatnonzero((splits == "val") & (observed >= 0))}
    flags = [
        [*(old or []), OBSERVED] if (image, label) in flagged else old
        for image, label, old in zip(
            clean["image"].to_pylist(), clean["label"].to_pylist(), clean["flags"].to_pylist(), strict=True
        )
    ]
    column = SCHEMA.get_field_index("flags")
    clean = clean.set_column(column, SCHEMA.field(column), pa.array(flags, SCHEMA.field(column).type))
    return pa.concat_tables([kept, clean]), len(training)
