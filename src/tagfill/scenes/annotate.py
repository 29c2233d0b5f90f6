"""The rows that say everything about a scene: a mask for each object, and a no for each class that is absent."""

from __future__ import annotations

from typing import Any

import numpy as np

from tagfill.annotations import run_lengths
from tagfill.scenes.compose import Instance, Scene
from tagfill.scenes.vocabulary import CLASSES, GROUPS, HIERARCHY

SOURCE = "scenes"


def rows(image: str, scene: Scene, *, groups: bool) -> list[dict[str, Any]]:
    """One record per object, per absent class and, if asked for, per group."""
    present = {instance.label for instance in scene.instances}
    records = [_mask_row(image, instance) for instance in scene.instances]
    records += [_image_row(image, name, False) for name in CLASSES if name not in present]
    if groups:
        shown = {parent for child, parent in HIERARCHY if child in present}
        records += [_image_row(image, name, name in shown) for name in GROUPS]
    return records


def _image_row(image: str, label: str, present: bool) -> dict[str, Any]:
    return {"image": image, "label": label, "present": present, "kind": "image", "source": SOURCE}


def _mask_row(image: str, instance: Instance) -> dict[str, Any]:
    """The mask, and the tight box around its pixels."""
    height, width = instance.mask.shape
    down, across = np.flatnonzero(instance.mask.any(axis=1)), np.flatnonzero(instance.mask.any(axis=0))
    top, bottom, left, right = int(down[0]), int(down[-1]) + 1, int(across[0]), int(across[-1]) + 1
    return {
        "image": image,
        "label": instance.label,
        "present": True,
        "kind": "mask",
        "x": (left + right) / 2 / width,
        "y": (top + bottom) / 2 / height,
        "w": (right - left) / width,
        "h": (bottom - top) / height,
        "rle": run_lengths.encode(instance.mask),
        "rle_height": height,
        "rle_width": width,
        "source": SOURCE,
    }
