"""Runs that train together: heads on the same pooled features, as one stacked module in one pass over the data.

A step of a head on pooled features is a small matrix product, and most of its time goes into what surrounds it. Runs
on the same features that differ in seed, learning rate, labels or loss therefore take their steps together; see
`stacked.py` for a step.

A run ends with the weights that it has alone, up to rounding. Each keeps its own folder, log, checkpoints and best
epoch, and can be resumed alone or together with others. Checkpoints are between epochs, and the best model is written
along with them. A run whose loss is not finite ends with its error, and the others go on.
"""

from __future__ import annotations

import copy
import time
from collections.abc import Hashable, Sequence
from contextlib import ExitStack
from itertools import groupby
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from tagfill import methods
from tagfill.contract import Batch, Prediction
from tagfill.data import FeatureCache, FeatureSource
from tagfill.dataset import Dataset
from tagfill.dataset.validation import require_valid
from tagfill.errors import RunError, TagfillError
from tagfill.images import Geometry
from tagfill.io import sha256_of_strings
from tagfill.methods.base import LossMethod
from tagfill.metrics import GatheredPredictions
from tagfill.models import Backbone, Classifier, choose_device
from tagfill.models.classifier import HEADS, check_head
from tagfill.progress import SILENT, Progress
from tagfill.training.auto import AUTO
from tagfill.training.checkpoints import Checkpoint
from tagfill.training.devices import Devices
from tagfill.training.evaluation import read_validation_labels
from tagfill.training.loss_log import READ_EVERY, ReadLoss, Totals
from tagfill.training.recipe import Recipe
from tagfill.training.run import announce, check_start, finish, new_run, stopped_run
from tagfill.training.run_folder import Run
from tagfill.training.stacked import StackedLinear, Visits, stack_loss
from tagfill.training.stage import RunContext
from tagfill.training.trainer import Interrupt, Saving, Trainer

_MAX_LABELS = 1 << 28  # entries of a dense label matrix, 1 byte each


def group_key(recipe: Recipe, dataset: Dataset, device: str = "auto") -> Hashable | None:
    """What runs must have in common to train together; None for a run that has to train alone.

    A run can join others if it trains a `linear` or `cam` head without a boost on pooled features, with Adam or AdamW
    on the CPU, by a method that is a loss and nothing else.

    Args:
        recipe: of the run.
        dataset: that it names.
        device: to train on.
    """
    stage = recipe.stages[0]
    name, options = recipe.method_of(stage)
    if (
        len(recipe.stages) > 1
        or (stage.input, stage.train, stage.accumulate, stage.epoch_over) != ("cache", "head", 1, "all")
        or any(setting is not None for setting in (stage.clip_norm, stage.average, stage.labeled_share))
        or recipe.features is None
        or recipe.precision != "float32"
        or recipe.compile is not None
        or recipe.pretrained is False
        or recipe.head not in ("linear", "cam")
        or recipe.record
        or stage.optimizer.name not in ("adam", "adamw")
        or choose_device(device).type != "cpu"
        or name == AUTO
        or type(methods.create(name, options)) is not LossMethod
    ):
        return None
    head = HEADS[recipe.head](1, 1, **{**check_head(recipe.head, recipe.head_options), "init": "random"})
    size = len(dataset.split("train"))
    if head.spatial or head.token or size * len(dataset.classes) > _MAX_LABELS:
        return None
    cache = FeatureCache.open(recipe.features, dataset)
    if cache.manifest.inner or cache.missing:
        return None
    optimizer = stage.optimizer.model_copy(update={"lr": 1.0, "head_multiplier": 1.0}).model_dump_json()
    shared = (recipe.features, recipe.backbone, recipe.pretrained, recipe.batch_size, recipe.threads)
    return (*shared, stage.epochs, optimizer, sha256_of_strings(dataset.classes), size)


def train_together(
    runs: Sequence[tuple[Recipe, Path]],
    *,
    device: str = "auto",
    saving: Saving | None = None,
    progress: Progress = SILENT,
) -> list[Run | TagfillError]:
    """Train runs with the same `group_key` to the end, or resume them.

    Args:
        runs: the recipe and the folder of each; what a process left that was killed before the first checkpoint is
            cleared.
        device: must be the CPU.
        saving: when to save, between epochs.
        progress: receives messages.

    Returns:
        The finished runs, and the errors of those that could not be finished, in the same order.
    """
    results: dict[int, Run | TagfillError] = {}
    datasets: dict[str, Dataset] = {}
    members: dict[int, Member] = {}
    interrupt = Interrupt()
    threads = torch.get_num_threads()
    with ExitStack() as stack:
        stack.enter_context(torch.random.fork_rng())
        stack.callback(torch.set_num_threads, threads)
        torch.set_num_threads(runs[0][0].threads)
        stack.enter_context(interrupt)
        devices = Devices(1, device, runs[0][0].precision)
        for number, (recipe, folder) in enumerate(runs):
            try:
                if recipe.dataset not in datasets:
                    datasets[recipe.dataset] = Dataset.open(recipe.dataset)
                    require_valid(datasets[recipe.dataset], progress=progress)
                run, checkpoint = Run(folder), None
                if run.begun and run.finished:
                    results[number] = run
                    continue
                if run.begun:
                    context, checkpoint = stack.enter_context(stopped_run(run, devices, progress=progress))
                else:
                    check_start(recipe, out=None, device=device)
                    data = datasets[recipe.dataset]
                    context = stack.enter_context(new_run(run, data, recipe, devices, force=True, progress=progress))
                first = next(iter(members.values()), None)
                context.backbone = None if first is None else first.backbone
                members[number] = Member(context, saving or Saving(), checkpoint, interrupt)
            except TagfillError as error:
                results[number] = error
        _train(members, results, interrupt)
    return [results[number] for number in range(len(runs))]


def _train(members: dict[int, Member], results: dict[int, Run | TagfillError], interrupt: Interrupt) -> None:
    """Train all members to their ends; those that are behind first."""
    while members:
        for number in [number for number, member in members.items() if member.error is not None or member.done]:
            member = members.pop(number)
            results[number] = member.error or member.finish()
        if members:
            behind = min(members.values(), key=lambda member: member.epoch)
            position = behind.epoch, behind.views
            train_epoch([m for m in members.values() if (m.epoch, m.views) == position], behind.epoch)
        if interrupt.pressed:
            for member in members.values():
                member.save()
            raise KeyboardInterrupt


class Member(Trainer):
    """One of several runs that train together; `train_epoch` takes its steps.

    Args:
        context: the run.
        saving: when to save, between epochs.
        checkpoint: where to continue; None starts from the beginning.
        interrupt: of all runs.

    Attributes:
        epoch: the next one, from 1.
        error: why the run cannot go on.
    """

    def __init__(
        self, context: RunContext, saving: Saving, checkpoint: Checkpoint | None, interrupt: Interrupt
    ) -> None:
        announce(context, checkpoint)
        super().__init__(context, saving, checkpoint)
        self._interrupt = interrupt
        self._best_model: Classifier | None = None
        self._best_validation: GatheredPredictions | None = None
        self._validation: GatheredPredictions | None = None
        self.error: TagfillError | None = None
        self.epoch, step = self._enter(0, None)
        if step:  # it was stopped within an epoch, when it trained alone
            self._epoch(self.epoch, step)
            self.epoch += 1
        layer = self._active.module.get_submodule("head.fc")
        assert isinstance(layer, torch.nn.Linear)
        self.layer = layer

    @property
    def done(self) -> bool:
        """Whether all epochs are trained, or no better one is expected."""
        return self._best.done or self.epoch > self._active.stage.epochs

    @property
    def backbone(self) -> Backbone:
        """Not trained; other runs can share it."""
        assert isinstance(self._active.full.backbone, Backbone)
        return self._active.full.backbone

    @property
    def source(self) -> FeatureSource:
        """Where its features are."""
        assert isinstance(self._active.source, FeatureSource)
        return self._active.source

    @property
    def views(self) -> tuple[str, ...]:
        """Of its features; a run that was stopped does not see views that were added since."""
        assert self._context.cache is not None
        return tuple(self._context.cache.manifest.views)

    @property
    def optimizer(self) -> torch.optim.Optimizer:
        """An Adam or AdamW."""
        return self._active.optimizer

    @property
    def context(self) -> RunContext:
        """The run."""
        return self._context

    @property
    def loss_key(self) -> tuple[str, str, float | None]:
        """Runs with the same key have the same loss."""
        recipe = self._context.recipe
        name, options = recipe.method_of(self._active.stage)
        return repr((name, options)), recipe.dataset, self._context.expected_positives[0]

    def loss(self, logits: Tensor, labels: Tensor) -> Tensor:
        """The loss of B×L logits and labels."""
        geometry = Geometry.whole(0)  # a loss of logits and labels looks at nothing else
        terms = self._active.method.loss(Batch(labels[:, 0], labels, logits, geometry), Prediction(logits))
        (value,) = terms.values()
        return value

    def begin(self) -> list[NDArray[np.int64]]:
        """Begin the next epoch; returns the images of its batches."""
        self._totals = Totals()
        self._active.method.begin_epoch(self.epoch)
        return self._active.sampler.batches(self.epoch)

    def rates(self, steps: int) -> list[float]:
        """The learning rate of each step of the next epoch."""
        return self._rates(self.epoch, steps)

    def add_losses(self, losses: Sequence[float], images: Sequence[Tensor], first_step: int) -> None:
        """Add the losses of some steps to those of the epoch; one that is not finite is the run's error."""
        assert isinstance(self._active.method, LossMethod)
        for step, (loss, batch) in enumerate(zip(losses, images, strict=True), start=first_step):
            read = ReadLoss(step, 1.0, batch, False, {self._active.method.name: loss})
            if self.error is not None:
                return
            if read.not_finite is not None:
                self.error = RunError(self._not_finite(self.epoch, read))
            else:
                self._totals.add(read.terms, len(batch))

    def end(self, validation: GatheredPredictions | None, lr: float, seconds: float, images: int) -> None:
        """End the epoch: log it, keep the model if it is the best one, and save if it is due.

        Args:
            validation: predictions and labels of the validation split.
            lr: of the last step.
            seconds: that its steps took.
            images: that were visited.
        """
        self._set_learning_rate(lr)
        self._validation = validation
        self._end_epoch(self.epoch, seconds, images)
        self.epoch += 1
        if not self.done and self._is_due(self._active.sampler.steps - 1, end_of_epoch=True):
            self.save()

    def save(self) -> None:
        """Write a checkpoint between two epochs."""
        self._save(self.epoch, 0)

    def finish(self) -> Run:
        """Save after the last epoch, and write the result."""
        return finish(self._context, self._close(self.epoch))

    def _validate(self) -> GatheredPredictions | None:
        if self._validation is None:  # the epoch was finished alone
            return super()._validate()
        read_validation_labels(self._validation, self._context.dataset, self._context.recipe.val_labels)
        return self._validation

    def _keep_best(self, validation: GatheredPredictions | None) -> None:
        """Keep the model in memory; it is written with the next checkpoint."""
        module = self._active.module
        head = copy.deepcopy(module.head)
        self._best_model = self._active.full.replace_top(Classifier(None, head, module.head_name, module.classes))
        self._best_validation = validation

    def _save(self, epoch: int, step: int) -> None:
        if (epoch, step) == (1, 0):
            return  # nothing is trained yet; a run without a checkpoint is started again
        if self._best_model is not None:
            self._write_best(self._best_model, self._best_validation)
            self._best_model = self._best_validation = None
        super()._save(epoch, step)


def train_epoch(members: Sequence[Member], epoch: int) -> None:
    """Train one epoch of several runs, and validate each.

    Args:
        members: that begin this epoch.
        epoch: from 1.
    """
    begin = time.monotonic()
    members = sorted(members, key=lambda member: (member.loss_key, member.context.recipe.seed))
    tables: dict[str, Tensor] = {}
    for member in members:
        if (name := member.context.recipe.dataset) not in tables:
            tables[name] = torch.from_numpy(member.context.dataset.labels("train").dense())
    cache = members[0].context.cache
    assert cache is not None
    visits = Visits.plan(
        epoch,
        [member.begin() for member in members],
        [member.source for member in members],
        [tables[member.context.recipe.dataset] for member in members],
        cache,
    )
    module = StackedLinear([member.layer for member in members], [member.optimizer for member in members])
    numbers = groupby(range(len(members)), key=lambda number: members[number].loss_key)
    parts = [slice(part[0], part[-1] + 1) for part in (list(each) for _, each in numbers)]
    classes = members[0].layer.out_features
    losses = [(part, stack_loss(members[part.start].loss, part.stop - part.start, classes)) for part in parts]
    rates = torch.tensor([member.rates(len(visits.batches)) for member in members], dtype=torch.float64)
    pending: list[Tensor] = []
    for step, batch in enumerate(visits.batches):
        features, labels = visits.read(batch)
        logits = module.forward(features).requires_grad_()
        values = torch.cat([loss(logits[part], labels[part]) for part, loss in losses])
        (slope,) = torch.autograd.grad(values.sum(), logits)
        module.step(features, slope, rates[:, step])
        pending.append(values.detach())
        if len(pending) == READ_EVERY or step == len(visits.batches) - 1:
            first = step + 1 - len(pending)
            read = torch.stack(pending, dim=1).tolist()
            for number, (member, own) in enumerate(zip(members, read, strict=True)):
                member.add_losses(own, [visits.index[number, cut] for cut in visits.batches[first : step + 1]], first)
            pending.clear()
    module.store()
    healthy = [(number, member) for number, member in enumerate(members) if member.error is None]
    seconds, images = (time.monotonic() - begin) / len(members), visits.index.shape[1]
    found = _validations([member for _, member in healthy])
    for (number, member), validation in zip(healthy, found, strict=True):
        try:
            member.end(validation, float(rates[number, -1]), seconds, images)
        except TagfillError as error:
            member.error = error


@torch.no_grad()
def _validations(members: Sequence[Member]) -> list[GatheredPredictions | None]:
    """Predictions of each run for its validation split; features are read once for each dataset."""
    found: dict[int, GatheredPredictions] = {}
    numbered = sorted(enumerate(members), key=lambda pair: pair[1].context.recipe.dataset)
    for _, each in groupby(numbered, key=lambda pair: pair[1].context.recipe.dataset):
        group = [(number, member) for number, member in each if member.context.validated]
        if not group:
            continue
        first = group[0][1]
        logits: list[list[Tensor]] = [[] for _ in group]
        batches: list[Batch] = []
        for batch in first.source.evaluate("val", np.arange(len(first.context.dataset.split("val")))):
            batches.append(batch)
            for own, (_, member) in zip(logits, group, strict=True):
                own.append(torch.nn.functional.linear(batch.inputs, member.layer.weight, member.layer.bias))
        index = torch.cat([batch.index for batch in batches]).numpy()
        labels = torch.cat([batch.labels for batch in batches]).numpy()
        for own, (number, _) in zip(logits, group, strict=True):
            found[number] = GatheredPredictions(index, torch.cat(own).numpy(), labels.copy())
    return [found.get(number) for number in range(len(members))]
