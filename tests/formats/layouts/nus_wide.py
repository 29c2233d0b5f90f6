"""NUS-WIDE in miniature: the official text files, and the released arrays."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from tagfill.dataset import Dataset

CONCEPTS = ("airport", "animal", "beach")
Parts = dict[str, dict[str, tuple[int, ...]]]


def write_official(root: Path, parts: Parts, concepts: Sequence[str] = CONCEPTS) -> Path:
    """`parts` maps Train and Test to images and one 0 or 1 for each concept; lines end as in the official files."""
    lists, labels = root / "ImageList", root / "Groundtruth" / "TrainTestLabels"
    lists.mkdir(parents=True)
    labels.mkdir(parents=True)
    (root / "Flickr").mkdir()
    for word, images in parts.items():
        names = [name.replace("/", "\\") for name in images]
        (lists / f"{word}Imagelist.txt").write_bytes("".join(f"{name}\r\n" for name in names).encode())
        for column, concept in enumerate(concepts):
            lines = "".join(f"{values[column]} \n" for values in images.values())
            (labels / f"Labels_{concept}_{word}.txt").write_text(lines)
    return root


def write_arrays(root: Path, parts: Parts, concepts: Sequence[str] = CONCEPTS) -> Path:
    """`parts` maps train and val to images and labels."""
    for word, images in parts.items():
        labels = np.array(list(images.values()), dtype=np.float64).reshape(len(images), len(concepts))
        np.save(root / f"formatted_{word}_images.npy", np.array(list(images), dtype=np.str_))
        np.save(root / f"formatted_{word}_labels.npy", labels)
    (root / "Concepts81.txt").write_text("\n".join(concepts), encoding="utf-8")
    return root


def parts_of(dataset: Dataset, words: dict[str, str]) -> Parts:
    """The images of each split, under the word that a layout has for it, with 1 for each present concept."""
    parts: Parts = {word: {} for word in words.values()}
    labels = (dataset.labels().dense() == 1).astype(int).tolist()
    for record, states in zip(dataset.images.to_pylist(), labels, strict=True):
        parts[words[record["split"]]][record["image"]] = tuple(states)
    return parts
