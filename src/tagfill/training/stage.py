"""One stage of a run, ready to train: its model, data, memory, method and optimizer."""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping
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
from torch.optim.swa_utils import AveragedModel

from tagfill import methods
from tagfill.contract import Method, Task
from tagfill.data import FeatureCache, FeatureSource, Locations, PixelSource, Sampler, Source, SourceWithMarks
from tagfill.dataset import Dataset
from tagfill.errors import TagfillError
from tagfill.evidence.training_evidence import TrainingEvidence
from tagfill.images import View
from tagfill.io import atomic_write, write_json
from tagfill.labels import LabelMatrix
from tagfill.memory import Memory, sub_state
from tagfill.models import Backbone, BackboneTop, Classifier, create_backbone
from tagfill.models.classifier import create_on
from tagfill.progress import Progress
from tagfill.training import checkpoints
from tagfill.training.checkpoints import Checkpoint
from tagfill.training.devices import Devices
from tagfill.training.evaluation import can_validate, predict, rank_positions
from tagfill.training.optimizers import (
    LeanAdam,
    build_optimizer,
    load_average_state,
    load_optimizer_state,
    weight_average,
)
from tagfill.training.recipe import Recipe, Stage
from tagfill.training.run_folder import BadImages, Run, memory_folder

_LABELED_SHARE = 0.5  # for methods that learn from images without any label, unless the stage sets its own


@dataclass
class RunContext:
    """A run under way: what its stages share, each part opened or built once.

    Attributes:
        run: its folder, locked.
        recipe: all settings that decide the result.
        dataset: the data.
        cache: the feature cache; None if no stage trains on one.
        devices: the processes, launched.
        workers: processes that decode images.
        progress: shows epochs and steps.
        backbone: with the weights that the recipe names, if another run on the same features has created it; it must
            not train.
    """

    run: Run
    recipe: Recipe
    dataset: Dataset
    cache: FeatureCache | None
    devices: Devices
    workers: int
    progress: Progress
    backbone: Backbone | None = None

    @cached_property
    def methods(self) -> dict[int, Method]:
        """The methods of the stages that were not entered yet, by the position of the stage."""
        return {
            number: methods.create(*self.recipe.method_of(stage)) for number, stage in enumerate(self.recipe.stages)
        }

    @cached_property
    def expected_positives(self) -> tuple[float | None, str | None]:
        """κ, the number of labels that an image is expected to have, and where the number comes from.

        An option `expected` of a method has priority over the run's own number. Without either, the labels of a
        completely labeled validation split are counted. Both are None if no method of the run needs κ, and if it is
        unknown.
        """
        own = [
            _expected_option(self.recipe.method_of(self.recipe.stages[number])[1])
            for number, method in self.methods.items()
            if "expected_positives" in method.needs
        ]
        if not own:
            return None, None
        if None not in own:
            return self._at_most_all(own[0]), "given as an option of the method"
        if self.recipe.expected_positives is not None:
            return self._at_most_all(self.recipe.expected_positives), "given as expected_positives"
        if "val" in self.dataset.splits:
            labels = self.dataset.labels("val")
            if labels.complete():
                return float(labels.positives_per_image().mean()), "counted on the validation split"
        return None, None

    def _at_most_all(self, expected: float | None) -> float | None:
        """Refuse more labels per image than there are classes."""
        classes = len(self.dataset.classes)
        if expected is not None and expected > classes:
            raise TagfillError(
                f"{expected:g} present labels per image are expected, but there are only {classes} classes; give a "
                "smaller number."
            )
        return expected

    @cached_property
    def bad_images(self) -> BadImages:
        """Images that could not be decoded."""
        limit = int(self.recipe.max_bad_images * len(self.dataset))
        return BadImages(self.run.folder / "bad-images.txt", limit, self.progress)

    @cached_property
    def validated(self) -> bool:
        """Whether epochs have a validation mAP."""
        return can_validate(self.dataset, self.recipe.val_labels)

    @property
    def chosen_by_map(self) -> bool:
        """Whether the best epoch is the one with the best validation mAP; otherwise it is the last one."""
        return self.validated and self.recipe.select == "mAP"


def _expected_option(options: Mapping[str, Mapping[str, Any]]) -> float | None:
    """The option `expected` of a stage's method."""
    given = [float(part["expected"]) for part in options.values() if part.get("expected") is not None]
    return given[0] if given else None


def open_cache(recipe: Recipe, dataset: Dataset, views: Mapping[str, str] | None = None) -> FeatureCache | None:
    """Open the feature cache of a run; None if no stage trains on one.

    Args:
        recipe: names the cache.
        dataset: whose images it must hold.
        views: identities of the views that the run started with, by name; views added since then are left out.
    """
    if not any(stage.input == "cache" for stage in recipe.stages):
        return None
    if recipe.features is None:
        raise TagfillError(
            "A stage with input: cache needs a feature cache; make one with 'tagfill features' and give --features."
        )
    cache = FeatureCache.open(recipe.features, dataset)
    return cache if views is None else cache.only(views)


@dataclass
class ActiveStage:
    """A stage that is ready to train.

    Attributes:
        number: position in the recipe's list.
        stage: its settings.
        full: the classifier with its backbone, which is saved.
        module: what trains: `full`, or on cached features its head alone or the part above the cached stage.
        wrapped: `module`, sharing gradients between processes.
        optimizer: over the weights that train.
        stepper: steps the optimizer, in the precision of the run.
        average: of the weights, if the stage keeps one.
        sampler: the order of visits.
        source: batches of images or of cached features.
        method: computes the loss.
        memory: per-image state of the method.
        memory_name: of the folder with the memory's files.
        task: what the method knows about the stage.
        maps: whether the method needs class maps.
    """

    number: int
    stage: Stage
    full: Classifier
    module: Classifier
    wrapped: nn.Module
    optimizer: torch.optim.Optimizer
    stepper: Any
    average: AveragedModel | None
    sampler: Sampler
    source: Source
    method: Method
    memory: Memory
    memory_name: str
    task: Task
    maps: bool

    @cached_property
    def has_memory(self) -> bool:
        """Whether the method keeps per-image state."""
        return bool(self.memory.sizes())

    @cached_property
    def weights(self) -> list[nn.Parameter]:
        """The weights that the optimizer steps."""
        return [weight for group in self.optimizer.param_groups for weight in group["params"]]

    def deployed(self) -> Classifier:
        """The classifier that is validated and saved: with averaged weights, if there is an average."""
        if self.average is None:
            return self.full
        average = self.average.module
        assert isinstance(average, Classifier)
        return average if self.module is self.full else self.full.replace_top(average)


def enter_stage(
    context: RunContext, number: int, previous: ActiveStage | None, checkpoint: Checkpoint | None
) -> ActiveStage:
    """Set up a stage.

    Args:
        context: the run.
        number: position of the stage in the recipe's list.
        previous: the stage before it, where that was trained in this process.
        checkpoint: inside the stage, to continue from.
    """
    recipe, stage, devices = context.recipe, context.recipe.stages[number], context.devices
    expected_positives, _ = context.expected_positives  # depends on the methods of all stages
    method = context.methods.pop(number)  # the context must not keep the state of a stage that has ended
    maps = "maps" in method.needs
    cache = context.cache if stage.input == "cache" else None
    full = _build_classifier(context, stage, previous, cache)
    full.check_use(maps=maps)
    module = full if cache is None else full.above(cache.at)
    module.freeze(
        backbone=stage.train == "head",
        below=_frozen_stage(recipe, full) if stage.train == "top" and cache is None else None,
        stem="stem" in stage.freeze,
        batch_norm="batch-norm" in stage.freeze,
    )
    labels = context.dataset.labels("train")
    module.mask_boost(torch.from_numpy(labels.positives > 0))
    if checkpoint is not None:
        module.load_state_dict(sub_state(checkpoint.model, "module"))
    module.to(devices.device)  # before the optimizer takes hold of its weights
    optimizer = build_optimizer(stage.optimizer, module, scaled=devices.scaled)
    wrapped, stepper = devices.wrap(module, optimizer)
    if stepper is optimizer and LeanAdam.suits(optimizer):
        stepper = LeanAdam(optimizer)
    average = None if stage.average is None else weight_average(module, stage.average)
    if checkpoint is not None:
        if average is not None:
            load_average_state(average, sub_state(checkpoint.model, "average"))
        devices.load_state_dict(checkpoint.state.precision)
        load_optimizer_state(optimizer, checkpoint.optimizer, checkpoint.state.groups)
    sampler = _make_sampler(context, stage, labels, method.needs)
    source = _make_source(context, stage, cache, full, method.needs)
    if previous is not None and stage.start.memory == "last":
        memory, memory_name = previous.memory, previous.memory_name
        memory.begin_stage()
    else:
        if previous is not None:
            previous.memory.close()
        memory, memory_name = _open_memory(context, sampler, number, checkpoint)
    assert isinstance(full.backbone, Backbone)
    task = Task(
        classes=context.dataset.classes,
        labels=labels,
        size=len(labels),
        epochs=stage.epochs,
        seed=recipe.seed,
        grid=full.backbone.grid if full.head.has_maps else None,
        expected_positives=expected_positives,
        lr=stage.optimizer.lr,
        memory=memory,
        ranks=devices.ranks,
        predict=lambda split: predict(
            wrapped if average is None else average.module,
            source,
            split,
            sampler.shard if split == "train" else rank_positions(len(context.dataset.split(split)), devices.ranks),
            maps=maps,
            place=devices.place,
        ),
        shard=sampler.shard,
        frozen_features=lambda: _frozen_features(context, cache, source),
        truth=lambda: true_labels(context.dataset, "train"),
        evidence=lambda names: TrainingEvidence.open(context.dataset, names, context.recipe.expected_positives),
        say=context.progress.say,
    )
    method.setup(task)
    if checkpoint is not None:
        method.load_state_dict(sub_state(checkpoint.of_rank(devices.ranks.rank % checkpoint.world), "method"))
    return ActiveStage(
        number=number,
        stage=stage,
        full=full,
        module=module,
        wrapped=wrapped,
        optimizer=optimizer,
        stepper=stepper,
        average=average,
        sampler=sampler,
        source=source,
        method=method,
        memory=memory,
        memory_name=memory_name,
        task=task,
        maps=maps,
    )


def _build_classifier(
    context: RunContext, stage: Stage, previous: ActiveStage | None, cache: FeatureCache | None
) -> Classifier:
    """The classifier that a stage starts from, with its backbone."""
    recipe = context.recipe
    if recipe.head == "ensemble":
        raise TagfillError("The ensemble head combines trained models and cannot be trained; choose another head.")
    size = recipe.image_size if cache is None else cache.preprocessing.size
    backbone = context.backbone or create_backbone(
        recipe.backbone, pretrained=recipe.pretrained, image_size=size, seed=recipe.seed
    )
    full = create_on(backbone, recipe.head, context.dataset.classes, seed=recipe.seed, **recipe.head_options)
    assert isinstance(full.backbone, Backbone)
    if previous is not None:
        origin = Classifier.load(context.run.model_folder) if stage.start.head == "best" else previous.full
        assert origin.backbone is not None
        if stage.start.head != "new":
            full.head.load_state_dict(origin.head.state_dict())
        if stage.start.backbone == "previous":
            full.backbone.load_state_dict(origin.backbone.state_dict())
    if cache is not None and stage.train == "top":
        _check_inner_cache(cache, recipe, full.backbone)
    checked = full.backbone is context.backbone  # by the run that created it
    if cache is not None and not checked and cache.manifest.fingerprint != full.backbone.fingerprint(cache.at):
        raise TagfillError(
            f"The feature cache {cache.folder} was made by {cache.manifest.backbone} with other weights than this "
            f"run's backbone {recipe.backbone} has; make a cache with it, or give the same backbone and weights."
        )
    return full


def _check_inner_cache(cache: FeatureCache, recipe: Recipe, backbone: Backbone) -> None:
    """Raise unless a cache holds the stage above which a run trains."""
    if not cache.manifest.inner:
        raise TagfillError(
            f"The feature cache {cache.folder} holds features at the end of the backbone, above which only the head "
            f"can train; make one of an inner stage with 'tagfill features --at {backbone.default_stage()}', or train "
            "the head."
        )
    if recipe.at not in (None, cache.at):
        raise TagfillError(f"The feature cache {cache.folder} holds the stage {cache.at}, not {recipe.at}.")


def _frozen_stage(recipe: Recipe, full: Classifier) -> str:
    """The stage up to which a network is frozen that trains its top on images."""
    assert isinstance(full.backbone, Backbone)
    return recipe.at or full.backbone.default_stage()


def _make_sampler(context: RunContext, stage: Stage, labels: LabelMatrix, needs: frozenset[str]) -> Sampler:
    """The order of visits, with a fixed share of labeled images if the stage or the needs of its method ask for it."""
    ranks, share, unlabeled = context.devices.ranks, stage.labeled_share, labels.unannotated()
    if share is None and needs & {"unlabeled", "unlabelled"} and 0 < len(unlabeled) < len(labels):
        share = _LABELED_SHARE
    return Sampler(
        len(labels),
        context.recipe.batch_size,
        context.recipe.seed,
        ranks.rank,
        ranks.world,
        None if share is None else unlabeled,
        share or 0.0,
        stage.epoch_over == "labeled",
    )


def _make_source(
    context: RunContext, stage: Stage, cache: FeatureCache | None, full: Classifier, needs: frozenset[str]
) -> Source:
    """Batches of images or of cached features, with the views and the marks that the method needs."""
    dataset, seed, pairs = context.dataset, context.recipe.seed, "weak+strong" in needs
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
            on_bad=context.bad_images,
        )
    else:
        assert full.backbone is not None
        source = PixelSource(
            dataset,
            full.backbone.preprocessing.size,
            training_view(stage),
            seed=seed,
            workers=context.workers,
            pairs=pairs,
            on_bad=context.bad_images,
        )
    return SourceWithMarks(source, Locations.read(dataset, "train")) if "marks" in needs else source


def training_view(stage: Stage) -> View:
    """The random view in which a stage shows its training images.

    >>> training_view(Stage(crop_scale=None, vertical_flip=True)).flip_y
    'random'
    """
    return View(
        scale=stage.crop_scale,
        short_side=stage.short_side,
        flip="random" if stage.flip else "never",
        flip_y="random" if stage.vertical_flip else "never",
        strong=stage.strong,
        randaugment=stage.randaugment,
    )


def _open_memory(
    context: RunContext, sampler: Sampler, stage: int, checkpoint: Checkpoint | None
) -> tuple[Memory, str]:
    """The memory of a stage and the name of its folder.

    The memory is new, or comes from a checkpoint of as many processes, from one of another number of processes, or
    from the best epoch of the previous stage.
    """
    recipe, ranks, name = context.recipe, context.devices.ranks, str(stage)
    options: dict[str, Any] = {}
    if checkpoint is not None and checkpoint.world == ranks.world:
        name = checkpoint.state.memory
        options["saved"] = sub_state(checkpoint.of_rank(ranks.rank), "memory")
        options["disk"] = (checkpoint.state.number, checkpoint.state.disk[ranks.rank])
    elif checkpoint is not None:
        name = f"{stage}-{ranks.world}-from-{checkpoint.state.number}"
        options["parts"] = checkpoints.saved_parts(context.run, sampler, checkpoint)
    folder = memory_folder(context.run, name, ranks.rank) if recipe.memory.storage == "disk" else None
    if checkpoint is None and recipe.stages[stage].start.memory == "best":
        options["saved"], options["disk"] = _load_best_memory(best_memory_folder(context), folder)
        options["warm"] = True
    memory = Memory(
        context.dataset.labels("train"),
        sampler.shard,
        seed=recipe.seed,
        folder=folder,
        budget=int(recipe.memory.budget_gb * 1e9),
        **options,
    )
    return memory, name


def best_memory_folder(context: RunContext) -> Path:
    """Where the memory of the best epoch is saved for the next stage."""
    return context.run.folder / "memory" / "best" / f"rank{context.devices.ranks.rank}"


def save_best_memory(memory: Memory, folder: Path) -> None:
    """Copy the whole state of a memory, including its files on disk."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    with atomic_write(folder / "memory.safetensors", sync=False) as file:
        file.write(save({name: value.detach().contiguous() for name, value in memory.state_dict().items()}))
    for path in memory.paths():
        shutil.copyfile(path, folder / path.name)
    write_json(folder / "checksums.json", memory.checksums(), sync=False)


def _load_best_memory(folder: Path, into: Path | None) -> tuple[dict[str, Tensor], tuple[int, dict[str, str]] | None]:
    """The arguments `saved` and `disk` of a `Memory` that starts from the best epoch; copies its files to `into`."""
    checksums: dict[str, str] = json.loads((folder / "checksums.json").read_text(encoding="utf-8"))
    if into is not None:
        shutil.rmtree(into, ignore_errors=True)
        into.mkdir(parents=True)
        for path in folder.glob("*.u8"):
            shutil.copyfile(path, into / path.name)
    return load_file(folder / "memory.safetensors"), (0, checksums) if checksums else None


def _frozen_features(context: RunContext, cache: FeatureCache | None, source: Source) -> NDArray[np.float32]:
    """Pooled features of the training images by the pretrained backbone, even if a stage has trained it since: N×D."""
    if cache is not None and not cache.manifest.inner:
        return cached_features(context.dataset, cache, "train")
    recipe = context.recipe
    size = recipe.image_size if cache is None else cache.preprocessing.size
    whole = create_backbone(recipe.backbone, pretrained=recipe.pretrained, image_size=size, seed=recipe.seed)
    backbone = whole if cache is None else whole.above(cache.at)
    return compute_frozen_features(backbone, source, "train", len(context.dataset.split("train")))


def cached_features(dataset: Dataset, cache: FeatureCache, split: str) -> NDArray[np.float32]:
    """Read pooled features of a split's images from a cache: N×D."""
    rows = dataset.split(split)
    return cache.read(["eval"], np.zeros(len(rows), np.int64), rows, maps=False)[0].numpy()


def compute_frozen_features(
    backbone: Backbone | BackboneTop, source: Source, split: str, size: int
) -> NDArray[np.float32]:
    """Compute pooled features of a split's images: N×D, zeros for an image that does not decode."""
    pooled = np.zeros((size, backbone.channels), dtype=np.float32)
    training = backbone.training
    backbone.eval()
    try:
        for batch in source.evaluate(split, np.arange(size)):
            pooled[batch.index.numpy()] = backbone.pooled(batch.inputs).numpy()
    finally:
        backbone.train(training)
    return pooled


def true_labels(dataset: Dataset, split: str) -> LabelMatrix:
    """The complete labels of a simulated dataset's split, for oracle methods and reports only.

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
