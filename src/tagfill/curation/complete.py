"""Photos whose labels are made complete: which ones are drawn, and their move to a split of complete labels.

Photos are drawn at random from the training photos that are not complete yet. Their order depends only on the seed and
on their names, so a larger number continues the same draw. `review/complete.json` in the dataset's folder keeps it:

    {"draws": [{"split": "val", "origin": "train", "seed": 0, "images": ["17.jpg", "4.jpg"]}]}

A photo is complete once each class is present, absent or "cannot tell". `move_complete` puts the complete photos of all
draws into their new splits, and puts a photo back whose labels are no longer complete because a decision was undone. It
compares the draws with the labels, so calling it again, or after a crash, changes nothing.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel, ValidationError

from tagfill.dataset import Dataset
from tagfill.dataset.dataset import replace_table
from tagfill.errors import TagfillError, first_problem
from tagfill.io import write_json
from tagfill.rng import PairNumbers

FILE = "complete.json"
TRAIN = "train"


@dataclass(frozen=True)
class Completion:
    """How many photos to complete, and where they go.

    Attributes:
        count: number of photos in all, including those that are complete already.
        split: the split that complete photos move to.
        seed: of the draw; None continues an earlier draw, and is 0 for a new one.
        origin: the split that photos are drawn from.
    """

    count: int
    split: str = "val"
    seed: int | None = None
    origin: str = TRAIN


class Draw(BaseModel):
    """Photos drawn for one split, in the order in which they are shown."""

    split: str
    origin: str
    seed: int
    images: list[str]


class Draws(BaseModel):
    """The content of `review/complete.json`."""

    draws: list[Draw] = []

    @classmethod
    def read(cls, folder: Path) -> Draws:
        """The draws of a review folder; none if it has no file."""
        path = folder / FILE
        try:
            return cls.model_validate_json(path.read_bytes())
        except FileNotFoundError:
            return cls()
        except ValidationError as error:
            raise TagfillError(
                f"{path} is damaged: {first_problem(error)}; restore it from a backup, or move it away to draw again."
            ) from None


def draw_photos(dataset: Dataset, wanted: Completion, folder: Path) -> list[str]:
    """Draw photos, or continue a draw, and write the draw down before it is used.

    Args:
        dataset: with the rows of all decisions.
        wanted: how many.
        folder: of the review, which the caller has locked.

    Returns:
        The names of `wanted.count` photos, or of all there are.
    """
    draws = Draws.read(folder)
    draw = next((one for one in draws.draws if one.split == wanted.split), None)
    if draw is None:
        _check_split(dataset, wanted)
        draw = Draw(split=wanted.split, origin=wanted.origin, seed=wanted.seed or 0, images=[])
        draws.draws.append(draw)
    if wanted.seed not in (None, draw.seed):
        raise TagfillError(
            f"The photos for the split '{wanted.split}' were drawn with --seed {draw.seed}; leave --seed out to "
            "continue, or choose another --split."
        )
    if missing := wanted.count - len(draw.images):
        rows = dataset.split(draw.origin) if draw.origin in dataset.splits else np.empty(0, np.int64)
        rows = rows[~complete_images(dataset, rows)]
        names = np.array(dataset.names(rows), dtype=object)
        drawn = {name for one in draws.draws for name in one.images}
        order = np.argsort(PairNumbers.of(names.tolist(), [FILE], draw.seed).bits(np.arange(len(names)), np.array(0)))
        draw.images += [name for name in names[order] if name not in drawn][: max(missing, 0)]
    if not draw.images:
        raise TagfillError(
            f"Every photo of the split '{wanted.origin}' of dataset {dataset.name} has complete labels already."
        )
    write_json(folder / FILE, draws.model_dump())
    return draw.images[: wanted.count]


def move_complete(folder: Path, dataset_folder: Path) -> dict[str, int]:
    """Make the splits of drawn photos agree with their labels.

    Args:
        folder: of the review.
        dataset_folder: of the dataset, whose rows agree with the log already.

    Returns:
        The number of complete photos of each split that photos were drawn for.
    """
    draws = Draws.read(folder).draws
    if not draws:
        return {}
    dataset = Dataset.open(dataset_folder)
    position = {name: row for row, name in enumerate(dataset.names())}
    splits, counts = dataset.split_of_images(), dict[str, int]()
    before = splits.copy()
    for draw in draws:
        rows = np.array([position[name] for name in draw.images if name in position], dtype=np.int64)
        complete = complete_images(dataset, rows)
        splits[rows[complete]] = draw.split
        splits[rows[~complete]] = draw.origin
        counts[draw.split] = int(complete.sum())
    if (splits != before).any():
        replace_table(dataset, "images", dataset.with_splits(splits).images.to_batches())
    return counts


def complete_images(dataset: Dataset, rows: NDArray[np.int64]) -> NDArray[np.bool_]:
    """Which of these rows of the image table have an annotation of every class."""
    labels = dataset.labels()
    annotated = labels.starts[rows + 1] - labels.starts[rows]
    return np.asarray(annotated == len(dataset.classes))


def count_complete(dataset: Dataset, images: Collection[str]) -> int:
    """How many of these images have an annotation of every class."""
    rows = np.flatnonzero([name in images for name in dataset.names()])
    return int(complete_images(dataset, rows).sum())


def _check_split(dataset: Dataset, wanted: Completion) -> None:
    """Raise if the new photos would join photos whose labels are incomplete."""
    if wanted.split == wanted.origin:
        raise TagfillError(f"Photos are drawn from '{wanted.origin}'; give another split to --split, such as val.")
    if wanted.origin not in dataset.splits:
        raise TagfillError(
            f"Dataset {dataset.name} has no split '{wanted.origin}' to draw photos from; it has "
            f"{', '.join(dataset.splits) or 'no photo'}."
        )
    if wanted.split in dataset.splits:
        incomplete = int((~complete_images(dataset, dataset.split(wanted.split))).sum())
        if incomplete:
            raise TagfillError(
                f"The split '{wanted.split}' of dataset {dataset.name} has {incomplete:,} photos with incomplete "
                "labels, which the new ones would be mixed with; choose another --split, such as 'complete'."
            )
