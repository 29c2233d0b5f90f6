"""Where the benchmark keeps what it works with, all below one folder.

WORK/labels.csv  the table that is imported
WORK/data        datasets: complete labels, and what each protocol left of them
WORK/features    caches of the whole photos: `blocks5` has an inner stage, `end` the last features made from it
WORK/scores      one small file for each run that ended
WORK/steps       time and memory of each command
WORK/quick       all of it once more, for a first picture with a part of the photos
"""

from __future__ import annotations

import csv
import gzip
import random
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from jobs import QUICK
from steps import measured

import tagfill

SEED = 20
"""Of the division into training, validation and test photos."""

SIZES = {"val": 4_000, "test": 12_000}
QUICK_SIZES = {"train": 600, "val": 100, "test": 200}
"""Photos; all others are for training, in a first picture 600."""

STAGE = "blocks.5"
"""What lies above it, the last stage and the final convolution, is trained by `train: top`."""


@dataclass(frozen=True)
class Material:
    """The folder, and what is in it by name.

    Attributes:
        base: the folder, of which a first picture has a part of its own.
        labels: the table `image,labels,published_single_label` of all photos.
        photos: their folder.
        quick: whether it is for a first picture.
        lists: folder of published lists of the labels that are left, or None.
    """

    base: Path
    labels: Path
    photos: Path
    quick: bool = False
    lists: Path | None = None

    @property
    def work(self) -> Path:
        """Where datasets, features and scores are."""
        return self.base / QUICK if self.quick else self.base

    def prepare(self) -> None:
        """Divide the photos and import them with complete labels."""
        self.work.mkdir(parents=True, exist_ok=True)
        table, folder = self.work / "labels.csv", self.folder("full")
        if not table.exists():
            self._divide(table)
        words = ["import", "csv", table, "--photos", self.photos, "--absent-means", "absent"]
        measured("import", [*words, "-o", "separator=|", "--out", folder, "-q"], self.work, result=folder)

    def _divide(self, table: Path) -> None:
        with gzip.open(self.labels, "rt", encoding="utf-8") as file:
            rows = sorted(csv.DictReader(file), key=lambda row: row["image"])
        random.Random(SEED).shuffle(rows)
        sizes = QUICK_SIZES if self.quick else {"train": len(rows) - sum(SIZES.values()), **SIZES}
        splits = [name for name, count in sizes.items() for _ in range(count)]
        divided = sorted(zip(splits, rows[: len(splits)], strict=True), key=lambda pair: pair[1]["image"])
        with table.open("w", newline="", encoding="utf-8") as file:
            writer = csv.writer(file)
            writer.writerow(["image", "label", "split", "published"])
            writer.writerows((r["image"], r["labels"], split, r["published_single_label"]) for split, r in divided)

    def drawn(self) -> dict[str, str]:
        """The published label of each photo."""
        with (self.work / "labels.csv").open(newline="", encoding="utf-8") as file:
            return {row["image"]: row["published"] for row in csv.DictReader(file)}

    def left(self, share: float) -> dict[str, set[str]] | None:
        """The labels of each photo on the published list for a share of the positives, or None without that list.

        A list has positions of classes: the name of a position is the label that all photos with it share.
        """
        place = None if self.lists is None else self.lists / f"coco_train_{share:g}left.txt"
        if place is None or not place.exists():
            return None
        with (self.work / "labels.csv").open(newline="", encoding="utf-8") as file:
            complete = {row["image"]: set(row["label"].split("|")) for row in csv.DictReader(file)}
        listed: dict[str, list[str]] = {}
        for line in place.read_text(encoding="utf-8").splitlines():
            name, _, positions = line.partition(",")
            image = name.replace("COCO_train2014_", "")
            if image in complete:
                listed[image] = positions.split()
        shared: dict[str, set[str]] = {}
        for image, positions in listed.items():
            for position in positions:
                shared[position] = shared.get(position, complete[image]) & complete[image]
        unclear = [position for position, names in shared.items() if len(names) != 1]
        if unclear or len(listed) != len(complete):
            raise SystemExit(f"{place} does not fit the table of labels.")
        names = {position: min(labels) for position, labels in shared.items()}
        return {image: {names[position] for position in positions} for image, positions in listed.items()}

    def folder(self, name: str) -> Path:
        """Of a dataset."""
        return self.work / "data" / name

    def cache(self, name: str) -> Path:
        """Of features."""
        return self.work / "features" / name

    def open(self, name: str) -> tagfill.Dataset:
        """A dataset by its name."""
        return tagfill.Dataset.open(self.folder(name))

    def made(self, name: str, protocol: Callable[[tagfill.Dataset], tagfill.Dataset], of: str = "full") -> str:
        """The name of a dataset, which a protocol makes of another if it is not there yet."""
        if not (self.folder(name) / "dataset.yaml").exists():
            protocol(self.open(of)).save(self.folder(name))
        return name

    def features(self) -> None:
        """Decode each photo once and store the inner stage; the last features are computed from it."""
        inner, end = self.cache("blocks5"), self.cache("end")
        words = ["features", self.folder("full"), "--views", "eval", "--threads", "1"]
        measured("features-inner", [*words, "--at", STAGE, "--out", inner], self.work, result=inner)
        measured("features-end", [*words, "--from", inner, "--out", end], self.work, result=end)
