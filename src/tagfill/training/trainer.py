"""Ctrl-C once: finish the step, save, stop. Twice: stop at once.

Sums of an epoch so far: of the loss terms, and of what the method decided about labels.

How far a stage has come: its best epoch, and whether a better one is still expected.

What is written down and shown when an epoch has ended.

What goes into a checkpoint of a run, and when one is due.

One step of the optimiser: forward, loss, backward, memory and update over the parts of a batch.

On cached features a step takes a fraction of a millisecond, so what surrounds it has to be little. The seeds of all
steps are drawn together when the epoch begins, and the loss terms leave the device once, all at the same time.

Processes that train together stop together: before they share gradients, each tells the others whether it can go on.
Whoever left alone would keep the others waiting for its gradients.

The training loop: epochs of steps, a validation at the end of each, and a checkpoint whenever one is due.
"""

from __future__ import annotations

import errno
import math
import shutil
import signal
import threading
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from types import FrameType
from typing import Any

import numpy as np
import torch
from torch import Tensor

from tagfill.contract import Batch, Decisions, Prediction, Ranks
from tagfill.errors import RunError
from tagfill.io import write_json
from tagfill.memory import sub_state
from tagfill.metrics import Gathered, mean_average_precision
from tagfill.progress import Bar, Progress
from tagfill.rng import words
from tagfill.training import checkpoints, optimizers
from tagfill.training.checkpoints import Checkpoint, State
from tagfill.training.evaluation import gather, observed_labels
from tagfill.training.optimizers import set_rate
from tagfill.training.recipe import Stopping
from tagfill.training.records import Recorder
from tagfill.training.run_folder import Events, Run
from tagfill.training.stage import ActiveStage, RunContext, enter


class Interruption:
    """Remembers, inside its block, that somebody asked to stop."""

    def __init__(self) -> None:
        self.asked = False
        self._before: Any = None

    def __enter__(self) -> Interruption:
        if threading.current_thread() is threading.main_thread():
            self._before = signal.signal(signal.SIGINT, self._ask)
        return self

    def __exit__(self, *error: object) -> None:
        if self._before is not None:
            signal.signal(signal.SIGINT, self._before)

    def _ask(self, number: int, frame: FrameType | None) -> None:
        if self.asked:
            raise KeyboardInterrupt
        self.asked = True


@dataclass
class Totals:
    """Sums over the images of this rank.

    Attributes:
        sums: of each loss term.
        images: that were visited.
        decisions: how many labels were decided in each way; None as long as no method has decided anything.
    """

    sums: dict[str, float] = field(default_factory=dict)
    images: int = 0
    decisions: Counter[str] | None = None

    def add(self, terms: Mapping[str, float], images: int) -> None:
        """One more part of a batch."""
        for name, value in terms.items():
            self.sums[name] = self.sums.get(name, 0.0) + value * images
        self.images += images

    def decide(self, decided: Decisions | None) -> None:
        """What was decided about the labels of that part."""
        if decided is not None:
            self.decisions = self.decisions or Counter()
            self.decisions.update(decided.kind.tolist())

    def means(self, ranks: Ranks) -> dict[str, float]:
        """The mean of each term over the images of all ranks."""
        names = sorted(self.sums)
        own = torch.tensor([self.images, *(self.sums[name] for name in names)], dtype=torch.float64)
        count, *sums = ranks.sum(own).tolist()
        return {name: total / max(count, 1.0) for name, total in zip(names, sums, strict=True)}

    def state_dict(self) -> dict[str, Tensor]:
        """As tensors."""
        state = {f"sum.{name}": torch.tensor(value, dtype=torch.float64) for name, value in self.sums.items()}
        if self.decisions is not None:
            state |= {f"decided.{kind}": torch.tensor(count) for kind, count in {"": 0, **self.decisions}.items()}
        return {**state, "images": torch.tensor(self.images)}

    @classmethod
    def from_state(cls, state: dict[str, Tensor]) -> Totals:
        """Back from `state_dict`."""
        sums = {name.removeprefix("sum."): float(value) for name, value in state.items() if name.startswith("sum.")}
        decided = {name.removeprefix("decided."): int(n) for name, n in state.items() if name.startswith("decided.")}
        return cls(sums, int(state["images"]), +Counter(decided) if decided else None)


def add_up(decisions: list[dict[str, int] | None]) -> dict[str, int] | None:
    """The decisions of all ranks together, in alphabetical order; None if no rank has any.

    >>> add_up([{"rejected": 2}, None, {"flipped": 1, "rejected": 1}])
    {'flipped': 1, 'rejected': 3}
    """
    made = [Counter(part) for part in decisions if part is not None]
    return dict(sorted(sum(made, Counter()).items())) if made else None


@dataclass
class BestEpoch:
    """The standing of a stage.

    Attributes:
        best: stage, epoch and score of the best epoch so far.
        stale: epochs since then.
        done: whether the stage has ended early.
    """

    best: dict[str, float] | None = None
    stale: int = 0
    done: bool = False

    def judge(self, stage: int, epoch: int, score: float, stopping: Stopping) -> bool:
        """Take in the score of another epoch; gives whether it is the best one.

        >>> standing = Standing()
        >>> [standing.judge(0, epoch, score, Stopping(patience=2)) for epoch, score in enumerate([0.5, 0.4, 0.3], 1)]
        [True, False, False]
        >>> standing.done
        True
        """
        better = self.best is None or score > self.best["score"]
        if better:
            self.best = {"stage": stage, "epoch": epoch, "score": score}
        self.stale = 0 if better else self.stale + 1
        assert self.best is not None
        tired = stopping.patience is not None and self.stale >= stopping.patience
        fallen = stopping.drop is not None and 100 * (self.best["score"] - score) > stopping.drop
        self.done = tired or fallen
        return better


@dataclass(frozen=True)
class Epoch:
    """An epoch that has ended.

    Attributes:
        stage: name of its stage.
        number: within the stage, from 1.
        of: epochs that the stage has.
        overall: number over all stages.
        lr: learning rate of its last step.
        losses: mean of each term.
        decisions: labels that the method decided, by kind; None if it takes them as they are.
        val_map: validation mAP in percent, if there is a validation split.
        best: whether it is the best one so far.
        seconds: that its steps took.
        images: that were visited.
    """

    stage: str
    number: int
    of: int
    overall: int
    lr: float
    losses: dict[str, float]
    decisions: dict[str, int] | None
    val_map: float | None
    best: bool
    seconds: float
    images: int


def write_down(run: Run, events: Events, epoch: Epoch) -> None:
    """Add an epoch to `metrics.jsonl`, `timings.jsonl` and the events of TensorBoard."""
    name: dict[str, Any] = {"stage": epoch.stage, "epoch": epoch.number}
    line = {**name, "lr": epoch.lr, "loss": epoch.losses, "best": epoch.best}
    scalars = {"lr": epoch.lr, **{f"loss/{term}": value for term, value in epoch.losses.items()}}
    if epoch.val_map is not None:
        line["val_mAP"] = scalars["val/mAP"] = epoch.val_map
    if epoch.decisions is not None:
        line["decisions"] = epoch.decisions
        scalars |= {f"decisions/{kind}": count for kind, count in epoch.decisions.items()}
    run.append("metrics.jsonl", line)
    run.append("timings.jsonl", {**name, "seconds": epoch.seconds, "images": epoch.images})
    events.write(epoch.overall, scalars)


def show(progress: Progress, epoch: Epoch, *, ended: bool) -> None:
    """Say how an epoch went, and whether the stage ends with it before its time."""
    shown = " ".join(f"{name} {value:.4f}" for name, value in epoch.losses.items())
    if epoch.val_map is not None:
        shown += f"  val mAP {epoch.val_map:.2f}{' (best)' if epoch.best else ''}"
    progress.say(f"{epoch.stage} epoch {epoch.number}/{epoch.of}  {shown}")
    if ended and epoch.number < epoch.of:
        progress.say(f"{epoch.stage} stops after epoch {epoch.number}: no better one is expected")


_NO_ROOM = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


@dataclass
class Saving:
    """When to save besides the beginning of a stage and the end of the run."""

    every_steps: int | None = None
    every_minutes: float | None = 5.0


def save_run_state(
    setting: RunContext,
    active: ActiveStage,
    totals: Totals,
    recorder: Recorder,
    standing: BestEpoch,
    epoch: int,
    step: int,
) -> None:
    """Write a checkpoint, and remove what only older ones needed; a full disk destroys nothing.

    Args:
        setting: of the run.
        active: the stage.
        totals: sums of the epoch under way.
        recorder: what that epoch has gathered for analyses.
        standing: of the stage.
        epoch: under way, from 1.
        step: steps of that epoch that are done.
    """
    devices = setting.devices
    offset = sum(stage.epochs * active.sampler.steps + 1 for stage in setting.recipe.stages[: active.number])
    number = offset + (epoch - 1) * active.sampler.steps + step
    moments, groups = optimizers.state_tensors(active.optimizer)
    state = State(
        number=number,
        stage=active.number,
        epoch=epoch,
        step=step,
        best=standing.best,
        stale=standing.stale,
        done=standing.done,
        metrics_bytes=setting.run.metrics_path.stat().st_size if devices.main else 0,
        memory=active.memory_name,
        disk=devices.gather_json(active.memory.mark(number)),
        groups=groups,
        precision=devices.state_dict(),
    )
    sections: dict[str, Any] = {"memory": active.memory, "method": active.method, "totals": totals, "records": recorder}
    rank = {"shard.index": torch.from_numpy(active.sampler.shard)}
    rank |= {f"{name}.{key}": value for name, owner in sections.items() for key, value in owner.state_dict().items()}
    model = {f"module.{key}": value for key, value in active.module.state_dict().items()}
    if active.average is not None:
        model |= {f"average.{key}": value for key, value in active.average.state_dict().items()}
    try:
        checkpoints.save_checkpoint(setting.run.checkpoints, devices, state, model, moments, rank)
    except OSError as error:
        if error.errno not in _NO_ROOM:
            raise
        raise RunError(
            f"There is no room to save a checkpoint in {setting.run.checkpoints}; nothing was lost. Free some "
            f"space and continue with 'tagfill train --resume {setting.run.folder}'."
        ) from None
    oldest = devices.on_main(lambda: checkpoints.prune(setting.run.checkpoints))
    active.memory.forget(before=oldest["number"])
    if devices.main:
        for folder in (setting.run.folder / "memory").glob("[0-9]*"):
            if folder.name not in oldest["memories"]:
                shutil.rmtree(folder)


class Steps:
    """The steps of one epoch.

    Args:
        setting: of the run.
        active: the stage.
        epoch: from 1.
        totals: where loss terms and decisions are added up.
        recorder: what is written down for analyses.
    """

    def __init__(
        self, setting: RunContext, active: ActiveStage, epoch: int, totals: Totals, recorder: Recorder
    ) -> None:
        self._setting, self._active, self._epoch, self._totals = setting, active, epoch, totals
        self._recorder = recorder
        every = np.arange(active.sampler.steps)
        drawn = words(setting.recipe.seed, f"step {active.number}", epoch, every, setting.devices.ranks.rank)
        self._seeds: list[int] = (drawn >> np.uint64(1)).tolist()
        active.wrapped.train()

    def take(self, step: int, shares: Sequence[float], parts: Iterator[Batch]) -> tuple[dict[str, float], int]:
        """One step.

        Args:
            step: within the epoch, from 0.
            shares: of the batch, one for each part.
            parts: the parts, taken from an iterator that goes on with the next step's.

        Returns:
            The loss terms of the batch, and how many of its images could be decoded.
        """
        active, devices, stage = self._active, self._setting.devices, self._active.stage
        taken = (self._epoch - 1) * active.sampler.steps + step
        active.task.lr = stage.optimizer.lr * stage.schedule.at(taken, active.sampler.steps, stage.epochs)
        set_rate(active.optimizer, active.task.lr)
        devices.seed(self._seeds[step])  # whatever the network draws, such as dropout, belongs to the step
        shown: dict[str, float] = {}
        visited: list[Tensor] = []
        for number, (share, part) in enumerate(zip(shares, parts, strict=False), start=1):
            if not len(part.index):
                self._go_on(self._nothing_to_see(step))
                continue
            terms = self._work_off(step, part, share, last=number == len(shares))
            visited.append(part.index)
            for name, value in terms.items():
                shown[name] = shown.get(name, 0.0) + share * value
        if stage.clip_norm is not None and not devices.clip(active.wrapped, active.stepper, stage.clip_norm):
            kept = self._keep(step, torch.cat(visited), shown)
            raise RunError(f"The gradients are not finite in {self._moment(step)}; {kept}")
        active.stepper.step()
        active.stepper.zero_grad()
        if active.average is not None:
            active.average.update(active.module)
        return shown, sum(map(len, visited))

    def _work_off(self, step: int, part: Batch, share: float, *, last: bool) -> dict[str, float]:
        """Forward and backward passes of a part; the optimiser steps when all are done."""
        active, devices = self._active, self._setting.devices
        batch = devices.place(part)
        active.memory.begin_step()
        with devices.sharing(active.wrapped, last):
            prediction: Prediction = active.wrapped(batch.inputs, maps=active.maps)
            terms = active.method.loss(batch, prediction)
            loss, values = _add(terms)
            finite = all(map(math.isfinite, values.values()))
            self._go_on(None if finite else self._not_finite(step, batch, values))
            devices.backward(loss if share == 1 else share * loss)
        with torch.no_grad():
            active.method.observe(batch, prediction.detach())
        self._totals.add(values, len(batch.index))
        decided = active.method.decisions()
        self._totals.decide(decided)
        self._recorder.visit(batch, prediction, decided)
        return values

    def _go_on(self, problem: str | None) -> None:
        """Stop in all processes, with the same words, if any of them has a problem."""
        devices = self._setting.devices
        if devices.anybody(problem is not None):
            raise RunError(next(words for words in devices.gather_json(problem) if words is not None))

    def _nothing_to_see(self, step: int) -> str | None:
        """No image of a part could be decoded; processes that wait for each other's gradients cannot go on."""
        if self._setting.devices.ranks.world == 1:
            return None
        return (
            f"None of the images of step {step + 1} of epoch {self._epoch} can be decoded; find them with "
            "'tagfill inspect --decode'."
        )

    def _not_finite(self, step: int, batch: Batch, terms: dict[str, float]) -> str:
        """What to say about a loss that is not a number; what it was made from is kept."""
        kept = self._keep(step, batch.index, terms)
        bad = next(name for name, value in terms.items() if not math.isfinite(value))
        return f"The loss term '{bad}' is {terms[bad]} in {self._moment(step)}; {kept}"

    def _keep(self, step: int, index: Tensor, terms: dict[str, float]) -> str:
        """Write down the images of a step that went wrong; what to do about it."""
        setting, name = self._setting, self._active.stage.name
        path = setting.run.folder / f"not-finite-rank{setting.devices.ranks.rank}.json"
        images = setting.dataset.names(setting.dataset.split("train")[index.numpy(force=True)])
        write_json(path, {"stage": name, "epoch": self._epoch, "step": step, "terms": terms, "images": images})
        return f"{path} lists the images of the batch. Lower the learning rate, or look at those images."

    def _moment(self, step: int) -> str:
        return f"epoch {self._epoch}, step {step + 1}"


def _add(terms: dict[str, Tensor]) -> tuple[Tensor, dict[str, float]]:
    """The sum of some terms, and their values, which leave the device together."""
    if len(terms) == 1:
        ((name, only),) = terms.items()
        return only, {name: only.item()}
    stacked = torch.stack(list(terms.values()))
    return stacked.sum(), dict(zip(terms, stacked.detach().tolist(), strict=True))


_ASK_EVERY = 16  # steps between two questions to the other processes whether it is time to save or to stop
_SHOW_EVERY = 0.1  # seconds between two looks at the bar, which takes longer to draw than a step on cached features


class Trainer:
    """Runs all stages of a recipe, from the beginning or from a checkpoint."""

    def __init__(self, setting: RunContext, due: Saving, progress: Progress, checkpoint: Checkpoint | None) -> None:
        self._setting = setting
        self._saving = due
        self._progress = progress
        self._checkpoint = checkpoint
        self._standing = BestEpoch()
        self._totals = Totals()
        self._last_save = time.monotonic()
        self._interruption = Interruption()
        self._events = Events(setting.run.folder / "tensorboard") if setting.devices.main else None

    def run(self) -> dict[str, float]:
        """Train to the end; gives stage, epoch and score of the best epoch of the last stage."""
        checkpoint, active = self._checkpoint, None
        first = checkpoint.state.stage if checkpoint else 0
        with self._interruption:
            for number in range(first, len(self._setting.recipe.stages)):
                active = enter(self._setting, number, active, checkpoint)
                active.task.say = self._progress.say
                if sizes := active.memory.sizes():
                    shown = ", ".join(f"{name} {size / 1e6:,.1f} MB" for name, size in sizes.items())
                    self._progress.say(f"{active.stage.name} keeps per-image state: {shown}")
                epoch, step = 1, 0
                self._standing, self._recorder = BestEpoch(), self._recorder_of(active)
                if checkpoint is not None:
                    epoch, step = checkpoint.state.epoch, checkpoint.state.step
                    self._standing = BestEpoch(checkpoint.state.best, checkpoint.state.stale, checkpoint.state.done)
                    self._take_back(checkpoint)
                    checkpoint = None
                else:
                    self._save(active, 1, 0)
                while epoch <= active.stage.epochs and not self._standing.done:
                    self._epoch(active, epoch, step)
                    epoch, step = epoch + 1, 0
            assert active is not None
            self._save(active, epoch, 0)
        active.memory.close()
        if self._events is not None:
            self._events.close()
        assert self._standing.best is not None
        return self._standing.best

    def _take_back(self, checkpoint: Checkpoint) -> None:
        """What the unfinished epoch of a checkpoint has gathered; for other processes it lies between two epochs."""
        ranks = self._setting.devices.ranks
        if checkpoint.world != ranks.world:
            self._totals = Totals()
            return
        saved = checkpoint.of_rank(ranks.rank)
        self._totals = Totals.from_state(sub_state(saved, "totals"))
        self._recorder.load_state_dict(sub_state(saved, "records"))

    def _recorder_of(self, active: ActiveStage) -> Recorder:
        setting, labels = self._setting, active.task.labels
        return Recorder(
            setting.run,
            active.number,
            setting.recipe.record,
            active.memory,
            labels.shape,
            active.sampler.shard,
            seed=setting.recipe.seed,
            rank=setting.devices.ranks.rank,
        )

    def _epoch(self, active: ActiveStage, epoch: int, done: int) -> None:
        if done == 0:
            self._totals = Totals()
            active.method.begin_epoch(epoch)
        begin = time.monotonic()
        batches = active.sampler.batches(epoch)
        parts = [active.parts(batch) for batch in batches[done:]]
        visits = sum(map(len, batches[done:]))
        active.memory.expect([part for batch in parts for part in batch])
        loaded = active.source.train([part for batch in parts for part in batch], epoch)
        steps = Steps(self._setting, active, epoch, self._totals, self._recorder)
        title = f"{active.stage.name} {epoch}/{active.stage.epochs}"
        with self._progress.bar(title, visits, "img") as bar:
            waiting, shown_at = 0, 0.0
            for step, (batch, split) in enumerate(zip(batches[done:], parts, strict=True), start=done):
                shares = [1.0] if len(split) == 1 else [len(part) / len(batch) for part in split]
                terms, visited = steps.take(step, shares, loaded)
                waiting += visited
                if (now := time.monotonic()) - shown_at > _SHOW_EVERY or step + 1 == len(batches):
                    self._show(bar, terms, waiting)
                    waiting, shown_at = 0, now
                if step + 1 < len(batches):
                    self._pause(active, epoch, step + 1, self._due(step))
        self._end_epoch(active, epoch, time.monotonic() - begin, visits)
        over = self._standing.done or epoch == active.stage.epochs
        self._pause(active, epoch + 1, 0, not over and self._due(len(batches) - 1, between_epochs=True))

    def _show(self, bar: Bar, terms: dict[str, float], visited: int) -> None:
        best = self._standing.best
        losses = " ".join(f"{name} {value:.4f}" for name, value in terms.items())
        shown = f"  best mAP {100 * best['score']:.2f}" if best is not None and self._setting.chosen_by_map else ""
        bar.note(losses + shown)
        bar.advance(visited)

    def _end_epoch(self, active: ActiveStage, epoch: int, seconds: float, visits: int) -> None:
        setting, stage, standing = self._setting, active.stage, self._standing
        setting.devices.share_buffers(active.module)
        self._recorder.end_epoch(epoch, setting.devices.ranks.world)
        losses = self._totals.means(setting.devices.ranks)
        decisions = add_up(setting.devices.gather_json(self._totals.decisions))
        gathered = self._validate(active)
        validation = None if gathered is None else mean_average_precision(gathered.scores, gathered.labels)
        score = validation if validation is not None and setting.chosen_by_map else float(epoch)
        better = standing.judge(active.number, epoch, score, stage.stopping)
        if better:
            active.keep_best(setting, gathered)
        ended = Epoch(
            stage=stage.name,
            number=epoch,
            of=stage.epochs,
            overall=setting.recipe.epochs_before(active.number) + epoch,
            lr=active.task.lr,
            losses=losses,
            decisions=decisions,
            val_map=None if validation is None else 100 * validation,
            best=better,
            seconds=seconds,
            images=visits,
        )
        if self._events is not None:
            write_down(setting.run, self._events, ended)
        show(self._progress, ended, ended=standing.done)

    def _validate(self, active: ActiveStage) -> Gathered | None:
        dataset = self._setting.dataset
        if not self._setting.validated:
            return None
        gathered = gather(active.task.predict("val"), self._setting.devices.ranks, len(dataset.classes))
        if self._setting.recipe.val_labels == "observed":
            gathered.labels[:] = observed_labels(dataset, "val")[gathered.index]
        return gathered

    def _due(self, step: int, *, between_epochs: bool = False) -> bool:
        """Whether to save after a step; between epochs a tenth of the time since the last save will do."""
        every, minutes = self._saving.every_steps, self._saving.every_minutes
        if every is not None and (step + 1) % every == 0:
            return True
        if minutes is None or not (between_epochs or self._may_ask(step)):
            return False
        limit = (6 if between_epochs else 60) * minutes
        overdue: bool = self._setting.devices.on_main(lambda: time.monotonic() - self._last_save > limit)
        return overdue

    def _pause(self, active: ActiveStage, epoch: int, step: int, due: bool) -> None:
        """Between two steps: save if it is time, and stop if somebody asked to."""
        stop = self._may_ask(step) and self._setting.devices.anybody(self._interruption.asked)
        if due or stop:
            self._save(active, epoch, step)
        if stop:
            folder = self._setting.run.folder
            self._progress.say(f"stopped and saved; continue with: tagfill train --resume {folder}")
            raise KeyboardInterrupt

    def _may_ask(self, step: int) -> bool:
        return self._setting.devices.ranks.world == 1 or step % _ASK_EVERY == 0

    def _save(self, active: ActiveStage, epoch: int, step: int) -> None:
        save_run_state(self._setting, active, self._totals, self._recorder, self._standing, epoch, step)
        self._last_save = time.monotonic()
