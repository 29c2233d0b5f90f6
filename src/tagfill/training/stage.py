"""What all stages of a run share.

The memory of the best epoch, kept for a stage that starts from it.

The memory of a stage: new, from a checkpoint, from other processes, or from the best epoch of the stage before.

What methods may be told beyond the labels of the training images, when they ask for it.

What a stage trains on: which images in which order, from where, with what beside them.

Setting up one stage of a run: its model, data, memory, method and optimiser.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import torch
from numpy.typing import NDArray
from safetensors.torch import load_file, save
from torch import Tensor, nn

from tagfill import methods
from tagfill.contract import Method, Task
from tagfill.data import FeatureCache, FeatureSource, Locations, MarkedSource, PixelSource, Sampler, Source
from tagfill.dataset import Dataset
from tagfill.errors import ImageError, TagfillError
from tagfill.images import View
from tagfill.io import atomic_write, write_json
from tagfill.labels import LabelMatrix
from tagfill.memory import Memory, sub_state
from tagfill.metrics import Gathered
from tagfill.models import Backbone, Classifier, create, create_backbone
from tagfill.training import checkpoints, optimizers
from tagfill.training.checkpoints import Checkpoint
from tagfill.training.devices import Devices
from tagfill.training.evaluation import can_validate, choose_thresholds, predict, share
from tagfill.training.optimizers import WeightAverage
from tagfill.training.recipe import Recipe, Stage
from tagfill.training.run_folder import Run, memory_folder


@dataclass
class RunContext:
    """What all stages of a run share."""

    run: Run
    recipe: Recipe
    dataset: Dataset
    devices: Devices
    workers: int
    expected_positives: float | None
    on_bad_image: Callable[[ImageError], None]

    @cached_property
    def validated(self) -> bool:
        """Whether epochs have a validation mAP."""
        return can_validate(self.dataset, self.recipe.val_labels)

    @property
    def chosen_by_map(self) -> bool:
        """Whether the best epoch is that of the best validation mAP; else it is the last one."""
        return self.validated and self.recipe.select == "mAP"


def save_best_memory(memory: Memory, folder: Path) -> None:
    """Copy everything that a memory holds, in files and outside of them."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    with atomic_write(folder / "memory.safetensors", sync=False) as file:
        file.write(save({name: value.detach().contiguous() for name, value in memory.state_dict().items()}))
    for path in memory.paths():
        shutil.copyfile(path, folder / path.name)
    write_json(folder / "checksums.json", memory.checksums(), sync=False)


def load_best_memory(folder: Path, into: Path | None) -> tuple[dict[str, Tensor], tuple[int, dict[str, str]] | None]:
    """What `Memory` needs to begin with the kept state, whose files are copied to a new place."""
    checksums: dict[str, str] = json.loads((folder / "checksums.json").read_text(encoding="utf-8"))
    if into is not None:
        shutil.rmtree(into, ignore_errors=True)
        into.mkdir(parents=True)
        for path in folder.glob("*.u8"):
            shutil.copyfile(path, into / path.name)
    return load_file(folder / "memory.safetensors"), (0, checksums) if checksums else None


def open_memory(
    setting: RunContext, sampler: Sampler, stage: int, checkpoint: Checkpoint | None, best: bool
) -> tuple[Memory, str]:
    """The memory of a stage, and the name of its folder."""
    ranks, name = setting.devices.ranks, str(stage)
    options: dict[str, Any] = {}
    if checkpoint is not None and checkpoint.world == ranks.world:
        name = checkpoint.state.memory
        options["saved"] = sub_state(checkpoint.of_rank(ranks.rank), "memory")
        options["disk"] = (checkpoint.state.number, checkpoint.state.disk[ranks.rank])
    elif checkpoint is not None:
        name = f"{stage}-{ranks.world}-from-{checkpoint.state.number}"
        options["parts"] = checkpoints.saved_parts(setting.run, sampler, checkpoint)
    on_disk = setting.recipe.memory.storage == "disk"
    folder = memory_folder(setting.run, name, ranks.rank) if on_disk else None
    if checkpoint is None and best:
        options["saved"], options["disk"] = load_best_memory(best_memory_folder(setting), folder)
        options["warm"] = True
    memory = Memory(
        setting.dataset.labels("train"),
        sampler.shard,
        seed=setting.recipe.seed,
        folder=folder,
        budget=int(setting.recipe.memory.budget_gb * 1e9),
        **options,
    )
    return memory, name


def best_memory_folder(setting: RunContext) -> Path:
    """Where the memory of the best epoch is kept."""
    return setting.run.folder / "memory" / "best" / f"rank{setting.devices.ranks.rank}"


def true_labels(dataset: Dataset, split: str) -> LabelMatrix:
    """The complete labels of a simulated dataset's split, for oracle methods alone.

    Raises:
        TagfillError: if the dataset was not simulated, or from other images or classes.
    """
    if dataset.truth is None:
        raise TagfillError(
            f"This method is an oracle and needs the complete labels, but {dataset.name} names no truth; use it on a "
            "dataset that 'tagfill simulate' made."
        )
    complete = Dataset.open(dataset.truth)
    if complete.classes != dataset.classes:
        raise TagfillError(f"The truth of {dataset.name}, {dataset.truth}, has other classes.")
    names = pa.array(dataset.names(dataset.split(split)))
    rows = pc.index_in(names, value_set=pa.array(complete.names()))
    if rows.null_count:
        raise TagfillError(f"The truth of {dataset.name}, {dataset.truth}, lacks {rows.null_count} of its images.")
    return complete.labels().take(rows.to_numpy())


def cached_features(dataset: Dataset, cache: FeatureCache, split: str) -> NDArray[np.float32]:
    """Pooled features of a split's images out of a cache: N×D."""
    view = cache.view("eval")
    return np.asarray(view.pooled(view.find(dataset.split(split))))


def compute_frozen_features(backbone: Backbone, source: Source, split: str, size: int) -> NDArray[np.float32]:
    """Pooled features of a split's images by a backbone as it is: N×D; an image that does not decode stays zero."""
    pooled = np.zeros((size, backbone.channels), dtype=np.float32)
    training = backbone.training
    backbone.eval()
    try:
        for batch in source.evaluate(split, np.arange(size)):
            pooled[batch.index.numpy()] = backbone.pooled(batch.inputs).numpy()
    finally:
        backbone.train(training)
    return pooled


_LABELLED_SHARE = 0.5  # for methods that learn from images without any label, where the stage does not say


def open_cache(setting: RunContext) -> FeatureCache:
    """The feature cache of the run, with the views alone that it had when the run began."""
    if setting.recipe.features is None:
        raise TagfillError(
            "A stage with input: cache needs a feature cache; make one with 'tagfill features' and give --features."
        )
    cache, views = FeatureCache.open(setting.recipe.features, setting.dataset), setting.run.views
    return cache if views is None else cache.only(views)


def views_of(recipe: Recipe, dataset: Dataset) -> dict[str, str] | None:
    """Identities of the cached views that a run draws from, by name; None if no stage trains on a cache."""
    if recipe.features is None or not any(stage.input == "cache" for stage in recipe.stages):
        return None
    cache = FeatureCache.open(recipe.features, dataset)
    return {name: view.identity for name, view in cache.manifest.views.items()}


def make_sampler(setting: RunContext, stage: Stage, labels: LabelMatrix, needs: frozenset[str]) -> Sampler:
    """The order of visits; with a fixed share of labelled images if the stage or the needs of the method ask for it."""
    ranks, share, unlabelled = setting.devices.ranks, stage.labelled_share, labels.unannotated()
    if share is None and "unlabelled" in needs and 0 < len(unlabelled) < len(labels):
        share = _LABELLED_SHARE
    return Sampler(
        len(labels),
        setting.recipe.batch_size,
        setting.recipe.seed,
        ranks.rank,
        ranks.world,
        None if share is None else unlabelled,
        share or 0.0,
    )


def make_source(
    setting: RunContext, stage: Stage, cache: FeatureCache | None, full: Classifier, needs: frozenset[str]
) -> Source:
    """Batches of images or of cached features, with the views and the marks that the method needs."""
    dataset, seed, pairs = setting.dataset, setting.recipe.seed, "weak+strong" in needs
    if pairs and stage.strong:
        raise TagfillError(f"The method of stage '{stage.name}' makes strong views itself; leave out strong: true.")
    source: Source
    if cache is not None:
        source = FeatureSource(
            dataset,
            cache,
            maps="maps" in needs or full.spatial,
            tokens=full.token,
            seed=seed,
            pairs=pairs,
            on_bad=setting.on_bad_image,
        )
    else:
        assert full.backbone is not None
        source = PixelSource(
            dataset,
            full.backbone.preprocessing.size,
            view_of(stage),
            seed=seed,
            workers=setting.workers,
            pairs=pairs,
            on_bad=setting.on_bad_image,
        )
    return MarkedSource(source, Locations.read(dataset, "train")) if "marks" in needs else source


def view_of(stage: Stage) -> View:
    """How a stage looks at its training images.

    >>> view_of(Stage(crop_scale=None, vertical_flip=True)).flip_y
    'random'
    """
    return View(
        scale=stage.crop_scale,
        flip="random" if stage.flip else "never",
        flip_y="random" if stage.vertical_flip else "never",
        strong=stage.strong,
    )


def frozen_features(setting: RunContext, cache: FeatureCache | None, source: Source) -> NDArray[np.float32]:
    """What the pretrained backbone says about the training images, whatever a stage has made of it since."""
    if cache is not None:
        return cached_features(setting.dataset, cache, "train")
    recipe = setting.recipe
    backbone = create_backbone(
        recipe.backbone, pretrained=recipe.pretrained, image_size=recipe.image_size, seed=recipe.seed
    )
    return compute_frozen_features(backbone, source, "train", len(setting.dataset.split("train")))


@dataclass
class ActiveStage:
    """A stage that is ready to train.

    Attributes:
        number: position in the recipe's list.
        stage: its settings.
        full: the classifier with its backbone, which is what gets saved.
        module: what trains: `full`, or its head alone on cached features.
        wrapped: `module`, sharing gradients between processes.
        optimizer: over the weights that train.
        stepper: steps it, in the precision of the run.
        average: of the weights, if the stage keeps one.
        memory_name: of the folder that holds the memory's files.
    """

    number: int
    stage: Stage
    full: Classifier
    module: Classifier
    wrapped: nn.Module
    optimizer: torch.optim.Optimizer
    stepper: Any
    average: WeightAverage | None
    sampler: Sampler
    source: Source
    method: Method
    memory: Memory
    memory_name: str
    task: Task
    maps: bool

    def parts(self, batch: NDArray[np.int64]) -> list[NDArray[np.int64]]:
        """The parts that a batch is worked off in, of nearly the same size."""
        return [batch] if self.stage.accumulate == 1 else np.array_split(batch, min(self.stage.accumulate, len(batch)))

    def keep_best(self, setting: RunContext, validated: Gathered | None) -> None:
        """This epoch is the best so far: keep its model, and its memory if the next stage starts from it.

        Args:
            setting: of the run.
            validated: what it predicts on validation, which chooses the thresholds that are saved with the model.
        """
        if setting.devices.main:
            model = self.deployed()
            model.thresholds = None if validated is None else tuple(choose_thresholds(validated).tolist())
            model.save(setting.run.model_folder)
        following = setting.recipe.stages[self.number + 1 : self.number + 2]
        if following and following[0].start.memory == "best":
            save_best_memory(self.memory, best_memory_folder(setting))

    def deployed(self) -> Classifier:
        """The classifier that is validated and saved: with averaged weights, if there is an average."""
        if self.average is None:
            return self.full
        average = self.average.module
        assert isinstance(average, Classifier)
        return average if average.backbone is not None else self.full.with_head(average.head)


def enter(setting: RunContext, number: int, previous: ActiveStage | None, checkpoint: Checkpoint | None) -> ActiveStage:
    """Set up a stage, from the one before it or from a checkpoint inside it."""
    recipe, stage, devices = setting.recipe, setting.recipe.stages[number], setting.devices
    method = methods.create(*recipe.method_of(stage))
    maps = "maps" in method.needs
    cache = open_cache(setting) if stage.input == "cache" else None
    full = _classifier(setting, stage, previous, cache)
    full.check_use(maps=maps)
    module = full if cache is None else Classifier(None, full.head, full.head_name, full.classes)
    module.freeze(backbone=stage.train == "head", stem="stem" in stage.freeze, batch_norm="batch-norm" in stage.freeze)
    labels = setting.dataset.labels("train")
    module.mask_boost(torch.from_numpy(labels.positives > 0))
    if checkpoint is not None:
        module.load_state_dict(sub_state(checkpoint.model, "module"))
    optimizer = optimizers.build_optimizer(stage.optimizer, module)
    wrapped, stepper = devices.wrap(module, optimizer)
    average = None if stage.average is None else WeightAverage(module, stage.average)
    if checkpoint is not None:
        if average is not None:
            average.load_state_dict(sub_state(checkpoint.model, "average"))
        devices.load_state_dict(checkpoint.state.precision)
        optimizers.load_optimizer_state(optimizer, checkpoint.optimizer, checkpoint.state.groups)
    sampler = make_sampler(setting, stage, labels, method.needs)
    source = make_source(setting, stage, cache, full, method.needs)
    if previous is not None and stage.start.memory == "last":
        memory, memory_name = previous.memory, previous.memory_name
        memory.begin_stage()
    else:
        if previous is not None:
            previous.memory.close()
        memory, memory_name = open_memory(setting, sampler, number, checkpoint, stage.start.memory == "best")
    assert full.backbone is not None
    task = Task(
        classes=setting.dataset.classes,
        labels=labels,
        size=len(labels),
        epochs=stage.epochs,
        seed=recipe.seed,
        grid=full.backbone.grid if full.head.has_maps else None,
        expected_positives=setting.expected_positives,
        lr=stage.optimizer.lr,
        memory=memory,
        ranks=devices.ranks,
        predict=lambda split: predict(
            wrapped if average is None else average.module,
            source,
            split,
            sampler.shard if split == "train" else share(len(setting.dataset.split(split)), devices.ranks),
            maps=maps,
            place=devices.place,
        ),
        shard=sampler.shard,
        frozen_features=lambda: frozen_features(setting, cache, source),
        truth=lambda: true_labels(setting.dataset, "train"),
    )
    method.setup(task)
    if checkpoint is not None:
        method.load_state_dict(sub_state(checkpoint.of_rank(devices.ranks.rank % checkpoint.world), "method"))
    return ActiveStage(
        number,
        stage,
        full,
        module,
        wrapped,
        optimizer,
        stepper,
        average,
        sampler,
        source,
        method,
        memory,
        memory_name,
        task,
        maps,
    )


def _classifier(
    setting: RunContext, stage: Stage, previous: ActiveStage | None, cache: FeatureCache | None
) -> Classifier:
    recipe = setting.recipe
    size = recipe.image_size if cache is None else cache.preprocessing.size
    full = create(
        recipe.backbone,
        recipe.head,
        setting.dataset.classes,
        pretrained=recipe.pretrained,
        image_size=size,
        seed=recipe.seed,
        **recipe.head_options,
    )
    assert full.backbone is not None
    if previous is not None:
        origin = Classifier.load(setting.run.model_folder) if stage.start.head == "best" else previous.full
        assert origin.backbone is not None
        if stage.start.head != "new":
            full.head.load_state_dict(origin.head.state_dict())
        if stage.start.backbone == "previous":
            full.backbone.load_state_dict(origin.backbone.state_dict())
    if cache is not None and cache.manifest.fingerprint != full.backbone.fingerprint():
        raise TagfillError(
            f"The feature cache {cache.folder} was made by {cache.manifest.backbone} with other weights than this "
            f"run's backbone {recipe.backbone} has; make a cache with it, or give the same backbone and weights."
        )
    return full
