"""Setting up one stage of a run: its model, data, memory, method and optimiser."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from tagfill import methods
from tagfill.contract import Method, Task
from tagfill.errors import TagfillError
from tagfill.loading import FeatureCache, Sampler, Source
from tagfill.memory import Memory, below
from tagfill.metrics import Gathered
from tagfill.models import Classifier, create
from tagfill.training import inputs, keepsake, optimizers, oracle
from tagfill.training.averaging import WeightAverage
from tagfill.training.checkpoints import Checkpoint
from tagfill.training.evaluation import choose_thresholds, share
from tagfill.training.passes import predict
from tagfill.training.recipe import Stage
from tagfill.training.remembering import keepsake_folder, open_memory
from tagfill.training.setting import Setting


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

    def keep_best(self, setting: Setting, validated: Gathered | None) -> None:
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
            keepsake.keep(self.memory, keepsake_folder(setting))

    def deployed(self) -> Classifier:
        """The classifier that is validated and saved: with averaged weights, if there is an average."""
        if self.average is None:
            return self.full
        average = self.average.module
        assert isinstance(average, Classifier)
        return average if average.backbone is not None else self.full.with_head(average.head)


def enter(setting: Setting, number: int, previous: ActiveStage | None, checkpoint: Checkpoint | None) -> ActiveStage:
    """Set up a stage, from the one before it or from a checkpoint inside it."""
    recipe, stage, devices = setting.recipe, setting.recipe.stages[number], setting.devices
    method = methods.create(*recipe.method_of(stage))
    maps = "maps" in method.needs
    cache = inputs.open_cache(setting) if stage.input == "cache" else None
    full = _classifier(setting, stage, previous, cache)
    full.check_use(maps=maps)
    module = full if cache is None else Classifier(None, full.head, full.head_name, full.classes)
    module.freeze(backbone=stage.train == "head", stem="stem" in stage.freeze, batch_norm="batch-norm" in stage.freeze)
    labels = setting.dataset.labels("train")
    module.mask_boost(torch.from_numpy(labels.positives > 0))
    if checkpoint is not None:
        module.load_state_dict(below(checkpoint.model, "module"))
    optimizer = optimizers.build(stage.optimizer, module)
    wrapped, stepper = devices.wrap(module, optimizer)
    average = None if stage.average is None else WeightAverage(module, stage.average)
    if checkpoint is not None:
        if average is not None:
            average.load_state_dict(below(checkpoint.model, "average"))
        devices.load_state_dict(checkpoint.state.precision)
        optimizers.load_state(optimizer, checkpoint.optimizer, checkpoint.state.groups)
    sampler = inputs.make_sampler(setting, stage, labels, method.needs)
    source = inputs.make_source(setting, stage, cache, full, method.needs)
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
        frozen_features=lambda: inputs.frozen_features(setting, cache, source),
        truth=lambda: oracle.true_labels(setting.dataset, "train"),
    )
    method.setup(task)
    if checkpoint is not None:
        method.load_state_dict(below(checkpoint.of_rank(devices.ranks.rank % checkpoint.world), "method"))
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


def _classifier(setting: Setting, stage: Stage, previous: ActiveStage | None, cache: FeatureCache | None) -> Classifier:
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
