"""CIFAR-100 in miniature: the binary version."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from tagfill.dataset import Dataset

FINE = ("apple", "aquarium_fish", "bear")
COARSE = ("fish", "fruit_and_vegetables", "large_carnivores")
PARENTS = {0: 1, 1: 0, 2: 2}
TRAIN, TEST = (0, 2, 0), (1,)


def pixels(count: int, seed: int) -> NDArray[np.uint8]:
    """Random records of 3,072 bytes: 1,024 of red, then green, then blue."""
    return np.random.RandomState(seed).randint(0, 256, (count, 3072)).astype(np.uint8)


def write_binary(folder: Path) -> Path:
    """`cifar-100-binary`."""
    folder.mkdir(exist_ok=True)
    for seed, (word, classes) in enumerate({"train": TRAIN, "test": TEST}.items()):
        heads = np.array([(PARENTS[child], child) for child in classes], dtype=np.uint8)
        (folder / f"{word}.bin").write_bytes(np.hstack([heads, pixels(len(classes), seed)]).tobytes())
    write_names(folder, FINE, COARSE)
    return folder


def write_names(folder: Path, fine: Sequence[str], coarse: Sequence[str]) -> None:
    """The names of classes and superclasses, with an empty line at the end as in the release."""
    for kind, names in (("fine", fine), ("coarse", coarse)):
        (folder / f"{kind}_label_names.txt").write_text("".join(f"{name}\n" for name in names) + "\n")


def write_dataset(folder: Path, dataset: Dataset) -> None:
    """Images of 32×32 pixels that show one class and its parent each; all splits but train become `test.bin`."""
    folder.mkdir(parents=True, exist_ok=True)
    parents = dict(dataset.hierarchy)
    fine = [name for name in dataset.classes if name in parents]
    coarse = [name for name in dataset.classes if name not in parents]
    present = {row["image"]: row["label"] for row in dataset.rows().to_pylist() if row["present"]}
    records: dict[str, list[bytes]] = {"train": [], "test": []}
    for image in dataset.images.to_pylist():
        child = present[image["image"]]
        with Image.open(dataset.root / image["image"]) as picture:
            flat = np.asarray(picture.convert("RGB")).transpose(2, 0, 1).tobytes()
        head = bytes([coarse.index(parents[child]), fine.index(child)])
        records["train" if image["split"] == "train" else "test"].append(head + flat)
    for word, parts in records.items():
        (folder / f"{word}.bin").write_bytes(b"".join(parts))
    write_names(folder, fine, coarse)
