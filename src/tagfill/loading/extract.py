"""Making a feature cache: the frozen backbone looks once at several recorded views of each image.

Work goes shard by shard. A shard that is on disk and counted in the manifest is not made again, so an extraction that
was interrupted or killed goes on where it stopped, and ends with the same bytes as an unbroken one. While the network
works on a batch, worker processes decode the next.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from tagfill.annotations import Dataset
from tagfill.errors import ImageError, TagfillError
from tagfill.files import alone_in, replacing
from tagfill.images import EVAL
from tagfill.loading import encoding
from tagfill.loading.cache import FeatureCache
from tagfill.loading.cached_view import pack_geometry, shard_name
from tagfill.loading.continuing import take_over
from tagfill.loading.manifest import FileRecord, Manifest, MissingImage, ViewRecord
from tagfill.loading.pixels import Item, Loaded, load
from tagfill.loading.planned import PlannedView, parse_views
from tagfill.loading.view_arrays import ViewArrays
from tagfill.models import Backbone
from tagfill.models.heap import keep_freed_memory
from tagfill.progress import SILENT, Bar, Progress

SHARD_ROWS = 1024
_BATCH = 32
_LOOKED_AT = 32  # images, to decide how features are stored


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
    max_bad_images: float = 0.01,
    progress: Progress = SILENT,
) -> FeatureCache:
    """Make a feature cache, complete one, or add views to one; views that it has already are kept.

    Args:
        dataset: whose images to look at.
        backbone: frozen, with its weights.
        folder: of the cache.
        views: see `tagfill.loading.planned`.
        dtype: `uint8` needs a bounded activation, `float16`, `float32`, or `auto` for the smallest that is safe.
        train_split: the split that gets the extra views.
        seed: of the crops.
        workers: processes that decode.
        max_bad_images: share of the images that may fail to decode; they are listed and left out of every use.
        progress: told about each batch.

    Raises:
        TagfillError: if the folder holds a cache of another making, or too many images cannot be decoded.
    """
    planned = parse_views(views)
    encoding.check_dtype(dtype)
    covered = {v.name: np.arange(len(dataset)) if v.role == "eval" else dataset.split(train_split) for v in planned}
    manifest = Manifest(
        images=dataset.identities["images"],
        backbone=backbone.name,
        fingerprint=backbone.fingerprint(),
        preprocessing=backbone.preprocessing.to_json(),
        grid=backbone.grid,
        channels=backbone.channels,
        dtype=dtype,
        shard_rows=SHARD_ROWS,
        seed=seed,
        tokens=backbone.class_token,
        views={v.name: ViewRecord(v.role, v.number, len(covered[v.name])) for v in planned},
    )
    if not take_over(folder, manifest, covered):
        training = backbone.training
        backbone.eval()
        try:
            with alone_in(folder, "is making features"):
                take_over(folder, manifest, covered)  # nobody works on it any more
                if manifest.dtype == "auto" or not (folder / "manifest.json").exists():
                    manifest.dtype = _choose_dtype(dataset, backbone, dtype, progress)
                work = _Work(dataset, backbone, folder, manifest, workers, int(max_bad_images * len(dataset)), progress)
                work.run(planned, covered)
        finally:
            backbone.train(training)
    return FeatureCache.open(folder, dataset)


@dataclass
class _Work:
    dataset: Dataset
    backbone: Backbone
    folder: Path
    manifest: Manifest
    workers: int
    bad_images_allowed: int
    progress: Progress

    def run(self, planned: list[PlannedView], covered: dict[str, NDArray[np.int64]]) -> None:
        """Make what is not there of all views."""
        keep_freed_memory()  # the network takes and frees the same blocks with every batch
        self.manifest.save(self.folder)
        for temporary in self.folder.glob("**/.*.tmp"):  # of a process that was killed while it wrote
            temporary.unlink()
        left = sum(record.rows - record.done for record in self.manifest.views.values())
        with self.progress.bar("features", left, "img") as bar:
            for view in planned:
                if not self.manifest.views[view.name].finished:
                    self._make(view, covered[view.name], bar)

    def _make(self, view: PlannedView, rows: NDArray[np.int64], bar: Bar) -> None:
        """The shards of a view that are not there yet."""
        record, size = self.manifest.views[view.name], self.manifest.shard_rows
        shards = [slice(start, min(start + size, len(rows))) for start in range(record.done, len(rows), size)]
        batches = [rows[part][at : at + _BATCH] for part in shards for at in range(0, part.stop - part.start, _BATCH)]
        items = [[Item(int(row), int(row), view=view.number) for row in batch] for batch in batches]
        pixels = self.backbone.preprocessing.size
        loaded = load(self.dataset, items, view.view, pixels, seed=self.manifest.seed, workers=self.workers)
        with ViewArrays(self.folder / "views" / view.name, rows, self.manifest, done=record.done) as arrays:
            for part in shards:
                path = arrays.folder / shard_name(part.start // size)
                maps = self._look(loaded, rows[part], part.start, arrays, bar)
                if self.manifest.dtype == "uint8":
                    maps, arrays.scales[part.start // size] = encoding.to_bytes(maps)
                with replacing(path) as file:
                    np.save(file, maps, allow_pickle=False)
                arrays.sync()
                record.files[path.name] = FileRecord.of(path)
                record.done = part.stop
                self.manifest.save(self.folder)
        record.files |= {path.name: FileRecord.of(path) for path in arrays.paths}
        record.files = dict(sorted(record.files.items()))
        self.manifest.save(self.folder)

    def _look(
        self, loaded: Iterator[Loaded], rows: NDArray[np.int64], start: int, arrays: ViewArrays, bar: Bar
    ) -> NDArray[Any]:
        """Spatial features of one shard; pooled ones, class tokens and geometry go into their arrays."""
        dtype = "float32" if self.manifest.dtype == "uint8" else self.manifest.dtype
        maps = np.zeros((len(rows), *self.manifest.cells_of_row), dtype=dtype)
        for at in range(0, len(rows), _BATCH):
            views = next(loaded)
            batch = rows[at : at + _BATCH]
            self._leave_out(np.delete(batch, views.kept), views.bad)
            if len(views.kept):
                cells, token = _features(self.backbone, views.pixels, token=self.manifest.tokens)
                maps[at + views.kept] = cells
                if token is not None:
                    arrays.token[start + at + views.kept] = token
                arrays.pooled[start + at + views.kept] = cells.mean((1, 2))
                arrays.geometry[start + at + views.kept] = pack_geometry(views.geometry)
            bar.advance(len(batch))
        return maps

    def _leave_out(self, rows: NDArray[np.int64], bad: list[ImageError]) -> None:
        """Note images that could not be decoded, each once; too many are refused."""
        known = {image.row for image in self.manifest.missing}
        for row, error in zip(rows.tolist(), bad, strict=True):
            if row in known:
                continue
            self.manifest.missing.append(MissingImage(row, error.image, error.problem))
            self.progress.say(f"left out: {error}")
            if len(self.manifest.missing) > self.bad_images_allowed:
                raise TagfillError(
                    f"{len(self.manifest.missing)} images cannot be decoded, more than the {self.bad_images_allowed} "
                    "that max_bad_images allows; find them with 'tagfill inspect --decode', then mend or drop them."
                )


def _choose_dtype(dataset: Dataset, backbone: Backbone, dtype: str, progress: Progress) -> str:
    """The type to store features in, after a look at what the backbone says about a few images."""
    if backbone.bound is None:
        if dtype == "uint8":
            raise TagfillError(
                f"The features of {backbone.name} have no upper bound, so uint8 would cut them; choose float16."
            )
        return "float16" if dtype == "auto" else dtype
    if dtype not in ("auto", "uint8"):
        return dtype
    rows = np.unique(np.linspace(0, len(dataset) - 1, min(_LOOKED_AT, len(dataset))).astype(np.int64))
    items = [[Item(int(row), int(row)) for row in rows]]
    (views,) = load(dataset, items, EVAL, backbone.preprocessing.size, seed=0, workers=0)
    problem = encoding.why_not_bytes(_features(backbone, views.pixels)[0], backbone.bound) if len(views.kept) else None
    if problem is None:
        return "uint8"
    if dtype == "uint8":
        raise TagfillError(f"The features of {backbone.name} do not fit into bytes: {problem}; choose float16.")
    progress.say(f"features are stored as float16: {problem}")
    return "float16"


@torch.inference_mode()
def _features(
    backbone: Backbone, pixels: torch.Tensor, *, token: bool = False
) -> tuple[NDArray[np.float32], NDArray[np.float32] | None]:
    """Cells-last features of a batch of pixels, and the class tokens if they are asked for."""
    seen = backbone.look(pixels, token=token)
    cells = seen.grid.permute(0, 2, 3, 1).float().contiguous().numpy()
    return cells, None if seen.token is None else seen.token.float().numpy()
