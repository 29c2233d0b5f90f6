"""A dataset in a few numbers: images, labels and what is known about them, per split."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow.compute as pc

if TYPE_CHECKING:
    from tagfill.dataset.dataset import Dataset


@dataclass(frozen=True)
class SplitOverview:
    """Counts of one split.

    Attributes:
        images: in the split.
        annotated: images with at least one annotation.
        positives: labels known to be present.
        negatives: labels known to be absent.
        share: known pairs among all (image, label) pairs.
        classes: positives and negatives of each class.
    """

    images: int
    annotated: int
    positives: int
    negatives: int
    share: float
    classes: dict[str, tuple[int, int]]

    @property
    def positives_per_image(self) -> float:
        """Mean number of known positives per image."""
        return self.positives / max(self.images, 1)


@dataclass(frozen=True)
class Overview:
    """Counts of a dataset.

    Attributes:
        splits: in the order of the image table.
        rows: annotation rows.
        kinds: rows of each kind of annotation.
        seconds: total cost of the rows that state one.
    """

    splits: dict[str, SplitOverview]
    rows: int
    kinds: dict[str, int]
    seconds: float

    def to_json(self) -> dict[str, Any]:
        """The counts as JSON values."""
        return {
            "splits": {
                name: {
                    "images": part.images,
                    "annotated_images": part.annotated,
                    "positives": part.positives,
                    "negatives": part.negatives,
                    "known_share": part.share,
                    "positives_per_image": part.positives_per_image,
                    "classes": {label: {"positives": p, "negatives": n} for label, (p, n) in part.classes.items()},
                }
                for name, part in self.splits.items()
            },
            "rows": self.rows,
            "kinds": self.kinds,
            "seconds": self.seconds,
        }


def overview(dataset: Dataset) -> Overview:
    """Count images, labels and rows; the rows are streamed.

    >>> overview(Dataset.open("my-data")).splits["train"].positives_per_image  # doctest: +SKIP
    1.0
    """
    kinds: dict[str, int] = {}
    rows, seconds = 0, 0.0
    for batch in dataset.scan(["kind", "seconds"]):
        rows += batch.num_rows
        seconds += pc.sum(batch["seconds"]).as_py() or 0.0
        for entry in pc.value_counts(batch["kind"]).to_pylist():
            kinds[entry["values"]] = kinds.get(entry["values"], 0) + entry["counts"]
    return Overview({name: _split_overview(dataset, name) for name in dataset.splits}, rows, kinds, seconds)


def _split_overview(dataset: Dataset, name: str) -> SplitOverview:
    labels = dataset.labels(name)
    positives, negatives = labels.positives, labels.negatives
    known = int(positives.sum() + negatives.sum())
    return SplitOverview(
        images=len(labels),
        annotated=int((labels.starts[1:] > labels.starts[:-1]).sum()),
        positives=int(positives.sum()),
        negatives=int(negatives.sum()),
        share=known / max(len(labels) * labels.width, 1),
        classes={label: (int(p), int(n)) for label, p, n in zip(dataset.classes, positives, negatives, strict=True)},
    )
