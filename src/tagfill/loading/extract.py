"""Making a feature cache: the frozen backbone looks once at several recorded views of each image.

Work goes shard by shard. A shard that is on disk and counted in the manifest is not made again, so an extraction that
was interrupted or killed goes on where it stopped, and ends with the same bytes as an unbroken one. While the network
works on a batch, worker processes decode the next.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from tagfill.annotations import SCHEMA, Dataset
from tagfill.engines import Engine
from tagfill.errors import ImageError, TagfillError
from tagfill.files import alone_in
from tagfill.images import EVAL
from tagfill.loading import encoding
from tagfill.loading.cache import FeatureCache
from tagfill.loading.cached_view import shard_name
from tagfill.loading.continuing import take_over
from tagfill.loading.manifest import FileRecord, Manifest, MissingImage, ViewRecord
from tagfill.loading.pixels import Item, load
from tagfill.loading.planned import PlannedView, parse_views
from tagfill.loading.shard import BackboneFile, Shard, ShardElsewhere, ShardJob, features_of, make_elsewhere, make_shard
from tagfill.loading.source import TRAINING
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
    seed: int = 0,
    workers: int = 0,
    max_bad_images: float = 0.01,
    engine: Engine | None = None,
    progress: Progress = SILENT,
) -> FeatureCache:
    """Make a feature cache, complete one, or add views to one; views that it has already are kept.

    Args:
        dataset: whose images to look at.
        backbone: frozen, with its weights.
        folder: of the cache.
        views: see `tagfill.loading.planned`.
        dtype: `uint8` needs a bounded activation, `float16`, `float32`, or `auto` for the smallest that is safe.
        seed: of the crops.
        workers: processes that decode.
        max_bad_images: share of the images that may fail to decode; they are listed and left out of every use.
        engine: makes the shards, each in one of its processes; without it this process does.
        progress: told about each batch.

    Raises:
        TagfillError: if the folder holds a cache of another making, or too many images cannot be decoded.
    """
    planned = parse_views(views)
    encoding.check_dtype(dtype)
    covered = {v.name: np.arange(len(dataset)) if v.role == "eval" else dataset.split(TRAINING) for v in planned}
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
                limit = int(max_bad_images * len(dataset))
                work = _Work(dataset, backbone, folder.absolute(), manifest, workers, limit, engine, progress)
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
    engine: Engine | None
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
        parts = [slice(start, min(start + size, len(rows))) for start in range(record.done, len(rows), size)]
        with ViewArrays(self.folder / "views" / view.name, rows, self.manifest, done=record.done) as arrays:
            jobs = [self._job(arrays.folder / shard_name(part.start // size), view, rows[part]) for part in parts]
            for part, job, shard in zip(parts, jobs, self._made(view, jobs, bar), strict=True):
                self._leave_out(shard.missing)
                arrays.pooled[part.start + shard.kept] = shard.pooled
                if shard.token is not None:
                    arrays.token[part.start + shard.kept] = shard.token
                arrays.geometry[part.start + shard.kept] = shard.geometry
                if shard.scales is not None:
                    arrays.scales[part.start // size] = shard.scales
                arrays.sync()
                record.files[job.path.name] = shard.record
                record.done = part.stop
                self.manifest.save(self.folder)
        record.files |= {path.name: FileRecord.of(path) for path in arrays.paths}
        record.files = dict(sorted(record.files.items()))
        self.manifest.save(self.folder)

    def _job(self, path: Path, view: PlannedView, rows: NDArray[np.int64]) -> ShardJob:
        told = self.manifest
        return ShardJob(path, rows, view, told.cells_of_row, told.dtype, told.tokens, _BATCH, told.seed)

    def _made(self, view: PlannedView, jobs: list[ShardJob], bar: Bar) -> Iterator[Shard]:
        """The shards, in order, made here or by the engine."""
        if self.engine is None:
            items = [
                [Item(int(row), int(row), view=view.number) for row in batch] for job in jobs for batch in job.batches
            ]
            size = self.backbone.preprocessing.size
            loaded = load(self.dataset, items, view.view, size, seed=self.manifest.seed, workers=self.workers)
            yield from (make_shard(self.backbone, job, loaded, bar) for job in jobs)
            return
        file = BackboneFile.write(self.backbone, self.folder / ".backbone.safetensors")
        images = self.dataset.images.select(["image", "split"])
        bare = self.dataset.replace(annotations=SCHEMA.empty_table(), truth=None, protocol=None, folder=None)
        sent = [ShardElsewhere(job, bare.replace(images=images.take(job.rows)), file, self.workers) for job in jobs]
        try:
            for job, shard in zip(jobs, self.engine.map(make_elsewhere, sent), strict=True):
                bar.advance(len(job.rows))
                yield shard
        finally:
            file.path.unlink()

    def _leave_out(self, missing: list[MissingImage]) -> None:
        """Note images that could not be decoded, each once; too many are refused."""
        known = {image.row for image in self.manifest.missing}
        for image in missing:
            if image.row in known:
                continue
            self.manifest.missing.append(image)
            self.progress.say(f"left out: {ImageError(image.image, image.problem)}")
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
    problem = (
        encoding.why_not_bytes(features_of(backbone, views.pixels)[0], backbone.bound) if len(views.kept) else None
    )
    if problem is None:
        return "uint8"
    if dtype == "uint8":
        raise TagfillError(f"The features of {backbone.name} do not fit into bytes: {problem}; choose float16.")
    progress.say(f"features are stored as float16: {problem}")
    return "float16"
