"""Where the benchmark keeps what it works with: photos, datasets, features and scores, all below one folder.

WORK/photos      the unpacked archive
WORK/data        datasets: complete labels, and what each protocol left of them
WORK/features    caches: `eval` has whole images, `views` flips and crops of training images too, `pairs` weak and
                 strong views of them, `small` whole images at another size
WORK/scores      one small file for each run that ended
WORK/quick       all but the photos once more, for a first picture with a part of them
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
from bookkeeping import say

import tagfill

VIEWS = {"eval": "eval", "views": "eval,flip,crops:2", "pairs": "eval,pairs:1", "small": "eval"}
QUICK_VIEWS = {**VIEWS, "views": "eval,flip"}
"""Of each cache."""

QUICK_SHARE = 3
"""A first picture takes one photo in so many."""

SMALL = 96
"""Side of the images of the cache `small`."""


@dataclass(frozen=True)
class Material:
    """The folder, and what is in it by name.

    Attributes:
        base: the folder, of which a first picture has a part of its own.
        quick: whether it is for a first picture.
    """

    base: Path
    quick: bool = False

    @property
    def work(self) -> Path:
        """Where datasets, features and scores are."""
        return self.base / "quick" if self.quick else self.base

    def prepare(self, source: Path) -> None:
        """Import PASCAL VOC 2012 (a folder or a tar archive), and divide it as published."""
        if not (self.folder("voc") / "dataset.yaml").exists():
            photos = tagfill.formats.voc.read(source, locations="mask", extract_to=self.base / "photos")
            (_part(photos) if self.quick else photos).save(self.folder("voc"))
        self.made("single", lambda full: tagfill.protocols.single_positive(full, seed=1200))
        self.made("full", lambda full: tagfill.protocols.k_positives(full, num_pos=-1, num_neg=-1, seed=1200))

    def folder(self, name: str) -> Path:
        """Of a dataset."""
        return self.work / "data" / name

    def open(self, name: str) -> tagfill.Dataset:
        """A dataset by its name."""
        return tagfill.Dataset.open(self.folder(name))

    def made(self, name: str, protocol: Callable[[tagfill.Dataset], tagfill.Dataset], of: str = "voc") -> str:
        """The name of a dataset, which a protocol makes of another if it is not there yet."""
        if not (self.folder(name) / "dataset.yaml").exists():
            protocol(self.open(of)).save(self.folder(name))
        return name

    def features(self, name: str, jobs: int) -> None:
        """Extract a cache if it is not there; all but `small` begin with the same whole images."""
        place, base = self.work / "features" / name, self.work / "features" / "eval"
        if name not in ("eval", "small") and not place.exists():
            self.features("eval", jobs)
            shutil.copytree(base, place, copy_function=_link, ignore=shutil.ignore_patterns(".lock", "manifest.json"))
            shutil.copy(base / "manifest.json", place)
        say(f"features: {name}")
        tagfill.features(
            self.open("single"),
            views=(QUICK_VIEWS if self.quick else VIEWS)[name],
            image_size=SMALL if name == "small" else None,
            out=place,
            engine="joblib",
            jobs=jobs,
        )


def _part(dataset: tagfill.Dataset) -> tagfill.Dataset:
    """One image in so many, with what is known about it."""
    images = dataset.images.take(pa.array(range(0, len(dataset), QUICK_SHARE)))
    known = dataset.rows()
    return dataset.replace(images=images, annotations=known.filter(pc.is_in(known["image"], images["image"])))


def _link(source: str, target: str) -> None:
    """A file that is never changed, under a second name."""
    os.link(source, target)
