"""A YOLO dataset as its tools write it: data.yaml, images/ and labels/."""

from __future__ import annotations

from pathlib import Path

from formats.layouts.pictures import write_picture

NAMES_AS_LIST = "names: [cat, 'no']\n"
NAMES_AS_DICT = "names:\n  0: cat\n  1: 'no'\n"


def write_yolo(
    root: Path, labels: dict[str, str | None], *, names: str = NAMES_AS_LIST, splits_above: bool = False
) -> Path:
    """One image for each key, such as `train/1`, and its text file unless the text is None."""
    parts = list(dict.fromkeys(name.split("/")[0] for name in labels))
    for name, text in labels.items():
        part, rest = name.split("/", 1)
        image = f"{part}/images/{rest}" if splits_above else f"images/{part}/{rest}"
        write_picture(root / f"{image}.jpg")
        if text is not None:
            path = root / f"{image.replace('images', 'labels', 1)}.txt"
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(text.encode())
    places = {part: f"../{part}/images" if splits_above else f"images/{part}" for part in parts}
    lines = [f"{part}: {place}\n" for part, place in places.items()]
    (root / "data.yaml").write_text("".join(lines) + "nc: 2\n" + names, encoding="utf-8")
    return root
