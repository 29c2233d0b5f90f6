"""Setting up one stage of a run: its model, data, memory, method and optimiser."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import nn

from tagfill import methods
from tagfill.annotations import Dataset
from tagfill.contract import Method, Task
from tagfill.errors import TagfillError
from tagfill.images import View
from tagfill.loading import FeatureCache, FeatureSource, PixelSource, Sampler, Source
from tagfill.memory import Memory
from tagfill.models import Classifier, create
from tagfill.training import checkpoints
from tagfill.training.checkpoints import Checkpoint
from tagfill.training.devices import Devices
from tagfill.training.evaluation import predict, share
from tagfill.training.folder import Run
from tagfill.training.recipe import Recipe, Stage

_OPTIMIZERS: dict[str, Any] = {"adam": torch.optim.Adam, "adamw": torch.optim.AdamW, "sgd": torch.optim.SGD}


@dataclass
class Setting:
    """What all stages of a run share."""

    run: Run
    recipe: Recipe
    dataset: Dataset
    devices: Devices
    workers: int
    expected_positives: float | None


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
        memory_stage: the stage whose folder holds the memory's files.
    """

    number: int
    stage: Stage
    full: Classifier
    module: Classifier
    wrapped: nn.Module
    optimizer: Any
    sampler: Sampler
    source: Source
    method: Method
    memory: Memory
    memory_stage: int
    task: Task
    maps: bool


def enter(setting: Setting, number: int, previous: ActiveStage | None, checkpoint: Checkpoint | None) -> ActiveStage:
    """Set up a stage, from the one before it or from a checkpoint inside it."""
    recipe, stage, devices = setting.recipe, setting.recipe.stages[number], setting.devices
    method = methods.create(recipe.method, recipe.options)
    maps = "maps" in method.needs
    cache = _open_cache(setting) if stage.input == "cache" else None
    full = _classifier(setting, stage, previous, cache)
    module = full if cache is None else Classifier(None, full.head, full.head_name, full.classes)
    module.freeze_backbone(stage.train == "head")
    if checkpoint is not None:
        module.load_state_dict(checkpoint.model)
    wrapped, optimizer = devices.wrap(module, _optimizer(module, stage))
    if checkpoint is not None:
        checkpoints.load_optimizer(optimizer.optimizer, checkpoint.optimizer, checkpoint.state.groups)
    labels = setting.dataset.labels("train")
    sampler = Sampler(len(labels), recipe.batch_size, recipe.seed, devices.ranks.rank, devices.ranks.world)
    source = _source(setting, stage, cache, full, maps)
    if previous is not None and stage.start.memory == "last":
        memory, memory_stage = previous.memory, previous.memory_stage
    else:
        if previous is not None:
            previous.memory.close()
        memory_stage = number if checkpoint is None else checkpoint.state.memory_stage
        memory = _memory(setting, sampler, memory_stage, checkpoint)
    assert full.backbone is not None
    task = Task(
        classes=setting.dataset.classes,
        labels=labels,
        size=len(labels),
        epochs=stage.epochs,
        seed=recipe.seed,
        grid=full.backbone.grid,
        expected_positives=setting.expected_positives,
        lr=stage.optimizer.lr,
        memory=memory,
        ranks=devices.ranks,
        predict=lambda split: predict(
            wrapped,
            source,
            split,
            share(len(setting.dataset.split(split)), devices.ranks),
            maps=maps,
            place=devices.place,
        ),
        shard=sampler.shard,
    )
    method.setup(task)
    if checkpoint is not None:
        prefix = "method."
        method.load_state_dict({k.removeprefix(prefix): v for k, v in checkpoint.rank.items() if k.startswith(prefix)})
    return ActiveStage(
        number, stage, full, module, wrapped, optimizer, sampler, source, method, memory, memory_stage, task, maps
    )


def memory_folder(run: Run, stage: int) -> Path:
    """Where the files of a memory lie that was created in this stage."""
    return run.folder / "memory" / str(stage)


def _open_cache(setting: Setting) -> FeatureCache:
    if setting.recipe.features is None:
        raise TagfillError(
            "A stage with input: cache needs a feature cache; make one with 'tagfill features' and give --features."
        )
    return FeatureCache.open(setting.recipe.features, setting.dataset)


def _classifier(setting: Setting, stage: Stage, previous: ActiveStage | None, cache: FeatureCache | None) -> Classifier:
    recipe = setting.recipe
    size = recipe.image_size if cache is None else cache.preprocessing.size[0]
    full = create(
        recipe.backbone,
        recipe.head,
        setting.dataset.classes,
        pretrained=recipe.pretrained,
        image_size=size,
        seed=recipe.seed,
    )
    assert full.backbone is not None
    if previous is not None and stage.start.head != "new":
        origin = Classifier.load(setting.run.model_folder) if stage.start.head == "best" else previous.full
        full.head.load_state_dict(origin.head.state_dict())
        if stage.start.backbone == "previous":
            assert origin.backbone is not None
            full.backbone.load_state_dict(origin.backbone.state_dict())
    if cache is not None and cache.manifest.fingerprint != full.backbone.fingerprint():
        raise TagfillError(
            f"The feature cache {cache.folder} was made by {cache.manifest.backbone} with other weights than this "
            f"run's backbone {recipe.backbone} has; make a cache with it, or give the same backbone and weights."
        )
    return full


def _optimizer(module: Classifier, stage: Stage) -> torch.optim.Optimizer:
    settings = stage.optimizer
    weights = [parameter for parameter in module.parameters() if parameter.requires_grad]
    optimizer: torch.optim.Optimizer = _OPTIMIZERS[settings.name](
        weights, lr=settings.lr, weight_decay=settings.weight_decay
    )
    return optimizer


def _source(setting: Setting, stage: Stage, cache: FeatureCache | None, full: Classifier, maps: bool) -> Source:
    if cache is not None:
        return FeatureSource(setting.dataset, cache, maps=maps, seed=setting.recipe.seed)
    assert full.backbone is not None
    view = View(scale=stage.crop_scale, flip="random")
    size = full.backbone.preprocessing.size
    return PixelSource(setting.dataset, size, view, seed=setting.recipe.seed, workers=setting.workers)


def _memory(setting: Setting, sampler: Sampler, stage: int, checkpoint: Checkpoint | None) -> Memory:
    options, rank = setting.recipe.memory, setting.devices.ranks.rank
    saved = disk = None
    if checkpoint is not None:
        prefix = "memory."
        saved = {k.removeprefix(prefix): v for k, v in checkpoint.rank.items() if k.startswith(prefix)}
        disk = (checkpoint.state.number, checkpoint.state.disk[rank])
    return Memory(
        setting.dataset.labels("train"),
        sampler.shard,
        seed=setting.recipe.seed,
        folder=memory_folder(setting.run, stage) / f"rank{rank}" if options.storage == "disk" else None,
        budget=int(options.budget_gb * 1e9),
        saved=saved,
        disk=disk,
    )
