"""Make the embedded dataset: a folder of scenes, the same on every machine."""

from __future__ import annotations

import hashlib
import json
import os
from pathlib import Path
from typing import Any

from PIL import Image

from tagfill import draws
from tagfill.annotations import IMAGES_SCHEMA, Dataset, from_records
from tagfill.errors import DatasetError
from tagfill.files import cache_folder, replacing, write_json
from tagfill.progress import SILENT, Progress
from tagfill.scenes import annotate
from tagfill.scenes.compose import Scene, compose
from tagfill.scenes.vocabulary import CLASSES, GROUPS, HIERARCHY

VERSION = 1  # of the pictures; raised whenever a pixel or a row changes
SPLITS = ("train", "val", "test")
_LEAST_SIZE = 64
_RECIPE = "scenes.json"  # written first: an interrupted folder says what it was going to be


def make(
    folder: str | os.PathLike[str] | None = None,
    *,
    train: int = 600,
    val: int = 200,
    test: int = 400,
    size: int = 224,
    groups: bool = False,
    seed: int = 0,
    progress: Progress = SILENT,
) -> Dataset:
    """Render the scenes, or open them if they were rendered before.

    An image depends on `seed`, `size`, its split and its number alone, so more images extend a dataset
    and change none. A folder whose rendering was interrupted is rendered again.

    Args:
        folder: where to put them; by default a folder of the cache that belongs to these parameters.
        train: images in the train split.
        val: images in the val split.
        test: images in the test split.
        size: pixels of the longer side of an image.
        groups: also label the five groups of pictograms, as parents in the hierarchy.
        seed: another seed gives other scenes.
        progress: told about each image.

    Returns:
        A fully labelled dataset with a mask for each object.

    Raises:
        DatasetError: the numbers make no sense, or the folder holds something else.
    """
    counts = {"train": train, "val": val, "test": test}
    recipe = {"version": VERSION, **counts, "size": size, "groups": groups, "seed": seed}
    _check(counts, size, seed)
    target = cache_folder() / "scenes" / _key(recipe) if folder is None else Path(folder)
    if _claim(target, recipe):
        return Dataset.open(target)
    images: list[dict[str, Any]] = []
    rows: list[dict[str, Any]] = []
    with progress.bar("Rendering scenes", sum(counts.values()), "images") as bar:
        for split in SPLITS:
            for index in range(counts[split]):
                name = f"images/{split}/{index:05d}.png"
                scene = render(split, index, size=size, seed=seed)
                _write(target / name, scene)
                height, width = scene.pixels.shape[:2]
                images.append({"image": name, "split": split, "width": width, "height": height})
                rows += annotate.rows(name, scene, groups=groups)
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
    """One scene, as it is in the dataset of this seed and size."""
    return compose(draws.generator(seed, "scenes", index=index, view=SPLITS.index(split)), size)


def _check(counts: dict[str, int], size: int, seed: int) -> None:
    for split, count in counts.items():
        if count < 0:
            raise DatasetError(f"{count} {split} images were asked for; give 0 or more.")
    if not any(counts.values()):
        raise DatasetError("No image was asked for; give at least one split a size above 0.")
    if size < _LEAST_SIZE:
        raise DatasetError(
            f"Scenes of {size} pixels are too small to show anything; give a size of at least {_LEAST_SIZE}."
        )
    if seed < 0:
        raise DatasetError(f"The seed is {seed}; give 0 or more.")


def _key(recipe: dict[str, Any]) -> str:
    return hashlib.sha256(json.dumps(recipe, sort_keys=True).encode()).hexdigest()[:12]


def _claim(folder: Path, recipe: dict[str, Any]) -> bool:
    """Whether the folder is already complete; otherwise it is ours to fill, or an error."""
    path = folder / _RECIPE
    if path.is_file():
        found = _read(path)
        if found != recipe:
            raise DatasetError(
                f"{folder} holds other scenes ({_words(found)}, not {_words(recipe)}); give another folder."
            )
        return (folder / "dataset.yaml").is_file()
    if folder.exists() and not folder.is_dir():
        raise DatasetError(f"{folder} is a file; give a folder.")
    unfinished = f".{_RECIPE}."  # what a killed or a parallel call leaves before its first image
    if folder.is_dir() and not all(content.name.startswith(unfinished) for content in folder.iterdir()):
        raise DatasetError(f"{folder} is not empty and holds no scenes; give another folder.")
    write_json(path, recipe)
    return False


def _read(path: Path) -> dict[str, Any]:
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except ValueError:
        found = None
    if not isinstance(found, dict):
        raise DatasetError(f"{path} cannot be read; delete its folder, or give another one.")
    return found


def _words(recipe: dict[str, Any]) -> str:
    return " ".join(f"{name}={value}" for name, value in recipe.items())


def _write(path: Path, scene: Scene) -> None:
    with replacing(path, sync=False) as file:
        Image.fromarray(scene.pixels).save(file, "PNG", compress_level=1)
