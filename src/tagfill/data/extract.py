"""Going on with a feature cache that is there already: what of it can be kept.

Making a feature cache: the frozen backbone looks once at several recorded views of each image.

Work goes shard by shard. A shard that is on disk and counted in the manifest is not made again, so an extraction that
was interrupted or killed goes on where it stopped, and ends with the same bytes as an unbroken one. While the network
works on a batch, worker processes decode the next.

Making a feature cache by names alone.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from tagfill.data import feature_cache
from tagfill.data.cache_writer import (
    BackboneFile,
    Shard,
    ShardElsewhere,
    ShardJob,
    ViewArrays,
    features_of,
    make_elsewhere,
    make_shard,
    shapes_of,
)
from tagfill.data.feature_cache import FeatureCache, shard_name, wrong_lengths
from tagfill.data.manifest import FileRecord, Manifest, MissingImage, PlannedView, ViewRecord, parse_views
from tagfill.data.sources import TRAINING, Item, load
from tagfill.dataset import SCHEMA, Dataset
from tagfill.engines import Engine, create_engine
from tagfill.errors import ImageError, TagfillError
from tagfill.images import EVAL, input_size
from tagfill.io import cache_folder, exclusive_lock
from tagfill.models import Backbone, create_backbone
from tagfill.models.allocator import keep_freed_memory
from tagfill.progress import SILENT, Bar, Progress

_SAME = ("images", "backbone", "fingerprint", "preprocessing", "seed")


def take_over(folder: Path, wanted: Manifest, covered: dict[str, NDArray[np.int64]]) -> bool:
    """Take over what an existing cache in `folder` has done, if it is of the same making.

    Complete views that are not asked for are kept. A view is made anew if it is damaged or of other rows, and
    forgotten if it is neither complete nor asked for.

    Args:
        folder: of the cache.
        wanted: a manifest of the views asked for; it becomes that of the cache.
        covered: rows of each view asked for.

    Returns:
        Whether everything is there already.
    """
    if not (folder / "manifest.json").exists():
        return False
    there = Manifest.read(folder)
    for name in _SAME:
        if getattr(there, name) != getattr(wanted, name):
            raise _refused(folder, name)
    if wanted.dtype not in (there.dtype, "auto"):
        raise _refused(folder, "dtype")
    wanted.dtype, wanted.shard_rows, wanted.missing = there.dtype, there.shard_rows, there.missing
    wanted.tokens = there.tokens  # all views alike: a cache that was made without them goes on without them
    for name, record in there.views.items():
        if name in covered:
            if _usable(folder, name, there, covered[name]):
                wanted.views[name] = record
        elif record.done == record.rows:
            wanted.views[name] = record
    wanted.views = dict(sorted(wanted.views.items(), key=lambda item: (item[1].number, item[0])))
    return there == wanted and all(record.finished for record in there.views.values())


def _usable(folder: Path, view: str, manifest: Manifest, rows: NDArray[np.int64]) -> bool:
    """Whether what is done of a view is whole and of these rows."""
    if any(wrong_lengths(folder, view, manifest)):
        return False
    try:
        arrays = {
            name: np.load(folder / "views" / view / f"{name}.npy", mmap_mode="r", allow_pickle=False)
            for name in ("rows", *shapes_of(len(rows), manifest))
        }
    except (OSError, ValueError, EOFError):
        return False
    shapes = {"rows": (len(rows),), **shapes_of(len(rows), manifest)}
    return all(arrays[name].shape == shape for name, shape in shapes.items()) and np.array_equal(arrays["rows"], rows)


def _refused(folder: Path, name: str) -> TagfillError:
    return TagfillError(
        f"{folder} already holds a feature cache with other {name}; choose another folder or delete it."
    )


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
        views: see `tagfill.data.manifest`.
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
    feature_cache.check_dtype(dtype)
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
            with exclusive_lock(folder, "is making features"):
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
        feature_cache.why_not_bytes(features_of(backbone, views.pixels)[0], backbone.bound) if len(views.kept) else None
    )
    if problem is None:
        return "uint8"
    if dtype == "uint8":
        raise TagfillError(f"The features of {backbone.name} do not fit into bytes: {problem}; choose float16.")
    progress.say(f"features are stored as float16: {problem}")
    return "float16"


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
    progress: Progress = SILENT,
) -> FeatureCache:
    """Run a frozen backbone once over several views of every image, and keep what it says.

    Args:
        dataset: the data, or its folder.
        backbone: timm's name of the backbone.
        pretrained: its weights, see `tagfill.models.create_backbone`.
        image_size: side of the square input, or height and width; None takes the backbone's own.
        views: of each image; all but `eval` for the training split only.
        out: the folder; by default one below Tagfill's cache, named after images and backbone.
        dtype: of the spatial features.
        seed: of the crops, and of random weights.
        workers: processes that decode images.
        max_bad_images: share of the images that may fail to decode; they are listed and left out.
        engine: `joblib` for several processes of this machine, `ray` for those of a cluster, which must all see the
            same folders; without it this process does everything.
        jobs: processes of the engine at once on this machine; one a core by default.
        ray_address: of a Ray cluster that runs already.
        progress: told about each batch.

    Returns:
        The complete cache; one that exists already is only opened, one that was interrupted is completed, and views
        that it lacks are added.

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
        progress=progress,
    )
