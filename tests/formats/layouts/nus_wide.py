"""NUS-WIDE in miniature: the official text files, and the released arrays."""

from __future__ import annotations

from pathlib import Path

import numpy as np

CONCEPTS = ("airport", "animal", "beach")


def write_official(root: Path, parts: dict[str, dict[str, tuple[int, ...]]]) -> Path:
    """`parts` maps Train and Test to images and one 0 or 1 for each concept; lines end as in the official files."""
    lists, labels = root / "ImageList", root / "Groundtruth" / "TrainTestLabels"
    lists.mkdir(parents=True)
    labels.mkdir(parents=True)
    (root / "Flickr").mkdir()
    for word, images in parts.items():
        names = [name.replace("/", "\\") for name in images]
        (lists / f"{word}Imagelist.txt").write_bytes("".join(f"{name}\r\n" for name in names).encode())
        for column, concept in enumerate(CONCEPTS):
            lines = "".join(f"{values[column]} \n" for values in images.values())
            (labels / f"Labels_{concept}_{word}.txt").write_text(lines)
    return root


def write_arrays(root: Path, parts: dict[str, dict[str, tuple[int, ...]]]) -> Path:
    """`parts` maps train and val to images and labels."""
    for word, images in parts.items():
        np.save(root / f"formatted_{word}_images.npy", np.array(list(images)))
        np.save(root / f"formatted_{word}_labels.npy", np.array(list(images.values()), dtype=np.float64))
    (root / "Concepts81.txt").write_text("\n".join(CONCEPTS))
    return root
