"""ImageNet in miniature."""

from __future__ import annotations

import json
from pathlib import Path

from formats.layouts.pictures import write_picture

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
