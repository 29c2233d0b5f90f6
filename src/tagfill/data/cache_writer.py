"""The arrays of a cached view that hold a row for each image, open for writing.

One shard of a view of a feature cache: made here, or by another process that can see the same folders.

Spatial features go into the shard's own file. What belongs into the arrays of the whole view, and into the manifest, is
handed back to whoever keeps those.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from safetensors.torch import load_file, save

from tagfill.data import feature_cache
from tagfill.data.feature_cache import pack_geometry
from tagfill.data.manifest import FileRecord, Manifest, MissingImage, PlannedView
from tagfill.data.sources import Item, Loaded, load
from tagfill.dataset import Dataset
from tagfill.errors import TagfillError
from tagfill.images import Geometry
from tagfill.io import atomic_write, sync_file
from tagfill.models import Backbone, Preprocessing, create_backbone
from tagfill.progress import SILENT, Bar


class ViewArrays:
    """`rows`, `geometry`, `pooled`, `token` and `scales` of a view; made anew unless some of its rows are done.

    Attributes:
        folder: of the view.
        geometry: n×7 float32; whole images until written.
        pooled: n×D float32; zeros until written.
        token: n×D float32; empty where class tokens are not kept.
        scales: shards×D float32; empty where features are not bytes.
        paths: of the files.
    """

    def __init__(self, folder: Path, rows: NDArray[np.int64], manifest: Manifest, *, done: int) -> None:
        self.folder = folder
        folder.mkdir(parents=True, exist_ok=True)
        shapes = shapes_of(len(rows), manifest)
        if not done:
            for path in folder.iterdir():
                path.unlink()
            with atomic_write(folder / "rows.npy") as file:
                np.save(file, rows, allow_pickle=False)
        self._arrays = {name: self._open(name, shape, done) for name, shape in shapes.items()}
        self.geometry, self.pooled = self._arrays["geometry"], self._arrays["pooled"]
        self.token = self._arrays.get("token", np.empty((0, 0), np.float32))
        self.scales = self._arrays.get("scales", np.empty((0, 0), np.float32))
        if not done:
            self.geometry[:] = pack_geometry(Geometry.whole(len(rows)))
        self.paths = [folder / f"{name}.npy" for name in ("rows", *shapes)]

    def _open(self, name: str, shape: tuple[int, ...], done: int) -> NDArray[Any]:
        path = self.folder / f"{name}.npy"
        if done:
            return np.load(path, mmap_mode="r+", allow_pickle=False)  # type: ignore[no-any-return]
        if 0 in shape:  # nothing to map
            np.save(path, np.empty(shape, np.float32), allow_pickle=False)
            return np.empty(shape, np.float32)
        return np.lib.format.open_memmap(path, mode="w+", dtype=np.float32, shape=shape)

    def sync(self) -> None:
        """Put what was written on disk, before the manifest counts it."""
        for name, array in self._arrays.items():
            if isinstance(array, np.memmap):
                array.flush()
            sync_file(self.folder / f"{name}.npy")

    def __enter__(self) -> ViewArrays:
        return self

    def __exit__(self, *error: object) -> None:
        self.sync()


def shapes_of(rows: int, manifest: Manifest) -> dict[str, tuple[int, ...]]:
    """Of the arrays of a view of so many rows, besides `rows`."""
    shapes: dict[str, tuple[int, ...]] = {"geometry": (rows, 7), "pooled": (rows, manifest.channels)}
    if manifest.tokens:
        shapes["token"] = (rows, manifest.channels)
    if manifest.dtype == "uint8":
        shapes["scales"] = (-(-rows // manifest.shard_rows), manifest.channels)
    return shapes


@dataclass(frozen=True)
class ShardJob:
    """What a shard is to hold.

    Attributes:
        path: of its file.
        rows: of the image table.
        view: of each of these images.
        cells: shape of the features of one image, cells last.
        dtype: of the spatial features.
        tokens: keep class tokens too.
        batch: images that the backbone looks at together; last bits of features depend on it.
        seed: of the crops.
    """

    path: Path
    rows: NDArray[np.int64]
    view: PlannedView
    cells: tuple[int, int, int]
    dtype: str
    tokens: bool
    batch: int
    seed: int

    @property
    def batches(self) -> list[NDArray[np.int64]]:
        """The rows of each batch."""
        return [self.rows[at : at + self.batch] for at in range(0, len(self.rows), self.batch)]


@dataclass(frozen=True)
class Shard:
    """What was found besides spatial features.

    Attributes:
        kept: positions in the shard of the n images that could be decoded.
        pooled: n×D float32.
        token: n×D float32, where class tokens are kept.
        geometry: n×7 float32.
        scales: D float32, where features are bytes.
        missing: images that could not be decoded.
        record: of the file.
    """

    kept: NDArray[np.int64]
    pooled: NDArray[np.float32]
    token: NDArray[np.float32] | None
    geometry: NDArray[np.float32]
    scales: NDArray[np.float32] | None
    missing: list[MissingImage]
    record: FileRecord


def make_shard(backbone: Backbone, job: ShardJob, loaded: Iterator[Loaded], bar: Bar) -> Shard:
    """Look at the images of a shard and write its file, whole or not at all.

    Args:
        backbone: in evaluation mode.
        job: what to make.
        loaded: the views of each of its batches; no more of them are taken.
        bar: told about each batch.
    """
    dtype = "float32" if job.dtype == "uint8" else job.dtype
    maps = np.zeros((len(job.rows), *job.cells), dtype=dtype)
    kept, missing = [np.empty(0, np.int64)], list[MissingImage]()
    nothing = np.empty((0, job.cells[2]), np.float32)
    pooled, tokens, geometry = [nothing], [nothing], [np.empty((0, 7), np.float32)]
    for at, batch in zip(range(0, len(job.rows), job.batch), job.batches, strict=True):
        views = next(loaded)
        rows = np.delete(batch, views.kept).tolist()
        missing += [MissingImage(row, bad.image, bad.problem) for row, bad in zip(rows, views.bad, strict=True)]
        if len(views.kept):
            cells, token = features_of(backbone, views.pixels, token=job.tokens)
            maps[at + views.kept] = cells
            kept.append(at + views.kept)
            pooled.append(cells.mean((1, 2)))
            tokens.extend([] if token is None else [token])
            geometry.append(pack_geometry(views.geometry))
        bar.advance(len(batch))
    scales: NDArray[np.float32] | None = None
    if job.dtype == "uint8":
        maps, scales = feature_cache.to_bytes(maps)
    with atomic_write(job.path) as file:
        np.save(file, maps, allow_pickle=False)
    return Shard(
        np.concatenate(kept),
        np.concatenate(pooled),
        np.concatenate(tokens) if job.tokens else None,
        np.concatenate(geometry),
        scales,
        missing,
        FileRecord.of(job.path),
    )


@torch.inference_mode()
def features_of(
    backbone: Backbone, pixels: torch.Tensor, *, token: bool = False
) -> tuple[NDArray[np.float32], NDArray[np.float32] | None]:
    """Cells-last features of a batch of pixels, and the class tokens if they are asked for."""
    seen = backbone.look(pixels, token=token)
    cells = seen.grid.permute(0, 2, 3, 1).float().contiguous().numpy()
    return cells, None if seen.token is None else seen.token.float().numpy()


@dataclass(frozen=True)
class BackboneFile:
    """A backbone for processes that have yet to make it: its weights in a file, and what it is made of."""

    path: Path
    name: str
    preprocessing: Preprocessing
    fingerprint: str

    @classmethod
    def write(cls, backbone: Backbone, path: Path) -> BackboneFile:
        """Write the weights, whole or not at all."""
        state = {name: value.contiguous() for name, value in backbone.model.state_dict().items()}
        with atomic_write(path) as file:
            file.write(save(state))
        return cls(path, backbone.name, backbone.preprocessing, backbone.fingerprint())

    def open(self) -> Backbone:
        """The same backbone, in evaluation mode."""
        bare = create_backbone(self.name, image_size=self.preprocessing.size)
        bare.model.load_state_dict(load_file(self.path))
        backbone = Backbone(self.name, bare.model, self.preprocessing)
        if backbone.fingerprint() != self.fingerprint:
            raise TagfillError(f"The backbone {self.name} is another one in this process than in the first; stop here.")
        return backbone.eval()


@dataclass(frozen=True)
class ShardElsewhere:
    """All that making a shard in another process takes.

    Attributes:
        job: what to make.
        dataset: with the images of this shard alone, in the order of its rows.
        backbone: the frozen one.
        workers: processes that decode.
    """

    job: ShardJob
    dataset: Dataset
    backbone: BackboneFile
    workers: int


def make_elsewhere(shard: ShardElsewhere) -> Shard:
    """Make a shard in a process of its own, which keeps the backbone for its next one."""
    backbone, job = _opened(shard.backbone), shard.job
    places = np.arange(len(job.rows))
    numbered = [
        [Item(int(place), int(job.rows[place]), view=job.view.number) for place in places[at : at + job.batch]]
        for at in range(0, len(places), job.batch)
    ]
    size = backbone.preprocessing.size
    loaded = load(shard.dataset, numbered, job.view.view, size, seed=job.seed, workers=shard.workers)
    with SILENT.bar("", None) as bar:
        return make_shard(backbone, job, loaded, bar)


@functools.lru_cache(maxsize=1)
def _opened(file: BackboneFile) -> Backbone:
    return file.open()
