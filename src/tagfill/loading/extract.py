"""Making a feature cache: the frozen backbone looks once at several recorded views of each image.

Work goes shard by shard. A shard that is on disk and counted in the manifest is not made again, so an interrupted
extraction goes on where it stopped.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from tagfill.annotations import Dataset
from tagfill.errors import TagfillError
from tagfill.files import replacing, sync_file
from tagfill.loading.cache import SHARD_ROWS, FeatureCache, Manifest, ViewRecord, pack_geometry, shard_path
from tagfill.loading.pixels import Item, Loaded, load
from tagfill.loading.planned import parse_views
from tagfill.models import Backbone
from tagfill.progress import SILENT, Bar, Progress

_BATCH = 32


def extract(
    dataset: Dataset,
    backbone: Backbone,
    folder: Path,
    *,
    views: str = "eval,flip,crops:2",
    dtype: str = "auto",
    train_split: str = "train",
    seed: int = 0,
    workers: int = 0,
    progress: Progress = SILENT,
) -> FeatureCache:
    """Make a feature cache, or complete one.

    Args:
        dataset: whose images to look at.
        backbone: frozen, with its weights.
        folder: of the cache.
        views: `eval` for all splits; `flip` and `crops:n` for the training split only.
        dtype: `uint8` needs a bounded activation, `float16`, `float32`, or `auto` for the smallest that is safe.
        train_split: the split that gets the extra views.
        seed: of the crops.
        workers: processes that decode.
        progress: told about each batch.
    """
    planned = parse_views(views)
    manifest = _manifest(dataset, backbone, dtype, seed)
    covered = {v.name: np.arange(len(dataset)) if v.name == "eval" else dataset.split(train_split) for v in planned}
    for name, rows in covered.items():
        manifest.views[name] = ViewRecord("eval" if name == "eval" else "weak", len(rows))
    _continue(folder, manifest, covered)
    manifest.save(folder)
    backbone = backbone.eval()
    left = sum(record.rows - record.done for record in manifest.views.values())
    with progress.bar("features", left, "img") as bar:
        for view in planned:
            rows, record = covered[view.name], manifest.views[view.name]
            arrays = _open_arrays(folder, view.name, rows, manifest)
            while record.done < record.rows:
                part = slice(record.done, min(record.done + SHARD_ROWS, record.rows))
                batches = [
                    [Item(int(row), int(row), view=view.number) for row in batch]
                    for batch in np.split(rows[part], np.arange(_BATCH, part.stop - part.start, _BATCH))
                ]
                loaded = load(dataset, batches, view.view, backbone.preprocessing.size, seed=seed, workers=workers)
                maps = _look(backbone, loaded, arrays, part, manifest, bar)
                with replacing(shard_path(folder, view.name, part.start // SHARD_ROWS)) as file:
                    np.save(file, maps, allow_pickle=False)
                arrays.sync()
                record.done = part.stop
                manifest.save(folder)
    return FeatureCache.open(folder, dataset)


def _look(
    backbone: Backbone,
    loaded: Iterator[Loaded],
    arrays: _Arrays,
    part: slice,
    manifest: Manifest,
    bar: Bar,
) -> NDArray[np.generic]:
    """Spatial features of one shard, as they are stored; pooled ones and geometry go into their arrays."""
    maps = np.empty((part.stop - part.start, *manifest.grid, manifest.channels), dtype=manifest.dtype)
    done = 0
    for views in loaded:
        for error in views.bad:
            raise error
        cells = _features(backbone, views.pixels)
        here = slice(done, done + len(cells))
        there = slice(part.start + here.start, part.start + here.stop)
        maps[here] = _encode(cells, manifest)
        arrays.pooled[there] = cells.mean((1, 2)).numpy()
        arrays.geometry[there] = pack_geometry(views.geometry)
        bar.advance(len(cells))
        done = here.stop
    return maps


@dataclass
class _Arrays:
    pooled: np.memmap[tuple[int, ...], np.dtype[np.float32]]
    geometry: np.memmap[tuple[int, ...], np.dtype[np.float32]]

    def sync(self) -> None:
        """Put what was written on disk before the manifest counts it."""
        for array in (self.pooled, self.geometry):
            array.flush()


def _open_arrays(folder: Path, view: str, rows: NDArray[np.int64], manifest: Manifest) -> _Arrays:
    """The per-row arrays of a view, made anew unless some of their rows are done."""
    place = folder / "views" / view
    place.mkdir(parents=True, exist_ok=True)
    mode = "r+" if manifest.views[view].done else "w+"
    if mode == "w+":
        np.save(place / "rows.npy", rows, allow_pickle=False)
        sync_file(place / "rows.npy")
    shapes = {"pooled": (len(rows), manifest.channels), "geometry": (len(rows), 6)}
    opened = {
        name: np.lib.format.open_memmap(place / f"{name}.npy", mode=mode, dtype=np.float32, shape=shape)
        for name, shape in shapes.items()
    }
    return _Arrays(**opened)


def _manifest(dataset: Dataset, backbone: Backbone, dtype: str, seed: int) -> Manifest:
    if dtype == "auto":
        dtype = "uint8" if backbone.bound is not None else "float16"
    if dtype not in ("uint8", "float16", "float32"):
        raise TagfillError(f"'{dtype}' is not a type of cached features; choose uint8, float16, float32 or auto.")
    if dtype == "uint8" and backbone.bound is None:
        raise TagfillError(
            f"The features of {backbone.name} have no upper bound, so uint8 would cut them; choose float16."
        )
    return Manifest(
        images=dataset.identities["images"],
        backbone=backbone.name,
        fingerprint=backbone.fingerprint(),
        preprocessing=backbone.preprocessing.to_json(),
        grid=backbone.grid,
        channels=backbone.channels,
        dtype=dtype,
        step=1.0 if backbone.bound is None or dtype != "uint8" else backbone.bound / 255,
        seed=seed,
    )


def _continue(folder: Path, wanted: Manifest, covered: dict[str, NDArray[np.int64]]) -> None:
    """Take over what an existing cache in `folder` has done, if it is of the same making and of the same rows."""
    if not (folder / "manifest.json").exists():
        return
    there = Manifest.read(folder)
    for name in ("images", "backbone", "fingerprint", "preprocessing", "dtype", "seed"):
        if getattr(there, name) != getattr(wanted, name):
            raise TagfillError(
                f"{folder} already holds a feature cache with other {name}; choose another folder or delete it."
            )
    for name, record in there.views.items():
        rows = folder / "views" / name / "rows.npy"
        if name in covered and rows.is_file() and np.array_equal(np.load(rows, allow_pickle=False), covered[name]):
            wanted.views[name].done = record.done


@torch.inference_mode()
def _features(backbone: Backbone, pixels: Tensor) -> Tensor:
    """Cells-last features of a batch of pixels."""
    features: Tensor = backbone(pixels)
    return features.permute(0, 2, 3, 1).float().contiguous()


def _encode(cells: Tensor, manifest: Manifest) -> NDArray[np.generic]:
    if manifest.dtype == "uint8":
        cells = (cells / manifest.step).round().clamp(0, 255)
    return cells.numpy().astype(manifest.dtype)
