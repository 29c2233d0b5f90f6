"""Photos with one tag each, and the truth to compare the result with."""

from __future__ import annotations

import csv
import gzip
import tarfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np


@dataclass(frozen=True)
class Case:
    """Photos and their complete tags.

    Attributes:
        name: of the case.
        photos: their folder, in which nothing else is.
        truth: name of each photo → its tags.
    """

    name: str
    photos: Path
    truth: Mapping[str, tuple[str, ...]]

    def write_tags(self, path: Path, seed: int) -> dict[str, str]:
        """Draw one tag of each photo and write them as a table; returns them."""
        rng = np.random.default_rng(seed)
        drawn = {name: str(rng.choice(tags)) for name, tags in sorted(self.truth.items()) if tags}
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("w", newline="", encoding="utf-8") as file:
            csv.writer(file).writerows([("image", "tag"), *drawn.items()])
        return drawn


def cases(work: Path, voc: Path | None, coco: tuple[Path, Path] | None) -> Iterator[Case]:
    """The cases for which there are photos."""
    yield scenes(work)
    if voc is not None:
        yield voc_photos(work, voc)
    if coco is not None:
        yield coco_photos(work, *coco)
        yield coco_photos(work, *coco, name="COCO, other photos", skip=3000)
        yield coco_photos(work, *coco, name="COCO, kept apart", skip=6000)


def scenes(work: Path, count: int = 600) -> Case:
    """Rendered scenes."""
    from tagfill import scenes

    data = scenes.make(train=count, val=200, test=400)
    rows = data.split("train")
    return _case("scenes", work, Path(data.root), _tags(data, rows))


def voc_photos(work: Path, source: Path, count: int = 3000) -> Case:
    """Photos of the training split of PASCAL VOC 2012, drawn at random; difficult objects count."""
    from tagfill.formats import voc

    folder = work / "voc2012"
    if source.is_file() and not folder.exists():
        with tarfile.open(source) as archive:
            archive.extractall(folder, filter="data")
    data = voc.read(folder / "VOCdevkit" if source.is_file() else source)
    rows = np.random.default_rng(0).permutation(data.split("train"))[:count]
    return _case("VOC 2012", work, Path(data.root), _tags(data, np.sort(rows)))


def coco_photos(
    work: Path, photos: Path, labels: Path, count: int = 3000, *, name: str = "COCO", skip: int = 0
) -> Case:
    """Photos of COCO train, drawn at random from a table `image,labels` with labels joined by a vertical bar.

    The first `skip` drawn photos are left out.
    """
    with gzip.open(labels, "rt", encoding="utf-8") as file:
        rows = [row for row in csv.DictReader(file) if row["labels"]]
    drawn = np.sort(np.random.default_rng(0).permutation(len(rows))[skip : skip + count])
    names = {path.stem[-12:]: path.name for path in photos.iterdir()}
    truth = {names[Path(rows[at]["image"]).stem[-12:]]: tuple(rows[at]["labels"].split("|")) for at in drawn}
    return _case(name, work, photos, truth)


def _tags(data: object, rows: np.ndarray) -> dict[str, tuple[str, ...]]:
    names, labels = data.names(rows), data.labels().rows(rows)  # type: ignore[attr-defined]
    classes = data.classes  # type: ignore[attr-defined]
    return {
        name: tuple(classes[code] for code in np.flatnonzero(row == 1)) for name, row in zip(names, labels, strict=True)
    }


def _case(name: str, work: Path, root: Path, truth: Mapping[str, tuple[str, ...]]) -> Case:
    """The case with its photos linked into a folder of their own."""
    folder = work / "photos" / name.replace(" ", "-").lower()
    folder.mkdir(parents=True, exist_ok=True)
    flat = {image.replace("/", "_"): tags for image, tags in truth.items() if tags}
    for image in truth:
        link = folder / image.replace("/", "_")
        if link.name in flat and not link.exists():
            link.symlink_to((root / image).resolve())
    return Case(name, folder, flat)
