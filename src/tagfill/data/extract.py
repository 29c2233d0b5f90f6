"""Making a feature cache: the frozen backbone computes features of several views of each image, once.

Work goes shard by shard. A shard that is on disk and counted in the manifest is not made again, so an extraction that
was interrupted or killed continues where it stopped, and ends with the same bytes as an uninterrupted one. While the
network computes a batch, worker processes decode the next one.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from tagfill.data.cache_writer import (
    BackboneFile,
    RemoteShardJob,
    ShardJob,
    ShardResult,
    ViewArrays,
    array_shapes,
    compute_features,
    make_remote_shard,
    make_shard,
)
from tagfill.data.feature_cache import DTYPES, FeatureCache, find_wrong_sizes, quantization_problem, shard_name
from tagfill.data.manifest import FileRecord, Manifest, MissingImage, ViewRecord, ViewSpec, parse_view_specs
from tagfill.data.sources import TRAIN_SPLIT, ViewRequest, load_views
from tagfill.dataset import SCHEMA, Dataset
from tagfill.engines import Engine, create_engine
from tagfill.errors import ImageError, TagfillError
from tagfill.images import EVAL, input_size
from tagfill.io import cache_folder, exclusive_lock
from tagfill.models import Backbone, choose_device, create_backbone
from tagfill.models.allocator import disable_heap_trimming
from tagfill.progress import NOTEBOOK, SILENT, Bar, Progress

SHARD_ROWS = 1024
_BATCH = 32
_PROBED_IMAGES = 32  # to decide how features are stored
_MUST_MATCH = ("images", "backbone", "fingerprint", "preprocessing", "seed")


def features(
    dataset: Dataset | str | Path,
    *,
    backbone: str = "tf_efficientnet_lite0",
    pretrained: bool | str = "bundled",
    image_size: int | str | tuple[int, int] | None = None,
    views: str = "eval,flip,crops:2",
    out: str | Path | None = None,
    dtype: str = "auto",
    seed: int = 0,
    workers: int = 0,
    max_bad_images: float = 0.01,
    engine: str | None = None,
    jobs: int | None = None,
    ray_address: str | None = None,
    device: str = "auto",
    progress: Progress = NOTEBOOK,
) -> FeatureCache:
    """Compute features of every image with a frozen backbone, for several views, and store them.

    Args:
        dataset: the dataset, or its folder.
        backbone: timm's name of the backbone.
        pretrained: its weights, see `tagfill.models.create_backbone`.
        image_size: side of the square input, or height and width; None takes the backbone's default.
        views: views of each image, such as `eval,flip,crops:2`; all except `eval` for the training split only.
        out: folder of the cache; by default one below Tagfill's cache folder, named after images and backbone.
        dtype: dtype of the spatial features.
        seed: seed of the crops, and of random weights.
        workers: number of processes that decode images.
        max_bad_images: share of the images that may fail to decode; they are listed and left out.
        engine: `joblib` for several processes on this machine, `ray` for those of a cluster, which must all see the
            same folders; None does everything in this process.
        jobs: number of the engine's processes on this machine; one per core by default.
        ray_address: address of a running Ray cluster.
        device: of the network: `cpu`, `cuda`, `mps`, or `auto`.
        progress: reports each batch.

    Returns:
        The complete cache. An existing one is only opened, an interrupted one is completed, and missing views are
        added.

    Example:
        >>> cache = tagfill.features("my-data", backbone="tf_efficientnet_lite0")  # doctest: +SKIP
    """
    data = dataset if isinstance(dataset, Dataset) else Dataset.open(dataset)
    size = None if image_size is None else input_size(image_size)
    trunk = create_backbone(backbone, pretrained=pretrained, image_size=size, seed=seed)
    if out is None:
        key = f"{data.identities['images'][:12]}-{trunk.fingerprint()[:12]}-{views.replace(':', '')}-{dtype}-s{seed}"
        out = cache_folder() / "features" / f"{data.name}-{backbone}-{key}"
    return extract(
        data,
        trunk,
        Path(out),
        views=views,
        dtype=dtype,
        seed=seed,
        workers=workers,
        max_bad_images=max_bad_images,
        engine=None if engine is None else create_engine(engine, workers=jobs, address=ray_address),
        device=device,
        progress=progress,
    )


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
    device: str = "auto",
    progress: Progress = SILENT,
) -> FeatureCache:
    """Make a feature cache, complete one, or add views to one; existing views are kept.

    Args:
        dataset: dataset with the images.
        backbone: frozen, with its weights.
        folder: folder of the cache.
        views: see `tagfill.data.manifest`.
        dtype: `uint8` (needs a bounded activation), `float16`, `float32`, or `auto` for the smallest safe one.
        seed: seed of the crops.
        workers: number of processes that decode images.
        max_bad_images: share of the images that may fail to decode; they are listed and left out.
        engine: makes the shards in its processes; None makes them in this process.
        device: of the network: `cpu`, `cuda`, `mps`, or `auto`.
        progress: reports each batch.

    Raises:
        TagfillError: if the folder holds a different cache, or too many images cannot be decoded.
    """
    if dtype not in (*DTYPES, "auto"):
        raise TagfillError(f"'{dtype}' is not a type of cached features; choose {', '.join(DTYPES)} or auto.")
    chosen = choose_device(device)
    specs = parse_view_specs(views)
    rows = {spec.name: np.arange(len(dataset)) if spec.role == "eval" else dataset.split(TRAIN_SPLIT) for spec in specs}
    manifest = Manifest(
        images=dataset.identities["images"],
        backbone=backbone.name,
        fingerprint=backbone.fingerprint(),
        preprocessing=backbone.preprocessing,
        grid=backbone.grid,
        channels=backbone.channels,
        dtype=dtype,
        shard_rows=SHARD_ROWS,
        seed=seed,
        tokens=backbone.class_token,
        missing=[],
        views={
            spec.name: ViewRecord(role=spec.role, number=spec.number, rows=len(rows[spec.name]), done=0, files={})
            for spec in specs
        },
    )
    if not reuse_existing(folder, manifest, rows):
        training = backbone.training
        backbone.eval().to(chosen)
        try:
            with exclusive_lock(folder, "is making features"):
                reuse_existing(folder, manifest, rows)  # again, now that no other process can change it
                if manifest.dtype == "auto" or not (folder / "manifest.json").exists():
                    manifest.dtype = _choose_dtype(dataset, backbone, dtype, progress)
                limit = int(max_bad_images * len(dataset))
                extraction = _Extraction(
                    dataset, backbone, folder.absolute(), manifest, workers, limit, engine, chosen.type, progress
                )
                extraction.run(specs, rows)
        finally:
            backbone.train(training).to("cpu")
    return FeatureCache.open(folder, dataset)


def reuse_existing(folder: Path, wanted: Manifest, rows: dict[str, NDArray[np.int64]]) -> bool:
    """Add to `wanted` what an existing cache in `folder` has already.

    Complete views that are not requested are kept. A requested view that is damaged or covers other rows is made
    again; an incomplete view that is not requested is dropped.

    Args:
        folder: folder of the cache.
        wanted: a manifest of the requested views; becomes that of the cache.
        rows: rows of each requested view.

    Returns:
        Whether the cache is already complete.

    Raises:
        TagfillError: if the existing cache was made from something else.
    """
    if not (folder / "manifest.json").exists():
        return False
    existing = Manifest.read(folder)
    for name in _MUST_MATCH:
        if getattr(existing, name) != getattr(wanted, name):
            raise _different_cache(folder, name)
    if wanted.dtype not in (existing.dtype, "auto"):
        raise _different_cache(folder, "dtype")
    wanted.dtype, wanted.shard_rows, wanted.missing = existing.dtype, existing.shard_rows, existing.missing
    wanted.tokens = existing.tokens  # the same for all views: a cache that was made without them stays without them
    for name, record in existing.views.items():
        if name in rows:
            if _is_reusable(folder, name, existing, rows[name]):
                wanted.views[name] = record
        elif record.done == record.rows:
            wanted.views[name] = record
    wanted.views = dict(sorted(wanted.views.items(), key=lambda item: (item[1].number, item[0])))
    return existing == wanted and all(record.finished for record in existing.views.values())


def _is_reusable(folder: Path, view: str, manifest: Manifest, rows: NDArray[np.int64]) -> bool:
    """Whether the finished part of a view is undamaged and covers these rows."""
    if any(find_wrong_sizes(folder, view, manifest)):
        return False
    shapes = {"rows": (len(rows),), **array_shapes(len(rows), manifest)}
    try:
        arrays = {
            name: np.load(folder / "views" / view / f"{name}.npy", mmap_mode="r", allow_pickle=False) for name in shapes
        }
    except (OSError, ValueError, EOFError):
        return False
    return all(arrays[name].shape == shape for name, shape in shapes.items()) and np.array_equal(arrays["rows"], rows)


def _different_cache(folder: Path, name: str) -> TagfillError:
    return TagfillError(
        f"{folder} already contains a feature cache with different {name}; choose another folder or delete it."
    )


def _choose_dtype(dataset: Dataset, backbone: Backbone, dtype: str, progress: Progress) -> str:
    """Choose the dtype of the stored features, after a look at the features of a few images."""
    if backbone.bound is None:
        if dtype == "uint8":
            raise TagfillError(
                f"The features of {backbone.name} have no upper bound, so uint8 would clip them; choose float16."
            )
        return "float16" if dtype == "auto" else dtype
    if dtype not in ("auto", "uint8"):
        return dtype
    rows = np.unique(np.linspace(0, len(dataset) - 1, min(_PROBED_IMAGES, len(dataset))).astype(np.int64))
    requests = [[ViewRequest(int(row), int(row)) for row in rows]]
    (views,) = load_views(dataset, requests, EVAL, backbone.preprocessing.size, seed=0, workers=0)
    problem = None
    if len(views.kept):
        problem = quantization_problem(compute_features(backbone, views.pixels)[0], backbone.bound)
    if problem is None:
        return "uint8"
    if dtype == "uint8":
        raise TagfillError(f"The features of {backbone.name} cannot be stored as uint8: {problem}; choose float16.")
    progress.say(f"features are stored as float16: {problem}")
    return "float16"


@dataclass
class _Extraction:
    """Makes the missing shards of a cache and keeps its manifest up to date."""

    dataset: Dataset
    backbone: Backbone
    folder: Path
    manifest: Manifest
    workers: int
    bad_images_allowed: int
    engine: Engine | None
    device: str
    progress: Progress

    def run(self, specs: list[ViewSpec], rows: dict[str, NDArray[np.int64]]) -> None:
        """Make the missing shards of all views."""
        disable_heap_trimming()  # the network allocates and frees the same blocks with every batch
        self.manifest.save(self.folder)
        for temporary in self.folder.glob("**/.*.tmp"):  # left by a process that was killed while writing
            temporary.unlink()
        left = sum(record.rows - record.done for record in self.manifest.views.values())
        with self.progress.bar("features", left, "img") as bar:
            for spec in specs:
                if not self.manifest.views[spec.name].finished:
                    self._make_view(spec, rows[spec.name], bar)

    def _make_view(self, spec: ViewSpec, rows: NDArray[np.int64], bar: Bar) -> None:
        """Make the missing shards of a view."""
        manifest = self.manifest
        record, size = manifest.views[spec.name], manifest.shard_rows
        starts = range(record.done, len(rows), size)
        with ViewArrays(self.folder / "views" / spec.name, rows, manifest, done=record.done) as arrays:
            jobs = [
                ShardJob(
                    path=arrays.folder / shard_name(start // size),
                    rows=rows[start : start + size],
                    view=spec,
                    cells=manifest.cells_of_row,
                    dtype=manifest.dtype,
                    tokens=manifest.tokens,
                    batch=_BATCH,
                    seed=manifest.seed,
                )
                for start in starts
            ]
            for start, job, shard in zip(starts, jobs, self._make_shards(spec, jobs, bar), strict=True):
                self._add_missing(shard.missing)
                arrays.write(start, start // size, shard)
                record.files[job.path.name] = shard.record
                record.done = start + len(job.rows)
                manifest.save(self.folder)
        record.files |= {path.name: FileRecord.of(path) for path in arrays.paths}
        record.files = dict(sorted(record.files.items()))
        manifest.save(self.folder)

    def _make_shards(self, spec: ViewSpec, jobs: list[ShardJob], bar: Bar) -> Iterator[ShardResult]:
        """Make shards in this process or with the engine, in order."""
        if self.engine is None:
            requests = [
                [ViewRequest(int(row), int(row), view=spec.number) for row in batch]
                for job in jobs
                for batch in job.batches
            ]
            size = self.backbone.preprocessing.size
            decoded = load_views(self.dataset, requests, spec.view, size, seed=self.manifest.seed, workers=self.workers)
            yield from (make_shard(self.backbone, job, decoded, bar) for job in jobs)
            return
        file = BackboneFile.write(self.backbone, self.folder / ".backbone.safetensors")
        images = self.dataset.images.select(["image", "split"])
        bare = self.dataset.replace(annotations=SCHEMA.empty_table(), truth=None, protocol=None, folder=None)
        remote = [
            RemoteShardJob(job, bare.replace(images=images.take(job.rows)), file, self.workers, self.device)
            for job in jobs
        ]
        try:
            for job, shard in zip(jobs, self.engine.map(make_remote_shard, remote), strict=True):
                bar.advance(len(job.rows))
                yield shard
        finally:
            file.path.unlink()

    def _add_missing(self, missing: list[MissingImage]) -> None:
        """Record images that could not be decoded, each once; raise if there are too many."""
        known = {image.row for image in self.manifest.missing}
        for image in missing:
            if image.row in known:
                continue
            self.manifest.missing.append(image)
            self.progress.say(f"left out: {ImageError(image.image, image.problem)}")
            if len(self.manifest.missing) > self.bad_images_allowed:
                raise TagfillError(
                    f"{len(self.manifest.missing)} images cannot be decoded, more than the {self.bad_images_allowed} "
                    "that max_bad_images allows; find them with 'tagfill inspect --decode', then repair or remove them."
                )
