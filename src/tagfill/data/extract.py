"""Making a feature cache: the frozen backbone computes features of several views of each image, once.

Work goes shard by shard. A shard that is on disk and counted in the manifest is not made again, so an extraction that
was interrupted or killed continues where it stopped, and ends with the same bytes as an uninterrupted one. Images that
were added to the dataset or moved to the training split add shards, and nothing that is there is computed again. While
the network computes a batch, worker processes decode the next one. From the cache of an inner stage, the features at
the end are computed by the part of the network above that stage, and no image is decoded.
"""

from __future__ import annotations

import contextlib
import glob
import os
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from tagfill.data.cache_images import FILE as IMAGES_FILE
from tagfill.data.cache_images import CachedImages
from tagfill.data.cache_writer import (
    PER_SHARD,
    BackboneFile,
    RemoteShardJob,
    ShardJob,
    ShardResult,
    ViewArrays,
    array_shapes,
    make_remote_shard,
    make_shard,
)
from tagfill.data.feature_cache import (
    DTYPES,
    FeatureCache,
    find_wrong_sizes,
    shard_name,
)
from tagfill.data.manifest import (
    FileRecord,
    Manifest,
    MissingImage,
    ViewRecord,
    ViewSpec,
    parse_view_specs,
    shard_sizes,
    views_text,
)
from tagfill.data.sources import TRAIN_SPLIT, ViewRequest, load_inner, load_views
from tagfill.data.stored_dtype import choose_dtype
from tagfill.dataset import SCHEMA, Dataset
from tagfill.engines import Engine, create_engine
from tagfill.errors import ImageError, TagfillError
from tagfill.images import input_size, open_root
from tagfill.images.roots import WITNESSES, shared_files
from tagfill.io import cache_folder, exclusive_lock
from tagfill.models import Backbone, BackboneTop, choose_device, create_backbone
from tagfill.models.allocator import disable_heap_trimming
from tagfill.models.stages import FEATURES
from tagfill.progress import NOTEBOOK, SILENT, Bar, Progress

VIEWS = "eval,flip,crops:2"
SHARD_ROWS = 1024
BATCH = 32  # images per forward pass
_FEW_IMAGES = 256  # below, starting processes takes longer than they save
_MAX_WORKERS = 8
_MUST_MATCH = ("backbone", "at", "fingerprint", "preprocessing", "seed")


def features(
    dataset: Dataset | str | Path,
    *,
    backbone: str = "tf_efficientnet_lite0",
    pretrained: bool | str = "bundled",
    image_size: int | str | tuple[int, int] | None = None,
    views: str | None = None,
    at: str = FEATURES,
    source: FeatureCache | str | Path | None = None,
    out: str | Path | None = None,
    dtype: str = "auto",
    max_gb: float | None = None,
    seed: int = 0,
    workers: int | None = None,
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
        views: views of each image; all except `eval` for the training split only. By default `eval,flip,crops:2`, or
            those of `source`.
        at: stage of the backbone whose output is stored, such as `blocks.5` or `layer3`, for runs that train what lies
            above it; `features` is the end of the backbone, for runs that train a head.
        source: a cache of an inner stage, from which the features at the end are computed without decoding images; its
            input size and seed are used.
        out: folder of the cache; by default one below Tagfill's cache folder, named after images and backbone. If one
            there has some of these images already, it gets the others.
        dtype: dtype of the spatial features.
        max_gb: refuse a cache that would take more disk than this; by default, than is free.
        seed: seed of the crops, and of random weights.
        workers: number of processes that decode images; by default half of the cores, at most 8, if there are more
            than two cores, more than a few images and no engine, and none otherwise.
        max_bad_images: share of the images that may fail to decode; they are listed and left out.
        engine: `joblib` for several processes on this machine, `ray` for those of a cluster, which must all see the
            same folders; None does everything in this process.
        jobs: number of the engine's processes on this machine; one per core by default.
        ray_address: address of a running Ray cluster.
        device: of the network: `cpu`, `cuda`, `mps`, or `auto`.
        progress: reports each batch.

    Returns:
        The complete cache. An existing one is only opened, an interrupted one is completed, and missing views and
        images are added.

    Example:
        >>> cache = tagfill.features("my-data", backbone="tf_efficientnet_lite0")  # doctest: +SKIP
    """
    data = dataset if isinstance(dataset, Dataset) else Dataset.open(dataset)
    size = None if image_size is None else input_size(image_size)
    inner = None
    if source is not None:
        inner = source if isinstance(source, FeatureCache) else FeatureCache.open(source)
        size = size or inner.preprocessing.size
    views = views or (VIEWS if inner is None else views_text(inner.manifest))
    trunk = create_backbone(backbone, pretrained=pretrained, image_size=size, seed=seed)
    seed = seed if inner is None else inner.manifest.seed
    if out is None:
        settings = f"{trunk.fingerprint(at)[:12]}-{views.replace(':', '')}-{dtype}-s{seed}"
        out = _default_folder(data, f"{data.name}-{backbone}", settings)
    return extract(
        data,
        trunk,
        Path(out),
        views=views,
        at=at,
        source=None if inner is None else inner.folder,
        dtype=dtype,
        max_gb=max_gb,
        seed=seed,
        workers=default_workers(len(data.names()), engine) if workers is None else workers,
        max_bad_images=max_bad_images,
        engine=None if engine is None else create_engine(engine, workers=jobs, address=ray_address),
        device=device,
        progress=progress,
    )


def _default_folder(dataset: Dataset, name: str, settings: str) -> Path:
    """The folder of a cache for the images of a dataset: an existing one that has most of them already, or a new one.

    Photos of other datasets may have the same names, so only those whose files also have the same size count.
    """
    parent = cache_folder() / "features"
    folder = parent / f"{name}-{dataset.identities['images'][:12]}-{settings}"
    if folder.exists():
        return folder
    listed, most = CachedImages.of(dataset), 0
    for other in sorted(parent.glob(f"{glob.escape(name)}-{'?' * 12}-{glob.escape(settings)}")):
        with contextlib.suppress(TagfillError):  # such as a damaged manifest
            manifest = Manifest.read(other)
            images = CachedImages.read(other, manifest.image_count, manifest.images, listed.names)
            agreement = images.agreement(listed)
            if agreement > max(most, images.replaced(listed).sum()):
                folder, most = other, agreement
    return folder


def default_workers(images: int, engine: str | None = None) -> int:
    """Number of processes that decode images if none is given."""
    cores = os.cpu_count() or 1
    if engine is not None or cores <= 2 or images < _FEW_IMAGES:
        return 0
    return min(max(2, cores // 2), _MAX_WORKERS)


def extract(
    dataset: Dataset,
    backbone: Backbone,
    folder: Path,
    *,
    views: str = VIEWS,
    at: str = FEATURES,
    source: Path | None = None,
    dtype: str = "auto",
    max_gb: float | None = None,
    seed: int = 0,
    workers: int = 0,
    max_bad_images: float = 0.01,
    engine: Engine | None = None,
    device: str = "auto",
    progress: Progress = SILENT,
) -> FeatureCache:
    """Make a feature cache, complete one, or add views and images to one; nothing that exists is computed again.

    Args:
        dataset: dataset with the images.
        backbone: frozen, with its weights.
        folder: folder of the cache.
        views: see `tagfill.data.manifest`.
        at: stage of the backbone whose output is stored; `features` is its end.
        source: cache of an inner stage to compute from, instead of images.
        dtype: `uint8` (at the end, of a bounded activation only), `float16`, `float32`, or `auto`.
        max_gb: refuse a cache that would take more disk than this; by default, than is free.
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
    empty, listed = _empty_manifest(backbone, at, dtype, seed), CachedImages.of(dataset)
    inner = None if source is None else _open_source(source, dataset, listed, empty, backbone, specs)
    if not plan_extraction(folder, dataset, listed, empty, specs).complete:
        training = backbone.training
        backbone.eval().to(chosen)
        try:
            with exclusive_lock(folder, "is making features"):
                plan = plan_extraction(folder, dataset, listed, empty, specs)  # now that no other process can change it
                if plan.manifest.dtype == "auto" or not (folder / "manifest.json").exists():
                    plan.manifest.dtype = choose_dtype(dataset, backbone, at, dtype, progress, inner)
                _check_size(folder, plan.manifest, max_gb, progress)
                if plan.already_there:
                    progress.say(f"{plan.already_there:,} of {len(dataset):,} photos were there already.")
                limit = int(max_bad_images * len(dataset))
                extraction = _Extraction(
                    dataset, backbone, folder.absolute(), plan, workers, limit, engine, chosen.type, progress, inner
                )
                extraction.run(specs)
        finally:
            backbone.train(training).to("cpu")
    return FeatureCache.open(folder, dataset)


def _empty_manifest(backbone: Backbone, at: str, dtype: str, seed: int) -> Manifest:
    """The manifest of a cache without images and views."""
    channels, *grid = (backbone.channels, *backbone.grid) if at == FEATURES else backbone.above(at).inner
    return Manifest(
        images="",
        backbone=backbone.name,
        at=at,
        fingerprint=backbone.fingerprint(at),
        preprocessing=backbone.preprocessing,
        grid=(grid[0], grid[1]),
        channels=channels,
        dtype=dtype,
        shard_rows=SHARD_ROWS,
        seed=seed,
        tokens=backbone.class_token and at == FEATURES,
        missing=[],
        views={},
    )


def _open_source(
    folder: Path,
    dataset: Dataset,
    listed: CachedImages,
    wanted: Manifest,
    backbone: Backbone,
    specs: list[ViewSpec],
) -> FeatureCache:
    """Open the cache of an inner stage for a dataset, after checking that the requested features follow from it."""
    cache = FeatureCache.open(folder, dataset)
    manifest = cache.manifest
    if not manifest.inner or wanted.inner:
        raise TagfillError(
            f"Only the features at the end can be computed from a cache, and only from one of an inner stage; {folder} "
            f"is of {manifest.at}, and {wanted.at} is wanted."
        )
    if manifest.backbone != backbone.name or manifest.fingerprint != backbone.fingerprint(manifest.at):
        raise TagfillError(
            f"The feature cache {folder} is of {manifest.backbone} with other weights or another input size; name the "
            "backbone, its weights and its input size as they were when it was made."
        )
    if manifest.seed != wanted.seed:
        raise TagfillError(
            f"The crops of the feature cache {folder} were drawn with seed {manifest.seed}; use it here."
        )
    images = CachedImages.read(folder, manifest.image_count, manifest.images, listed.names)
    if replaced := int(images.replaced(listed).sum()):
        raise TagfillError(
            f"{replaced:,} photos were replaced after {folder} was made; bring it up to date first, with "
            f"'tagfill features DATASET --at {manifest.at} --out {folder}'."
        )
    for spec in specs:
        needed = np.arange(len(dataset)) if spec.role == "eval" else dataset.split(TRAIN_SPLIT)
        if not cache.covers(spec.name, needed):
            raise TagfillError(
                f"The view '{spec.name}' of the feature cache {folder} lacks some of the images; add them with "
                f"'tagfill features DATASET --at {manifest.at} --out {folder}'."
            )
    return cache


def count_missing_views(
    dataset: Dataset, backbone: Backbone, folder: Path, *, views: str = VIEWS, seed: int = 0
) -> tuple[int, int]:
    """How many views of images `extract` would compute, and how many images need none."""
    empty, specs = _empty_manifest(backbone, FEATURES, "auto", seed), parse_view_specs(views)
    plan = plan_extraction(folder, dataset, CachedImages.of(dataset), empty, specs)
    return sum(view.rows - view.done for view in plan.manifest.views.values()), plan.already_there


@dataclass(frozen=True)
class ExtractionPlan:
    """What a cache will contain, and what of it is there.

    Attributes:
        manifest: of the cache; its views say how much of each is done.
        images: the images of the cache.
        cached_rows: row of the cache, of each image of the dataset.
        rows: rows of the cache that each requested view will cover, those that are done first.
        complete: whether everything is there.
        already_there: number of images of the dataset of which every requested view is there.
    """

    manifest: Manifest
    images: CachedImages
    cached_rows: NDArray[np.int64]
    rows: dict[str, NDArray[np.int64]]
    complete: bool
    already_there: int

    @property
    def dataset_rows(self) -> NDArray[np.int64]:
        """Row of the dataset's image table, of each image of the cache; -1 if the dataset does not have it."""
        rows = np.full(len(self.images.names), -1, np.int64)
        rows[self.cached_rows] = np.arange(len(self.cached_rows))
        return rows


def plan_extraction(
    folder: Path, dataset: Dataset, listed: CachedImages, wanted: Manifest, specs: list[ViewSpec]
) -> ExtractionPlan:
    """Compare what is requested with what a cache in `folder` has already.

    Complete views that are not requested are kept. A requested view keeps the rows that it has and gets those that it
    lacks; a damaged one is made again. An incomplete view that is not requested is dropped.

    Args:
        folder: folder of the cache; it may not exist.
        dataset: dataset with the images.
        listed: its images.
        wanted: a manifest without images and views.
        specs: the requested views.

    Raises:
        TagfillError: if the existing cache was made from something else.
    """
    existing = Manifest.read(folder) if (folder / "manifest.json").exists() else None
    images = listed.with_digests() if existing is None else _grown_images(folder, existing, listed)
    manifest = wanted.model_copy(update={"images": images.identity, "image_count": len(images.names)}, deep=True)
    if existing is not None:
        _check_same_settings(folder, existing, wanted)
        kept = ("dtype", "shard_rows", "missing")
        manifest = manifest.model_copy(update={name: getattr(existing, name) for name in kept}, deep=True)
        manifest.tokens = existing.tokens  # of all views: a cache that was made without them stays without them
        requested = {spec.name for spec in specs}
        views = existing.views.items()
        manifest.views = {name: view for name, view in views if name not in requested and view.done == view.rows}
    cached_rows = images.find(listed.names)
    rows, lacking_any = dict[str, NDArray[np.int64]](), [np.empty(0, np.int64)]
    for spec in specs:
        needed = cached_rows if spec.role == "eval" else cached_rows[dataset.split(TRAIN_SPLIT)]
        done = _rows_done(folder, spec.name, existing)
        lacking = np.setdiff1d(needed, done)
        lacking_any.append(lacking)
        rows[spec.name] = np.concatenate([done, lacking])
        old = existing.views[spec.name] if existing is not None and len(done) else None
        manifest.views[spec.name] = _view_record(spec, old, len(lacking), manifest.shard_rows)
    manifest.views = dict(sorted(manifest.views.items(), key=lambda item: (item[1].number, item[0])))
    complete = existing == manifest and all(record.finished for record in manifest.views.values())
    already_there = len(listed.names) - len(np.unique(np.concatenate(lacking_any)))
    return ExtractionPlan(manifest, images, cached_rows, rows, complete, already_there)


def _grown_images(folder: Path, existing: Manifest, listed: CachedImages) -> CachedImages:
    """The images of an existing cache, and behind them those that are new to it."""
    try:
        images = CachedImages.read(folder, existing.image_count, existing.images, listed.names)
    except TagfillError:
        if (folder / IMAGES_FILE).exists():
            raise
        raise _different_cache(folder, "images") from None
    if listed.names and not (images.find(listed.names) >= 0).any():
        raise _different_cache(folder, "images")
    return images.add(listed)


def _check_same_settings(folder: Path, existing: Manifest, wanted: Manifest) -> None:
    for name in _MUST_MATCH:
        if getattr(existing, name) != getattr(wanted, name):
            raise _different_cache(folder, name)
    if wanted.dtype not in (existing.dtype, "auto"):
        raise _different_cache(folder, "dtype")


def _view_record(spec: ViewSpec, old: ViewRecord | None, lacking: int, shard_rows: int) -> ViewRecord:
    """The record of a view that keeps what is done and gets more rows; unchanged if it is finished and lacks none."""
    new = shard_sizes(lacking, shard_rows)
    if old is None:
        return ViewRecord(role=spec.role, number=spec.number, rows=lacking, done=0, files={}, shards=new)
    if not lacking and old.finished:
        return old
    files = {shard_name(number): old.files[shard_name(number)] for number in range(old.shards_done)}
    shards = old.shards[: old.shards_done] + new
    return old.model_copy(update={"rows": old.done + lacking, "shards": shards, "files": files})


def _rows_done(folder: Path, view: str, manifest: Manifest | None) -> NDArray[np.int64]:
    """The rows of the finished part of a view; none if it is damaged or not there."""
    nothing = np.empty(0, np.int64)
    if manifest is None or view not in manifest.views or any(find_wrong_sizes(folder, view, manifest)):
        return nothing
    record = manifest.views[view]
    shapes = {"rows": (record.rows,), **array_shapes(record, manifest)}
    try:
        arrays = {
            name: np.load(folder / "views" / view / f"{name}.npy", mmap_mode="r", allow_pickle=False) for name in shapes
        }
    except (OSError, ValueError, EOFError):
        return nothing
    for name, shape in shapes.items():  # a view that was about to grow has shorter arrays
        least = record.shards_done if name in PER_SHARD else record.done
        if arrays[name].shape[1:] != shape[1:] or not least <= len(arrays[name]) <= shape[0]:
            return nothing
    return np.array(arrays["rows"][: record.done])


def _different_cache(folder: Path, name: str) -> TagfillError:
    return TagfillError(
        f"{folder} already contains a feature cache with different {name}; choose another folder or delete it."
    )


def _check_size(folder: Path, manifest: Manifest, max_gb: float | None, progress: Progress) -> None:
    """Say how large an inner cache becomes, and raise if that is more than allowed or than the disk has room for."""
    missing = sum(record.rows - record.done for record in manifest.views.values())
    size, row = missing * manifest.bytes_of_row, manifest.bytes_of_row
    free = shutil.disk_usage(folder).free
    shape = "×".join(map(str, manifest.cells_of_row))
    stated = (
        f"{manifest.at} of {manifest.backbone} is {shape} values, {row:,} bytes per view as {manifest.dtype}; "
        f"{missing:,} views take {_shown_size(size)}"
    )
    if manifest.inner:
        progress.say(f"{stated}, and {_shown_size(free)} are free.")
    if size > (free if max_gb is None else max_gb * 1e9):
        limit = f"{_shown_size(free)} are free" if max_gb is None else f"--max-gb allows {_shown_size(max_gb * 1e9)}"
        raise TagfillError(f"{stated}, and {limit}; cache fewer views, a later stage, or smaller images.")


def _shown_size(size: float) -> str:
    """Bytes as megabytes or gigabytes.

    >>> _shown_size(161_200), _shown_size(2_345_000_000)
    ('0.2 MB', '2.3 GB')
    """
    return f"{size / 1e9:,.1f} GB" if size >= 1e9 else f"{size / 1e6:,.1f} MB"


@dataclass
class _Extraction:
    """Makes the missing shards of a cache and keeps its manifest up to date."""

    dataset: Dataset
    backbone: Backbone
    folder: Path
    plan: ExtractionPlan
    workers: int
    bad_images_allowed: int
    engine: Engine | None
    device: str
    progress: Progress
    inner: FeatureCache | None = None

    def __post_init__(self) -> None:
        self.manifest, self._dataset_rows = self.plan.manifest, self.plan.dataset_rows

    def run(self, specs: list[ViewSpec]) -> None:
        """Make the missing shards of all views."""
        disable_heap_trimming()  # the network allocates and frees the same blocks with every batch
        self.plan.images.save(self.folder)  # before the manifest, which says how many of them count
        self.manifest.save(self.folder)
        for temporary in self.folder.glob("**/.*.tmp"):  # left by a process that was killed while writing
            temporary.unlink()
        left = sum(record.rows - record.done for record in self.manifest.views.values())
        with self.progress.bar("features", left, "img") as bar:
            for spec in specs:
                if not self.manifest.views[spec.name].finished:
                    self._make_view(spec, self.plan.rows[spec.name], bar)

    def _make_view(self, spec: ViewSpec, rows: NDArray[np.int64], bar: Bar) -> None:
        """Make the missing shards of a view."""
        manifest = self.manifest
        record = manifest.views[spec.name]
        shards = list(zip(range(len(record.shards)), record.starts, record.shards, strict=True))
        todo = [(number, start, size) for number, start, size in shards if start >= record.done]
        with ViewArrays(self.folder / "views" / spec.name, rows, manifest, record) as arrays:
            jobs = [
                ShardJob(
                    path=arrays.folder / shard_name(number),
                    rows=rows[start : start + size],
                    view=spec,
                    cells=manifest.cells_of_row,
                    at=manifest.at,
                    dtype=manifest.dtype,
                    tokens=manifest.tokens,
                    batch=BATCH,
                    seed=manifest.seed,
                    source=None if self.inner is None else self.inner.folder.absolute(),
                )
                for number, start, size in todo
            ]
            made = self._make_shards(spec, jobs, bar)
            for (number, start, _), job, shard in zip(todo, jobs, made, strict=True):
                self._add_missing(shard.missing)
                arrays.write(start, number, shard)
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
                [ViewRequest(int(self._dataset_rows[row]), int(row), view=spec.number) for row in batch]
                for job in jobs
                for batch in job.batches
            ]
            network: Backbone | BackboneTop = self.backbone
            if self.inner is not None:
                network = self.backbone.above(self.inner.at).eval()
                decoded = load_inner(self.dataset, self.inner, requests, spec.name)
            else:
                size, seed = self.backbone.preprocessing.size, self.manifest.seed
                decoded = load_views(self.dataset, requests, spec.view, size, seed=seed, workers=self.workers)
            yield from (make_shard(network, job, decoded, bar) for job in jobs)
            return
        file = BackboneFile.write(self.backbone, self.folder / ".backbone.safetensors")
        images = self.dataset.images.select(["image", "split"])
        root = self.dataset.root.absolute() if isinstance(self.dataset.root, Path) else self.dataset.root
        nothing = SCHEMA.empty_table()
        bare = self.dataset.replace(root=root, annotations=nothing, truth=None, protocol=None, folder=None)
        remote = [
            RemoteShardJob(
                job, bare.replace(images=images.take(self._dataset_rows[job.rows])), file, self.workers, self.device
            )
            for job in jobs
        ]
        needs = [file.path]
        if self.inner is None:
            needs += shared_files(open_root(self.dataset.root), images["image"].slice(0, WITNESSES).to_pylist())
        else:
            needs.append(self.inner.folder.absolute() / "manifest.json")
        try:
            for job, shard in zip(jobs, self.engine.map(make_remote_shard, remote, needs=needs), strict=True):
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
            bad = sum(self._dataset_rows[image.row] >= 0 for image in self.manifest.missing)
            if bad > self.bad_images_allowed:
                raise TagfillError(
                    f"{bad} images cannot be decoded, more than the {self.bad_images_allowed} that "
                    "max_bad_images allows; find them with 'tagfill inspect --decode', then repair or remove them."
                )
