"""Open Images as it is published, in three editions."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

from tagfill.dataset import Dataset

CAT, DOG, ANIMAL, PET, TOY = "/m/01yrx", "/m/0bt9lr", "/m/0jbk", "/m/068hy", "/m/0138tl"
ROOT = "/m/0bl9f"
LABELS = "ImageID,Source,LabelName,Confidence"
BOXES = (
    "ImageID,Source,LabelName,Confidence,XMin,XMax,YMin,YMax,IsOccluded,IsTruncated,IsGroupOf,IsDepiction,IsInside,"
    "XClick1X,XClick2X,XClick3X,XClick4X,XClick1Y,XClick2Y,XClick3Y,XClick4Y"
)
DESCRIPTIONS = f'{CAT},Cat\n{DOG},Dog\n{ANIMAL},Animal\n{PET},Pet\n{TOY},"Toy, small"\n'
HIERARCHY = {
    "LabelName": ROOT,
    "Subcategory": [
        {"LabelName": ANIMAL, "Subcategory": [{"LabelName": CAT}, {"LabelName": DOG, "Part": [{"LabelName": TOY}]}]},
        {"LabelName": PET, "Subcategory": [{"LabelName": CAT}]},
        {"LabelName": TOY},
    ],
}


def text(path: Path, *lines: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    return path


def v3(base: Path) -> Path:
    """Two splits; one label that is not trainable."""
    folder = base / "2017_11"
    text(
        folder / "train" / "annotations-human.csv",
        LABELS,
        f"000002b66c9c498e,verification,{DOG},1",
        f"000002b66c9c498e,verification,{CAT},0",
        "000002b66c9c498e,verification,/m/0zzzz,1",
        f"000002b97e5471a0,crowdsource-verification,{CAT},1.0",
        "0000071d71a0a6f6,verification,/m/0zzzz,1",
    )
    text(folder / "train" / "images.csv", "ImageID,Subset", "0000071d71a0a6f6,train", "000002b66c9c498e,train")
    text(folder / "validation" / "annotations-human.csv", LABELS, f"0001eeaf4aed83f9,verification,{CAT},0.0")
    text(folder / "classes-trainable.txt", DOG, CAT)
    (folder / "class-descriptions.csv").write_text(DESCRIPTIONS, encoding="utf-8")
    return base


def v5(folder: Path) -> Path:
    """One split with boxes, a hierarchy with two parents of one class, and no header in the descriptions."""
    text(
        folder / "train-annotations-human-imagelabels-boxable.csv",
        LABELS,
        f"000002b66c9c498e,verification,{DOG},0",
        f"000002b66c9c498e,verification,{CAT},1",
    )
    text(
        folder / "train-annotations-bbox.csv",
        BOXES,
        f"000002b66c9c498e,xclick,{CAT},1,0.25,0.75,0.5,1.0,1,-1,1,0,0,0.1,0.1,0.1,0.1,0.1,0.1,0.1,0.1",
        f"000004f4400f6ec5,activemil,{TOY},1,0.0,0.5,0.0,0.25,0,0,0,0,0,-1,-1,-1,-1,-1,-1,-1,-1",
    )
    (folder / "class-descriptions-boxable.csv").write_text(DESCRIPTIONS, encoding="utf-8")
    (folder / "bbox_labels_600_hierarchy.json").write_text(json.dumps(HIERARCHY), encoding="utf-8")
    return folder


def v6(folder: Path) -> Path:
    """One split, descriptions with a header, and a name that two classes share."""
    text(
        folder / "oidv6-train-annotations-human-imagelabels.csv",
        LABELS,
        f"000002b66c9c498e,verification,{CAT},1",
        f"000002b66c9c498e,verification,{DOG},0",
    )
    text(folder / "oidv6-classes-trainable.txt", CAT, DOG, PET)
    text(folder / "oidv6-class-descriptions.csv", "LabelName,DisplayName", f"{CAT},Pet", f"{DOG},Dog", f"{PET},Pet")
    return folder


def write_dataset(folder: Path, dataset: Dataset) -> None:
    """The files of V5; class names serve as ids, and images are named `train/<id>.jpg` and so on."""
    names = [BOXES.split(",")[:13], LABELS.split(",")]
    flags = ("occluded", "truncated", "group", "depiction", "inside")
    for split in dataset.splits:
        word = "validation" if split == "val" else split
        images = dataset.names(dataset.split(split))
        boxes, labels = [], []
        for row in dataset.rows().to_pylist():
            if row["image"] not in images:
                continue
            start = [Path(row["image"]).stem, row["source"], row["label"], int(row["present"])]
            if row["kind"] == "image":
                labels.append(start)
            else:
                x, y, w, h = (row[side] for side in "xywh")
                marks = [int(flag in (row["flags"] or ())) for flag in flags]
                boxes.append([*start, x - w / 2, x + w / 2, y - h / 2, y + h / 2, *marks])
        for ending, rows, header in zip(("bbox", "human-imagelabels-boxable"), (boxes, labels), names, strict=True):
            _write_csv(folder / f"{word}-annotations-{ending}.csv", [header, *rows])
        _write_csv(folder / f"{word}-images-with-rotation.csv", [["ImageID"], *([Path(name).stem] for name in images)])
    _write_csv(folder / "class-descriptions-boxable.csv", [[name, name] for name in dataset.classes])


def _write_csv(path: Path, rows: list[list[Any]]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w", encoding="utf-8", newline="") as file:
        csv.writer(file).writerows(rows)
