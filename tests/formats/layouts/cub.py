"""CUB-200-2011 in miniature, its rows as the release has them."""

from __future__ import annotations

from pathlib import Path

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


def write_cub(folder: Path, rows: tuple[str, ...] = ROWS, *, attributes: Path | None = None) -> Path:
    """`folder` is that of images.txt; `attributes` is where attributes.txt goes, beside the folder by default."""
    (folder / "attributes").mkdir(parents=True)
    (folder / "images.txt").write_text("".join(f"{number} {name}\n" for number, name in enumerate(IMAGES, 1)))
    (folder / "train_test_split.txt").write_text("1 0\n2 1\n")
    (folder / "attributes" / "image_attribute_labels.txt").write_text("".join(f"{row}\n" for row in rows))
    lines = "".join(f"{number} {name}\n" for number, name in enumerate(ATTRIBUTES, 1))
    (attributes or folder.parent / "attributes.txt").write_text(lines)
    return folder
