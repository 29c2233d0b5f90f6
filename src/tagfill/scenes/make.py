"""The embedded dataset: render the scenes into a folder, the same on every machine.

Each object has a row with its mask, and each absent class a row that says so.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image, ImageOps

from tagfill import rng
from tagfill.dataset import IMAGES_SCHEMA, Dataset, from_records, masks
from tagfill.dataset.dataset import local_root
from tagfill.errors import DatasetError
from tagfill.io import atomic_write, cache_folder, is_unused, write_json
from tagfill.progress import NOTEBOOK, Progress
from tagfill.scenes.compose import Instance, Scene, compose
from tagfill.scenes.glyphs import CLASSES, GROUPS, HIERARCHY

VERSION = 1  # of the pictures; increased whenever a pixel or a row changes
SPLITS = ("train", "val", "test")
_LEAST_SIZE = 64
_RECIPE = "scenes.json"  # written first, so that an interrupted folder can be recognized
SOURCE = "scenes"


def make(
    folder: str | os.PathLike[str] | None = None,
    *,
    train: int = 600,
    val: int = 200,
    test: int = 400,
    size: int = 224,
    groups: bool = False,
    seed: int = 0,
    progress: Progress = NOTEBOOK,
) -> Dataset:
    """Render the scenes, or open them if they exist.

    An image depends only on `seed`, `size`, its split and its number, so that a larger dataset contains the smaller
    one. A folder whose rendering was interrupted is rendered again.

    Args:
        folder: of the dataset; by default a folder in the cache that depends on these parameters.
        train: images in the train split.
        val: images in the val split.
        test: images in the test split.
        size: longer side of an image in pixels.
        groups: also label the five groups of pictograms, as parents in the hierarchy.
        seed: of the scenes.
        progress: reports each image.

    Returns:
        A fully labeled dataset with a mask for each object.

    Raises:
        DatasetError: if a number is invalid, or the folder holds something else.
    """
    counts = {"train": train, "val": val, "test": test}
    recipe = {"version": VERSION, **counts, "size": size, "groups": groups, "seed": seed}
    _check_sizes(counts, size, seed)
    target = cache_folder() / "scenes" / _cache_key(recipe) if folder is None else Path(folder)
    if _is_complete(target, recipe):
        return Dataset.open(target)
    images: list[dict[str, Any]] = []
    rows: list[dict[str, Any]] = []
    with progress.bar("Rendering scenes", sum(counts.values()), "images") as bar:
        for split in SPLITS:
            for index in range(counts[split]):
                name = f"images/{split}/{index:05d}.png"
                scene = render(split, index, size=size, seed=seed)
                _write_image(target / name, scene)
                height, width = scene.pixels.shape[:2]
                images.append({"image": name, "split": split, "width": width, "height": height})
                rows += scene_rows(name, scene, groups=groups)
                bar.advance()
    dataset = Dataset(
        name="scenes",
        root=target,
        classes=CLASSES + GROUPS if groups else CLASSES,
        images=from_records(images, IMAGES_SCHEMA),
        annotations=from_records(rows),
        hierarchy=HIERARCHY if groups else (),
    )
    return dataset.save(target)


def render(split: str, index: int, *, size: int = 224, seed: int = 0) -> Scene:
    """Render one scene of the dataset with this seed and size."""
    return compose(rng.generator(seed, "scenes", index=index, view=SPLITS.index(split)), size)


def contact_sheet(
    dataset: Dataset, count: int = 9, *, split: str | None = None, cell: int = 224, gap: int = 8
) -> Image.Image:
    """Show the first images of a dataset on a white grid.

    Args:
        dataset: with local images.
        count: largest number of images.
        split: only from this split.
        cell: side of a cell in pixels.
        gap: pixels between cells and around them.
    """
    root = local_root(dataset.root, "A contact sheet")
    names = dataset.names(None if split is None else dataset.split(split))[:count]
    columns = max(1, math.ceil(math.sqrt(len(names))))
    lines = max(1, math.ceil(len(names) / columns))
    sheet = Image.new("RGB", (gap + columns * (cell + gap), gap + lines * (cell + gap)), "white")
    for position, name in enumerate(names):
        with Image.open(root / name) as image:
            fitted = ImageOps.pad(image.convert("RGB"), (cell, cell), color="white")
        sheet.paste(fitted, (gap + position % columns * (cell + gap), gap + position // columns * (cell + gap)))
    return sheet


def scene_rows(image: str, scene: Scene, *, groups: bool) -> list[dict[str, Any]]:
    """One record per object, per absent class and, if requested, per group."""
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
    """A row with the mask and the tight box around it."""
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
        "rle": masks.encode(instance.mask),
        "rle_height": height,
        "rle_width": width,
        "source": SOURCE,
    }


def _check_sizes(counts: dict[str, int], size: int, seed: int) -> None:
    for split, count in counts.items():
        if count < 0:
            raise DatasetError(f"{count} {split} images were requested; give 0 or more.")
    if not any(counts.values()):
        raise DatasetError("No image was requested; give at least one split a size above 0.")
    if size < _LEAST_SIZE:
        raise DatasetError(
            f"Scenes of {size} pixels are too small to show anything; give a size of at least {_LEAST_SIZE}."
        )
    if seed < 0:
        raise DatasetError(f"The seed is {seed}; give 0 or more.")


def _cache_key(recipe: dict[str, Any]) -> str:
    return hashlib.sha256(json.dumps(recipe, sort_keys=True).encode()).hexdigest()[:12]


def _is_complete(folder: Path, recipe: dict[str, Any]) -> bool:
    """Whether the folder holds these scenes already; if not, claim it for them, or raise if it holds something else."""
    path = folder / _RECIPE
    if path.is_file():
        found = _read_recipe(path)
        if found != recipe:
            raise DatasetError(
                f"{folder} holds other scenes ({_describe(found)}, not {_describe(recipe)}); give another folder."
            )
        return (folder / "dataset.yaml").is_file()
    if folder.exists() and not folder.is_dir():
        raise DatasetError(f"{folder} is a file; give a folder.")
    if not is_unused(folder):
        raise DatasetError(f"{folder} is not empty and holds no scenes; give another folder.")
    write_json(path, recipe)
    return False


def is_interrupted(folder: Path) -> bool:
    """Whether a folder holds scenes whose rendering was interrupted."""
    return (folder / _RECIPE).is_file() and not (folder / "dataset.yaml").is_file()


def _read_recipe(path: Path) -> dict[str, Any]:
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except ValueError:
        found = None
    if not isinstance(found, dict):
        raise DatasetError(f"{path} cannot be read; delete its folder, or give another one.")
    return found


def _describe(recipe: dict[str, Any]) -> str:
    return " ".join(f"{name}={value}" for name, value in recipe.items())


def _write_image(path: Path, scene: Scene) -> None:
    with atomic_write(path, sync=False) as file:
        Image.fromarray(scene.pixels).save(file, "PNG", compress_level=1)
