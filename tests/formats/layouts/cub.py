"""CUB-200-2011 in miniature, its rows as the release has them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from tagfill.dataset import Dataset

ATTRIBUTES = ("has_bill_shape::curved_(up_or_down)", "has_wing_color::blue")
IMAGES = (
    "001.Black_footed_Albatross/Black_Footed_Albatross_0046_18.jpg",
    "002.Laysan_Albatross/Laysan_Albatross_0002_1027.jpg",
)
ROWS = (
    "1 1 0 3 27.7080",
    "1 2 1 3 27.7080",
    "2 1 1 4 0 0 12.5230",  # some rows of the release have fields too many
    "2 2 0 1 5.9600",
)


def write_cub(
    folder: Path,
    rows: Sequence[str] = ROWS,
    *,
    images: Sequence[str] = IMAGES,
    training: Sequence[int] = (0, 1),
    attributes: Sequence[str] = ATTRIBUTES,
) -> Path:
    """`folder` holds images.txt; attributes.txt lies beside it."""
    (folder / "attributes").mkdir(parents=True, exist_ok=True)
    _write(folder / "images.txt", [f"{number} {name}" for number, name in enumerate(images, 1)])
    _write(folder / "train_test_split.txt", [f"{number} {flag}" for number, flag in enumerate(training, 1)])
    _write(folder / "attributes" / "image_attribute_labels.txt", rows)
    _write(folder.parent / "attributes.txt", [f"{number} {name}" for number, name in enumerate(attributes, 1)])
    return folder


def write_dataset(folder: Path, dataset: Dataset) -> Path:
    """A dataset whose labels are all known; `folder` holds images.txt."""
    labels = dataset.labels().dense().tolist()
    rows = [
        f"{image} {attribute} {int(state == 1)} 3 0.0"
        for image, states in enumerate(labels, 1)
        for attribute, state in enumerate(states, 1)
    ]
    training = [int(split == "train") for split in dataset.images["split"].to_pylist()]
    return write_cub(folder, rows, images=dataset.names(), training=training, attributes=dataset.classes)


def _write(path: Path, lines: Sequence[str]) -> None:
    path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
