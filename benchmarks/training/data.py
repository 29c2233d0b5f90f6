"""Photos and feature caches to measure with."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from tagfill.data.extract import SHARD_ROWS
from tagfill.data.feature_cache import pack_geometry, shard_name
from tagfill.data.manifest import Manifest, ViewRecord, shard_sizes
from tagfill.dataset import IMAGES_SCHEMA, Dataset, from_records
from tagfill.images import Geometry
from tagfill.models import create_backbone
from tagfill.scenes.make import render

BACKBONE = "tf_efficientnet_lite0"


def photos(folder: Path, count: int, size: tuple[int, int] = (800, 600), source: Path | None = None) -> Dataset:
    """Scenes with the grain of a camera as JPEGs of quality 90, or the first JPEGs of another folder."""
    (folder / "images").mkdir(parents=True)
    names = [f"images/{number:05d}.jpg" for number in range(count)]
    if source is not None:
        found = sorted(path for path in source.rglob("*") if path.suffix.lower() in (".jpg", ".jpeg"))[:count]
        if len(found) < count:
            raise SystemExit(f"{source} holds {len(found)} JPEGs; {count} are needed.")
        for path, name in zip(found, names, strict=True):
            shutil.copyfile(path, folder / name)
    else:
        rng = np.random.default_rng(0)
        for number, name in enumerate(names):
            scene = Image.fromarray(render("train", number, size=800).pixels).resize(size)
            grain = rng.normal(0, 6, (size[1], size[0], 1))
            grainy = np.clip(np.asarray(scene) + grain, 0, 255).astype(np.uint8)
            Image.fromarray(grainy).save(folder / name, quality=90)
    return single_positive(folder, names, classes=20)


def single_positive(folder: Path, names: list[str], classes: int) -> Dataset:
    """A dataset in which one label of each image is known."""
    labels = [f"class {number}" for number in range(classes)]
    images = [{"image": name, "split": "train", "width": 800, "height": 600} for name in names]
    rows = [
        {"image": name, "label": labels[number % classes], "present": True, "kind": "image", "source": "benchmark"}
        for number, name in enumerate(names)
    ]
    return Dataset(
        name="photos",
        root=folder,
        classes=tuple(labels),
        images=from_records(images, IMAGES_SCHEMA),
        annotations=from_records(rows),
    ).save(folder)


def features(
    folder: Path, count: int, classes: int, *, maps: bool, views: tuple[str, ...] = ("eval", "flip")
) -> Dataset:
    """A dataset without image files and, in `cache` below it, random features of one or two views of each."""
    dataset = single_positive(folder, [f"{number:06d}.jpg" for number in range(count)], classes)
    write_cache(dataset, folder / "cache", maps=maps, views=views)
    return dataset


def write_cache(
    dataset: Dataset,
    folder: Path,
    *,
    maps: bool = False,
    views: tuple[str, ...] = ("eval",),
    pooled: NDArray[np.float32] | None = None,
) -> None:
    """A feature cache of all images of a dataset, with random features unless the pooled ones are given."""
    count = dataset.images.num_rows
    backbone = create_backbone(BACKBONE, pretrained="bundled")
    assert backbone.bound is not None
    manifest = Manifest(
        images=dataset.identities["images"],
        image_count=count,
        backbone=BACKBONE,
        fingerprint=backbone.fingerprint(),
        preprocessing=backbone.preprocessing,
        grid=backbone.grid,
        channels=backbone.channels,
        dtype="uint8",
        shard_rows=SHARD_ROWS,
        seed=0,
        missing=[],
        views={},
    )
    rng = np.random.default_rng(0)
    for number, view in enumerate(views):
        place = folder / "views" / view
        place.mkdir(parents=True)
        np.save(place / "rows.npy", np.arange(count))
        np.save(place / "geometry.npy", pack_geometry(Geometry.whole(count)))
        drawn = rng.random((count, backbone.channels), dtype=np.float32)
        np.save(place / "pooled.npy", drawn if pooled is None else pooled)
        scales = np.full((-(-count // SHARD_ROWS), backbone.channels), backbone.bound / 255, np.float32)
        np.save(place / "scales.npy", scales)
        for start in range(0, count if maps else 0, SHARD_ROWS):
            shape = (min(SHARD_ROWS, count - start), *backbone.grid, backbone.channels)
            np.save(place / shard_name(start // SHARD_ROWS), rng.integers(0, 256, shape, dtype=np.uint8))
        manifest.views[view] = ViewRecord(
            role="weak" if number else "eval",
            number=number,
            rows=count,
            done=count,
            files={},
            shards=shard_sizes(count, SHARD_ROWS),
        )
    manifest.save(folder)
