"""Which images score the methods of a comparison.

    test        complete or partial labels of the split `test`
    val         the same of the split `val`, which also chooses the best epoch of each run
    held-out    a fifth of the training images, held out of each run: cross-fitting

The first of these that can be scored is used: average precision needs a class that is known to be present in one image
and absent in another. For held-out images these are the true labels if they are known, otherwise the annotated ones.
If only tags are known, a tag that was not given counts as absent there; scores are then too low, but all methods are
measured in the same way.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from tagfill.dataset import SCHEMA, Dataset
from tagfill.dataset.tables import table
from tagfill.errors import TagfillError
from tagfill.experiments.runs import complete_dataset
from tagfill.labels import NEGATIVE, POSITIVE
from tagfill.rng import generator

HELD_OUT, TRAIN = "held-out", "train"
FOLDS = 5


@dataclass(frozen=True)
class ScoredSplit:
    """The split that is scored.

    Attributes:
        name: of the split.
        note: why it is not `test`, and what that means for the scores; empty for `test` and for a requested split.
    """

    name: str
    note: str = ""

    @property
    def cross_fitted(self) -> bool:
        """Whether each run holds out images of its own."""
        return self.name == HELD_OUT


def choose_split(data: Dataset, wanted: str | None = None) -> ScoredSplit:
    """The wanted split, or the first of test, validation and held-out images that can be scored.

    Raises:
        TagfillError: if the wanted split has no labels to score.
    """
    if wanted is not None:
        data.split(wanted)  # raises if there is no such split
        if not can_score(data, wanted):
            raise TagfillError(
                f"No class of the split '{wanted}' of {data.name} is known to be present in one image and absent in "
                "another, so it cannot be scored; leave out --split to score held-out training images instead."
            )
        return ScoredSplit(wanted)
    if can_score(data, "test"):
        return ScoredSplit("test")
    missing = "has a split 'test' that cannot be scored" if "test" in data.splits else "has no split 'test'"
    if can_score(data, "val"):
        return ScoredSplit(
            "val",
            f"{data.name} {missing}: methods are scored on 'val', which also chooses the best epoch of each run, so "
            "the scores are somewhat too high.",
        )
    note = (
        f"{data.name} {missing} and no 'val' either: each run holds out a fifth of the training images and is scored "
        "on them."
    )
    if data.truth is None and not can_score(data, TRAIN):
        note += " A tag that was not given counts as absent there, so the scores are too low, for all methods alike."
    return ScoredSplit(HELD_OUT, note)


def can_score(data: Dataset, split: str) -> bool:
    """Whether a class of a split is known to be present in one image and absent in another."""
    if split not in data.splits:
        return False
    labels = data.labels(split)
    return bool(((labels.positives > 0) & (labels.negatives > 0)).any())


def save_fold(data: Dataset, number: int, folder: Path) -> Dataset:
    """Save a dataset that holds out a fold of its training images, unless that was done before.

    Args:
        data: the whole dataset.
        number: of the run; runs whose numbers differ by `FOLDS` hold out the same images.
        folder: for the dataset.
    """
    if not (folder / "dataset.yaml").exists():
        train = data.split(TRAIN)
        if len(train) < 2 * FOLDS:
            raise TagfillError(
                f"{len(train)} training images are too few to hold some out; add images or a split 'test'."
            )
        rows = train[np.sort(generator(0, "scored folds").permutation(len(train))[number % FOLDS :: FOLDS])]
        splits = data.split_of_images()
        splits[rows] = HELD_OUT
        held_out = _with_scored_labels(data.with_splits(splits).replace(folder=None), rows)
        held_out.save(folder)
    return Dataset.open(folder)


def _with_scored_labels(data: Dataset, rows: NDArray[np.int64]) -> Dataset:
    """Give images the labels that they are scored by."""
    if data.truth is None and can_score(data, HELD_OUT):
        return data
    names = pa.array(data.names(rows))
    others = data.rows().filter(pc.invert(pc.is_in(data.rows()["image"], value_set=names)))
    if data.truth is not None:
        complete = complete_dataset(data).rows()
        scored = complete.filter(pc.is_in(complete["image"], value_set=names)).cast(SCHEMA)
    else:
        labels = data.labels(HELD_OUT).dense()
        present = np.where(labels == POSITIVE, POSITIVE, NEGATIVE).astype(bool)
        image, label = np.indices(present.shape)
        scored = table(
            {
                "image": names.take(pa.array(image.ravel())),
                "label": pa.array(data.classes).take(pa.array(label.ravel())),
                "present": present.ravel(),
            }
        )
    return data.replace(annotations=pa.concat_tables([others.cast(SCHEMA), scored]))
