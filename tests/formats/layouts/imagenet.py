"""ImageNet in miniature."""

from __future__ import annotations

import json
from pathlib import Path

from formats.layouts.pictures import write_picture
from tagfill.dataset import Dataset

FISH, SHARK, HEN = "n01440764", "n01484850", "n01514859"


def write_imagenet(root: Path, real: list[list[int]] | None = None, *, flat: bool = False) -> Path:
    """Three classes, three training images, and four validation images in class folders or not."""
    for wnid, number in ((SHARK, 2), (FISH, 18), (FISH, 36)):
        write_picture(root / "train" / wnid / f"{wnid}_{number}.JPEG")
    (root / "train" / HEN).mkdir()
    for number, wnid in enumerate((HEN, FISH, SHARK, FISH), start=1):
        write_picture(root / "val" / ("" if flat else wnid) / f"ILSVRC2012_val_{number:08d}.JPEG")
    if real is not None:
        (root / "real.json").write_text(json.dumps(real))
    return root


def write_dataset(root: Path, dataset: Dataset) -> Path:
    """Training images in the folder of their one class, the others in `val/` with the ReaL lists of their labels."""
    present: dict[str, list[str]] = {name: [] for name in dataset.names()}
    for row in dataset.rows().to_pylist():
        if row["present"]:
            present[row["image"]].append(row["label"])
    classes, real = sorted(dataset.classes), {}
    for label in classes:
        (root / "train" / label).mkdir(parents=True, exist_ok=True)
    for record in dataset.images.to_pylist():
        name, labels = Path(record["image"]).name, present[record["image"]]
        if record["split"] == "train":
            write_picture(root / "train" / labels[0] / name)
        else:
            write_picture(root / "val" / name)
            real[name] = sorted(map(classes.index, labels))
    if real:
        (root / "real.json").write_text(json.dumps([numbers for _, numbers in sorted(real.items())]))
    return root
