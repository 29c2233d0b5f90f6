"""Filling in for the demonstration: scenes with one tag each, and the truth to compare the result with."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tagfill import protocols, scenes
from tagfill.data.extract import features
from tagfill.dataset import Dataset
from tagfill.filling.phases import fill
from tagfill.filling.result import Fill
from tagfill.io import atomic_write
from tagfill.progress import SILENT, Progress

DRAW_SEED = 1200  # of the published draw of single positives


@dataclass(frozen=True)
class Recovered:
    """A result compared with the truth.

    Attributes:
        result: of filling in.
        right: added tags that are right.
        missing: tags that were missing.
    """

    result: Fill
    right: int
    missing: int

    def sentence(self) -> str:
        """What was found, and what was expected."""
        one = self.result.summary
        if not one.added:
            return f"No tag was added to {one.photos:,} scenes."
        return (
            f"Filled in {one.added:,} tags of {one.photos:,} scenes with one tag or none: "
            f"{self.right / one.added:.0%} are right ({one.expected_precision:.0%} expected), and "
            f"{self.right / max(self.missing, 1):.0%} of the {self.missing:,} missing tags were found "
            f"({one.expected_missing:,.0f} expected to be missing)."
        )

    def to_json(self) -> dict[str, Any]:
        """Plain values for JSON."""
        one = self.result.summary
        return {
            "photos": one.photos,
            "given": one.given,
            "added": one.added,
            "right": self.right,
            "missing": self.missing,
            "expected_precision": one.expected_precision,
            "expected_missing": one.expected_missing,
        }


def demonstrate(
    folder: Path, *, sizes: tuple[int, int, int] = (600, 200, 400), jobs: int | None = None, progress: Progress = SILENT
) -> Recovered:
    """Fill in the tags of scenes as a user would, from a table and a folder of images.

    Training scenes have one tag each, the others have none.

    Args:
        folder: for the table and the result.
        sizes: numbers of training, validation and test scenes.
        jobs: number of processes.
        progress: shows the phases.
    """
    data = scenes.make(train=sizes[0], val=sizes[1], test=sizes[2], progress=progress)
    part = protocols.single_positive(data, seed=DRAW_SEED)
    table = folder / "tags.csv"
    if not table.exists():
        _write_table(part, table)
    cache = features(data, progress=progress)  # that of the comparison, which has all views
    result = fill(
        table, photos=str(data.root), out=folder / "filled", features=cache.folder, jobs=jobs, progress=progress
    )
    return compare_with_truth(result, data)


def _write_table(part: Dataset, path: Path) -> None:
    rows = part.split("train")
    labels = part.labels()
    with atomic_write(path) as file:
        lines = ["image,tag"]
        for name, row in zip(part.names(rows), labels.rows(rows), strict=True):
            lines += [f"{name},{part.classes[code]}" for code in (row == 1).nonzero()[0]]
        file.write(("\n".join(lines) + "\n").encode())


def compare_with_truth(result: Fill, truth: Dataset) -> Recovered:
    """Count which added tags are right.

    Args:
        result: of filling in.
        truth: the same images with complete labels.
    """
    labels = truth.labels().dense()
    shown = {
        name: {truth.classes[code] for code in (row == 1).nonzero()[0]}
        for name, row in zip(truth.names(), labels, strict=True)
    }
    right = missing = 0
    for row in result.table.to_pylist():
        right += len(shown[row["image"]].intersection(row["added"]))
        missing += len(shown[row["image"]].difference(row["tags"]))
    return Recovered(result, right, missing)
