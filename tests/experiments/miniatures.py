"""Miniatures of the released datasets: a dozen images each, in the layout of the release, for dry runs of recipes."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import numpy as np
from PIL import Image

from formats.layouts import cifar100, coco_panoptic, nus_wide
from formats.layouts import cub as cub_layout
from formats.layouts import imagenet as imagenet_layout
from formats.layouts import lvis as lvis_layout
from formats.layouts import objects365 as objects365_layout
from formats.layouts import openimages as openimages_layout
from tagfill.dataset import IMAGES_SCHEMA, Dataset, from_records
from tagfill.formats import coco as coco_format
from tagfill.formats import voc as voc_format

CLASSES = ("bird", "cat", "dog", "tree")
WIDTH, HEIGHT = 40, 32
TRAIN, HELD_OUT = 12, 6


def pictures(root: Path, pattern: str, *, splits: Sequence[str] = ("train", "val"), side: int | None = None) -> Dataset:
    """A dataset without labels: images of noise below `root`, named by the pattern."""
    rng = np.random.RandomState(7)
    images = []
    for split in splits:
        for number in range(1, (TRAIN if split == "train" else HELD_OUT) + 1):
            identity = number + 100 * splits.index(split)
            folder = {"val": "validation"}.get(split, split)
            name = pattern.format(split=split, number=identity, folder=folder)
            width, height = (side, side) if side else (WIDTH, HEIGHT)
            path = root / name
            path.parent.mkdir(parents=True, exist_ok=True)
            Image.fromarray(rng.randint(0, 256, (height, width, 3)).astype(np.uint8)).save(path)
            images.append({"image": name, "split": split, "width": width, "height": height})
    return Dataset("miniature", root, CLASSES, from_records(images, IMAGES_SCHEMA), from_records([]))


def labeled(data: Dataset, *, boxes: bool = True, known: float = 1.0, single: bool = False) -> Dataset:
    """The same images with labels: one to three classes each, and all or a share of the absent ones known."""
    rng, rows = np.random.RandomState(11), []
    leaves = [name for name in data.classes if name not in {parent for _, parent in data.hierarchy}]
    for place, image in enumerate(data.names()):
        shown = {leaves[place % len(leaves)]}
        if not single:
            shown |= set(rng.choice(leaves, rng.randint(0, 3)).tolist())
        for label in leaves:
            row = {"image": image, "label": label, "present": label in shown, "source": "miniature"}
            if label in shown and boxes:
                x, y = rng.uniform(0.3, 0.7, 2)
                row |= {"kind": "box", "x": x, "y": y, "w": 0.3, "h": 0.4}
            if label in shown or rng.uniform() < known:
                rows.append(row)
        for parent in sorted({above for _, above in data.hierarchy}):
            if not any((child, parent) in data.hierarchy for child in shown):
                rows.append({"image": image, "label": parent, "present": False, "source": "miniature"})
    return Dataset(data.name, data.root, data.classes, data.images, from_records(rows), data.hierarchy)


def voc(root: Path) -> None:
    folder = root / "VOCdevkit" / "VOC2012"
    voc_format.write(labeled(pictures(folder, "JPEGImages/2008_{number:06d}.jpg")), folder)


def coco(root: Path) -> None:
    """2014, 2017 and the panoptic labels of 2017, as they lie in one folder."""
    folder = root / "coco"
    for year, name in ((2014, "COCO_{split}2014_{number:012d}.jpg"), (2017, "{number:012d}.jpg")):
        data = labeled(pictures(folder, f"{{split}}{year}/{name}"))
        coco_format.write(data, folder, year=year)
    things = pictures(folder, "{split}2017/{number:012d}.jpg")
    edges = (("bird", "animal"), ("cat", "animal"), ("dog", "animal"), ("tree", "plant"))
    graph = Dataset("miniature", folder, (*CLASSES, "animal", "plant"), things.images, things.annotations, edges)
    coco_panoptic.write_dataset(folder, labeled(graph))


def nus(root: Path) -> None:
    data = labeled(pictures(root / "nuswide" / "Flickr", "beach/{number:04d}.jpg"), boxes=False)
    parts = nus_wide.parts_of(data, {"train": "train", "val": "val"})
    nus_wide.write_arrays(root / "nuswide", parts, CLASSES)


def cub(root: Path) -> None:
    data = pictures(root / "CUB_200_2011" / "images", "001.Albatross/{number:04d}.jpg")
    cub_layout.write_dataset(root / "CUB_200_2011", labeled(data, boxes=False))


def imagenet(root: Path) -> None:
    data = labeled(pictures(root / "pictures", "{split}/{number:04d}.jpg"), boxes=False, single=True)
    imagenet_layout.write_dataset(root / "imagenet", data)


def cifar(root: Path) -> None:
    data = pictures(root / "pictures", "{split}/{number:05d}.png", side=32)
    edges = (("bird", "animal"), ("cat", "animal"), ("dog", "animal"), ("tree", "plant"))
    graph = Dataset("miniature", data.root, (*CLASSES, "animal", "plant"), data.images, data.annotations, edges)
    cifar100.write_dataset(root / "cifar-100-binary", labeled(graph, boxes=False, single=True))


def lvis(root: Path) -> None:
    data = labeled(pictures(root / "lvis", "{split}2017/{number:012d}.jpg"), known=0.5)
    lvis_layout.write_dataset(root / "lvis", data)


def objects365(root: Path) -> None:
    data = labeled(pictures(root / "objects365", "{split}/patch0/objects365_v2_{number:08d}.jpg"))
    objects365_layout.write_dataset(root / "objects365", data)


def openimages(root: Path) -> None:
    """Three editions over the same pictures."""
    folder = root / "openimages"
    data = labeled(
        pictures(folder, "{folder}/{number:016x}.jpg", splits=("train", "val", "test")), boxes=False, known=0.5
    )
    openimages_layout.write_dataset(folder, data)
    rows = data.annotations.to_pylist()  # type: ignore[union-attr]
    for split in ("train", "validation", "test"):
        lines = [
            f"{Path(row['image']).stem},verification,{row['label']},{int(row['present'])}"
            for row in rows
            if row["image"].startswith(f"{split}/")
        ]
        for path in (
            folder / "2017_11" / split / "annotations-human.csv",
            folder / f"oidv6-{split}-annotations-human-imagelabels.csv",
        ):
            _text(path, ["ImageID,Source,LabelName,Confidence", *lines])
    for start in ("2017_11/", "oidv6-"):
        _text(Path(f"{folder}/{start}classes-trainable.txt"), CLASSES)
    _text(folder / "2017_11" / "class-descriptions.csv", [f"{name},{name}" for name in CLASSES])
    descriptions = ["LabelName,DisplayName", *(f"{name},{name}" for name in CLASSES)]
    _text(folder / "oidv6-class-descriptions.csv", descriptions)


def _text(path: Path, lines: Sequence[str]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")


def scenes(root: Path) -> None:
    """Nothing to write: `tagfill import scenes` renders them."""


RELEASES: dict[str, Callable[[Path], None]] = {
    "VOCdevkit": voc,
    "coco": coco,
    "nuswide": nus,
    "CUB_200_2011": cub,
    "imagenet": imagenet,
    "cifar-100-binary": cifar,
    "lvis": lvis,
    "objects365": objects365,
    "openimages": openimages,
}


def sources(commands: Sequence[str]) -> Iterator[str]:
    """The releases that commands import."""
    for command in commands:
        words = command.split()
        if words[1] == "import" and words[2] != "scenes":
            yield words[3]
