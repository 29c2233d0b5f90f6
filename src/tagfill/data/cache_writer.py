"""Writing a feature cache: one shard of a view, in this or another process, and the arrays of the whole view.

The spatial features of a shard are written to the shard's own file, by the process that computes them. Everything else
goes into arrays of the whole view (`ViewArrays`) and into the manifest, which only the main process writes.
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

from tagfill.data.feature_cache import FeatureCache, pack_geometry, quantize, quantize_signed
from tagfill.data.manifest import FileRecord, Manifest, MissingImage, ViewRecord, ViewSpec
from tagfill.data.sources import DecodedBatch, ViewRequest, load_inner, load_views
from tagfill.dataset import Dataset
from tagfill.errors import TagfillError
from tagfill.images import Geometry
from tagfill.io import atomic_write, sync_file
from tagfill.models import Backbone, BackboneOutput, BackboneTop, Preprocessing, create_backbone
from tagfill.models.stages import FEATURES
from tagfill.progress import SILENT, Bar

PER_SHARD = ("scales", "offsets")  # arrays with one row per shard; the others have one per image


@dataclass(frozen=True)
class ShardJob:
    """A shard to make.

    Attributes:
        path: its file.
        rows: rows of the cache, also part of the address of the random draws of its images.
        view: view of each of these images.
        cells: shape of the features of one image, channels last.
        at: stage of the backbone whose output is stored.
        dtype: dtype of the spatial features.
        tokens: whether to store class tokens too.
        batch: images per forward pass. The last bits of the features depend on it, so smaller batches are filled up.
        seed: seed of the crops.
        source: cache of an inner stage to compute from, instead of images.
    """

    path: Path
    rows: NDArray[np.int64]
    view: ViewSpec
    cells: tuple[int, int, int]
    at: str
    dtype: str
    tokens: bool
    batch: int
    seed: int
    source: Path | None = None

    @property
    def batches(self) -> list[NDArray[np.int64]]:
        """The rows of each batch."""
        return [self.rows[at : at + self.batch] for at in range(0, len(self.rows), self.batch)]


@dataclass(frozen=True)
class ShardResult:
    """What a shard contains besides its spatial features.

    Attributes:
        kept: positions in the shard of the n images that could be decoded.
        pooled: n×D float32; not written for an inner stage.
        token: n×D float32; None if class tokens are not stored.
        geometry: n×7 float32.
        scales: D float32; None if features are not uint8.
        offsets: D float32; None unless features are uint8 of an inner stage.
        missing: images that could not be decoded.
        record: size and hash of the shard's file.
    """

    kept: NDArray[np.int64]
    pooled: NDArray[np.float32]
    token: NDArray[np.float32] | None
    geometry: NDArray[np.float32]
    scales: NDArray[np.float32] | None
    offsets: NDArray[np.float32] | None
    missing: list[MissingImage]
    record: FileRecord


def make_shard(
    backbone: Backbone | BackboneTop, job: ShardJob, decoded: Iterator[DecodedBatch], bar: Bar
) -> ShardResult:
    """Compute the features of a shard and write its file atomically.

    Args:
        backbone: in evaluation mode; the part above the inner stage that `decoded` is of, if it is of one.
        job: the shard to make.
        decoded: the views of its batches; exactly one item per batch is consumed.
        bar: reports each batch.
    """
    dtype = "float32" if job.dtype == "uint8" else job.dtype
    maps = np.zeros((len(job.rows), *job.cells), dtype=dtype)
    kept, missing = [np.empty(0, np.int64)], list[MissingImage]()
    empty = np.empty((0, job.cells[2]), np.float32)
    pooled, tokens, geometry = [empty], [empty], [np.empty((0, 7), np.float32)]
    for at, batch in zip(range(0, len(job.rows), job.batch), job.batches, strict=True):
        views = next(decoded)
        rows = np.delete(batch, views.kept).tolist()
        missing += [
            MissingImage(row=row, image=bad.image, problem=bad.problem)
            for row, bad in zip(rows, views.bad, strict=True)
        ]
        if len(views.kept):
            cells, token = compute_features(backbone, views.pixels, at=job.at, token=job.tokens, batch=job.batch)
            maps[at + views.kept] = cells
            kept.append(at + views.kept)
            pooled.append(cells.mean((1, 2)))
            tokens.extend([] if token is None else [token])
            geometry.append(pack_geometry(views.geometry))
        bar.advance(len(batch))
    scales: NDArray[np.float32] | None = None
    offsets: NDArray[np.float32] | None = None
    if job.dtype == "uint8" and job.at == FEATURES:
        maps, scales = quantize(maps)
    elif job.dtype == "uint8":
        maps, scales, offsets = quantize_signed(maps)
    with atomic_write(job.path) as file:
        np.save(file, maps, allow_pickle=False)
    return ShardResult(
        np.concatenate(kept),
        np.concatenate(pooled),
        np.concatenate(tokens) if job.tokens else None,
        np.concatenate(geometry),
        scales,
        offsets,
        missing,
        FileRecord.of(job.path),
    )


@torch.inference_mode()
def compute_features(
    backbone: Backbone | BackboneTop,
    pixels: torch.Tensor,
    *,
    at: str = FEATURES,
    token: bool = False,
    batch: int = 0,
) -> tuple[NDArray[np.float32], NDArray[np.float32] | None]:
    """Compute the features of a batch, B×G×G×D, and its class tokens if requested.

    Args:
        backbone: in evaluation mode, or its part above an inner stage.
        pixels: B×3×H×W, or B×C×H'×W' of the inner stage.
        at: stage whose output is wanted.
        token: whether to compute class tokens.
        batch: repeat the first image up to this size, so that no bit depends on how many images there are.
    """
    count = len(pixels)
    if count < batch:
        pixels = torch.cat([pixels, pixels[:1].expand(batch - count, -1, -1, -1)])
    pixels = pixels.to(next(backbone.parameters()).device)
    if at != FEATURES and isinstance(backbone, Backbone):
        output = BackboneOutput(backbone.below(pixels, at))
    else:
        output = backbone.encode(pixels, token=token)
    cells = output.features[:count].permute(0, 2, 3, 1).float().contiguous().cpu().numpy()
    return cells, None if output.token is None else output.token[:count].float().cpu().numpy()


@dataclass(frozen=True)
class BackboneFile:
    """A backbone on disk, for processes that have to build it: its weights in a file, and how to create it."""

    path: Path
    name: str
    preprocessing: Preprocessing
    fingerprint: str

    @classmethod
    def write(cls, backbone: Backbone, path: Path) -> BackboneFile:
        """Write the weights atomically."""
        state = {name: value.contiguous().cpu() for name, value in backbone.model.state_dict().items()}
        with atomic_write(path) as file:
            file.write(save(state))
        return cls(path, backbone.name, backbone.preprocessing, backbone.fingerprint())

    def open(self) -> Backbone:
        """Build the same backbone, in evaluation mode."""
        bare = create_backbone(self.name, image_size=self.preprocessing.size)
        bare.model.load_state_dict(load_file(self.path))
        backbone = Backbone(self.name, bare.model, self.preprocessing)
        if backbone.fingerprint() != self.fingerprint:
            raise TagfillError(
                f"The backbone {self.name} of a worker process differs from that of the main process; use the same "
                "versions of timm and Tagfill on all machines."
            )
        return backbone.eval()


@dataclass(frozen=True)
class RemoteShardJob:
    """Everything that another process needs to make a shard; engines send one item to a task.

    Attributes:
        job: the shard to make.
        dataset: a dataset of the images of this shard only, in the order of its rows.
        backbone: the frozen backbone.
        workers: number of decoding processes.
        device: of the network.
    """

    job: ShardJob
    dataset: Dataset
    backbone: BackboneFile
    workers: int
    device: str


def make_remote_shard(remote: RemoteShardJob) -> ShardResult:
    """Make a shard in the current process, which keeps the backbone for its next shard."""
    backbone, job = _open_backbone(remote.backbone, remote.device), remote.job
    positions = np.arange(len(job.rows))
    requests = [
        [ViewRequest(int(at), int(job.rows[at]), view=job.view.number) for at in positions[start : start + job.batch]]
        for start in range(0, len(positions), job.batch)
    ]
    with SILENT.bar("", None) as bar:
        if job.source is not None:
            inner = FeatureCache.open(job.source, remote.dataset)
            decoded = load_inner(remote.dataset, inner, requests, job.view.name)
            return make_shard(backbone.above(inner.at), job, decoded, bar)
        size = backbone.preprocessing.size
        decoded = load_views(remote.dataset, requests, job.view.view, size, seed=job.seed, workers=remote.workers)
        return make_shard(backbone, job, decoded, bar)


@functools.lru_cache(maxsize=1)
def _open_backbone(file: BackboneFile, device: str) -> Backbone:
    return file.open().to(device)


class ViewArrays:
    """The arrays of a view with one row per image or shard, open for writing.

    They are created, or keep the rows that are done and grow to the length of the view.

    Attributes:
        folder: of the view.
        geometry: n×7 float32; whole images until written.
        pooled: n×D float32; zeros until written, empty for an inner stage.
        token: n×D float32; empty if class tokens are not stored.
        scales: shards×D float32; empty if features are not uint8.
        offsets: shards×D float32; empty unless features are uint8 of an inner stage.
        paths: of the files.
    """

    def __init__(self, folder: Path, rows: NDArray[np.int64], manifest: Manifest, record: ViewRecord) -> None:
        self.folder, done = folder, record.done
        folder.mkdir(parents=True, exist_ok=True)
        shapes = array_shapes(record, manifest)
        if not done:
            for path in folder.iterdir():
                path.unlink()
        else:
            self._grow(shapes, record)
        with atomic_write(folder / "rows.npy") as file:  # after the others: while it is short, they may have grown
            np.save(file, rows, allow_pickle=False)
        self._arrays = {name: self._open(name, shape, done) for name, shape in shapes.items()}
        self.geometry = self._arrays["geometry"]
        self.pooled, self.token, self.scales, self.offsets = (
            self._arrays.get(name, np.empty((0, 0), np.float32)) for name in ("pooled", "token", "scales", "offsets")
        )
        if not done:
            self.geometry[:] = pack_geometry(Geometry.whole(len(rows)))
        self.paths = [folder / f"{name}.npy" for name in ("rows", *shapes)]

    def _grow(self, shapes: dict[str, tuple[int, ...]], record: ViewRecord) -> None:
        """Give arrays of another length that of the view; rows that are not done are those of a new view."""
        for name, shape in shapes.items():
            path = self.folder / f"{name}.npy"
            array = np.load(path, mmap_mode="r", allow_pickle=False)
            if array.shape == shape:
                continue
            grown = np.zeros(shape, np.float32)
            if name == "geometry":
                grown[:] = pack_geometry(Geometry.whole(len(grown)))
            kept = record.shards_done if name in PER_SHARD else record.done
            grown[:kept] = array[:kept]
            with atomic_write(path) as file:
                np.save(file, grown, allow_pickle=False)

    def _open(self, name: str, shape: tuple[int, ...], done: int) -> NDArray[Any]:
        path = self.folder / f"{name}.npy"
        if done:
            return np.load(path, mmap_mode="r+", allow_pickle=False)  # type: ignore[no-any-return]
        if 0 in shape:  # an empty file cannot be mapped
            np.save(path, np.empty(shape, np.float32), allow_pickle=False)
            return np.empty(shape, np.float32)
        return np.lib.format.open_memmap(path, mode="w+", dtype=np.float32, shape=shape)

    def write(self, start: int, shard_number: int, shard: ShardResult) -> None:
        """Write the rows of a shard and sync them to disk.

        Args:
            start: first row of the shard in the view.
            shard_number: number of the shard in the view.
            shard: the shard.
        """
        if len(self.pooled):
            self.pooled[start + shard.kept] = shard.pooled
        if shard.token is not None:
            self.token[start + shard.kept] = shard.token
        self.geometry[start + shard.kept] = shard.geometry
        if shard.scales is not None:
            self.scales[shard_number] = shard.scales
        if shard.offsets is not None:
            self.offsets[shard_number] = shard.offsets
        self.sync()

    def sync(self) -> None:
        """Sync to disk, before the manifest counts what was written."""
        for name, array in self._arrays.items():
            if isinstance(array, np.memmap):
                array.flush()
            sync_file(self.folder / f"{name}.npy")

    def __enter__(self) -> ViewArrays:
        return self

    def __exit__(self, *error: object) -> None:
        self.sync()


def array_shapes(record: ViewRecord, manifest: Manifest) -> dict[str, tuple[int, ...]]:
    """Shapes of the arrays of a view, except `rows`."""
    shapes: dict[str, tuple[int, ...]] = {"geometry": (record.rows, 7)}
    if not manifest.inner:
        shapes["pooled"] = (record.rows, manifest.channels)
    if manifest.tokens:
        shapes["token"] = (record.rows, manifest.channels)
    if manifest.dtype == "uint8":
        shapes |= dict.fromkeys(PER_SHARD if manifest.inner else PER_SHARD[:1], (len(record.shards), manifest.channels))
    return shapes
