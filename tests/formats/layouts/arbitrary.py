"""Arbitrary datasets for round trips, made of what a format can carry."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from hypothesis import strategies as st
from pycocotools import mask as coco_mask

from tagfill.dataset import IMAGES_SCHEMA, Dataset, from_records

WIDTH, HEIGHT = 40, 30


@st.composite
def boxes(draw: st.DrawFn) -> dict[str, float]:
    """Centre and size inside of the image, as float32 values."""
    left, top = draw(st.integers(0, WIDTH - 2)), draw(st.integers(0, HEIGHT - 2))
    right, bottom = draw(st.integers(left + 1, WIDTH)), draw(st.integers(top + 1, HEIGHT))
    values = {
        "x": (left + right) / 2 / WIDTH,
        "y": (top + bottom) / 2 / HEIGHT,
        "w": (right - left) / WIDTH,
        "h": (bottom - top) / HEIGHT,
    }
    return {name: float(np.float32(value)) for name, value in values.items()}


@st.composite
def located(draw: st.DrawFn, kinds: tuple[str, ...]) -> dict[str, Any]:
    """The columns of a location."""
    kind = draw(st.sampled_from(kinds))
    place: dict[str, Any] = {"kind": kind, **draw(boxes())}
    if kind == "mask":
        pixels = np.random.default_rng(draw(st.integers(0, 99))).random((HEIGHT, WIDTH)) < 0.2
        counts = coco_mask.encode(np.asfortranarray(pixels.astype(np.uint8)))["counts"]
        place |= {"rle": counts, "rle_height": HEIGHT, "rle_width": WIDTH}
    return place


@st.composite
def datasets(
    draw: st.DrawFn,
    *,
    name: str = "{split}2017/{number:012d}.jpg",
    kinds: tuple[str, ...] = ("box",),
    flags: tuple[str, ...] = (),
    states: tuple[int, ...] = (1, 0),
    unlocated: dict[str, Any] | None = None,
    classes: tuple[str, ...] = ("bird", "cat", "stop sign", "zèbre"),
    splits: tuple[str, ...] = ("train", "val"),
    sizes: bool = True,
) -> Dataset:
    """A dataset.

    Args:
        draw: by hypothesis.
        name: of an image, from its split, its number, and its folder, which is validation for val.
        kinds: of locations.
        flags: that a location may carry.
        states: of labels: 1, 0, -1.
        unlocated: columns of a present label without any location, if the format knows such labels.
        classes: in their order.
        splits: of images; each has at least one.
        sizes: whether the table of images has widths and heights.
    """
    images, rows = [], []
    for split in splits:
        numbers = sorted(draw(st.sets(st.integers(100, 999), min_size=1, max_size=4)))
        for number in numbers:
            image = name.format(split=split, number=number, folder="validation" if split == "val" else split)
            size = {"width": WIDTH, "height": HEIGHT} if sizes else {}
            images.append({"image": image, "split": split, **size})
            for label in classes:
                row = {"image": image, "label": label, "source": "test"}
                state = draw(st.sampled_from(states))
                if state == 0:
                    rows.append({**row, "present": False})
                if state != 1:
                    continue
                least = 1 if unlocated is None else 0
                places = draw(st.lists(located(kinds), min_size=least, max_size=2)) if kinds else []
                for place in places:
                    said = draw(st.sets(st.sampled_from(flags), max_size=2)) if flags else set()
                    rows.append({**row, "present": True, "flags": sorted(said) or None, **place})
                if not places:
                    rows.append({**row, "present": True, **(unlocated or {})})
    return Dataset("arbitrary", Path("photos"), classes, from_records(images, IMAGES_SCHEMA), from_records(rows))
