"""The training loop, from top to bottom: run, epoch, step, forward and backward, observe, validate, save.

On cached features a step takes a fraction of a millisecond, so little may surround it: seeds and learning rates of all
steps are computed when the epoch starts, and the losses of many steps leave the device together (`loss_log.py`).
"""

from __future__ import annotations

import errno
import os
import shutil
import signal
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import FrameType
from typing import Any

import numpy as np
import torch
from torch import Tensor

from tagfill.contract import Batch, Decisions, Prediction
from tagfill.errors import RunError
from tagfill.io import write_json
from tagfill.memory import sub_state
from tagfill.metrics import GatheredPredictions, mean_average_precision, roc_auc
from tagfill.models import Classifier
from tagfill.progress import Bar
from tagfill.rng import random_bits
from tagfill.training import checkpoints
from tagfill.training.checkpoints import Checkpoint, State
from tagfill.training.evaluation import choose_decisions, gather_predictions, read_validation_labels
from tagfill.training.loss_log import READ_EVERY, PendingLoss, ReadLoss, Totals, merge_counts, read_losses
from tagfill.training.optimizers import average_state, optimizer_state
from tagfill.training.recipe import Stopping
from tagfill.training.records import Recorder
from tagfill.training.run_folder import Events
from tagfill.training.splits import BatchTooLargeError, Splits, out_of_memory
from tagfill.training.stage import ActiveStage, RunContext, best_memory_folder, enter_stage, save_best_memory

_SYNC_EVERY = 16  # steps between two collective decisions of several processes whether to save or to stop
_SHOW_EVERY = 0.1  # seconds between two updates of the bar; drawing it takes longer than a step on cached features
_WHOLE = (1.0,)  # the share of a micro-batch that is the whole batch
_DISK_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


@dataclass
class Saving:
    """When to save a checkpoint, in addition to the start of each stage and the end of the run.

    Attributes:
        every_steps: save whenever this many steps of an epoch are done.
        every_minutes: save after this time; at the end of an epoch, after a tenth of it.
    """

    every_steps: int | None = None
    every_minutes: float | None = 5.0


class Trainer:
    """Trains all stages of a recipe, from the beginning or from a checkpoint.

    Args:
        context: the run.
        saving: when to save.
        checkpoint: where to continue; None starts from the beginning.
    """

    def __init__(self, context: RunContext, saving: Saving, checkpoint: Checkpoint | None) -> None:
        self._context, self._saving, self._checkpoint = context, saving, checkpoint
        self._active: ActiveStage
        self._best = BestEpoch()
        self._totals = Totals()
        self._pending: list[PendingLoss] = []
        self._shown: dict[str, float] = {}  # loss terms of the last step that was read
        self._shown_step = -1
        self._alone = context.devices.ranks.world == 1
        self._splits = Splits(context.run.splits_path)
        self._recorder: Recorder | None = None
        self._last_save = time.monotonic()
        self._interrupt = Interrupt()
        self._events = Events(context.run.folder / "tensorboard") if context.devices.main else None

    def run(self) -> dict[str, float]:
        """Train to the end.

        Returns:
            Stage, epoch and score of the best epoch of the last stage.
        """
        active: ActiveStage | None = None
        first = self._checkpoint.state.stage if self._checkpoint else 0
        with self._interrupt:
            for number in range(first, len(self._context.recipe.stages)):
                epoch, step = self._enter(number, active)
                active = self._active
                while epoch <= active.stage.epochs and not self._best.done:
                    self._epoch(epoch, step)
                    epoch, step = epoch + 1, 0
            return self._close(epoch)

    def _enter(self, number: int, previous: ActiveStage | None) -> tuple[int, int]:
        """Set up a stage, the first one from the checkpoint if there is one; returns its next epoch and step."""
        checkpoint, self._checkpoint = self._checkpoint, None
        self._active = active = enter_stage(self._context, number, previous, checkpoint)
        if sizes := active.memory.sizes():
            shown = ", ".join(f"{name} {size / 1e6:,.1f} MB" for name, size in sizes.items())
            self._context.progress.say(f"{active.stage.name} keeps per-image state: {shown}")
        if record := self._context.recipe.record:
            self._recorder = Recorder(self._context.run, number, record, active.task)
        if checkpoint is not None:
            return self._restore(checkpoint)
        self._best = BestEpoch()
        self._save(1, 0)
        return 1, 0

    def _close(self, epoch: int) -> dict[str, float]:
        """Save after the last epoch; returns the best one."""
        self._save(epoch, 0)
        self.release()
        assert self._best.best is not None
        return self._best.best

    def release(self) -> None:
        """Close the files of memory and events."""
        self._active.memory.close()
        if self._events is not None:
            self._events.close()

    def _restore(self, checkpoint: Checkpoint) -> tuple[int, int]:
        """Continue within the epoch of a checkpoint; returns that epoch and its first step.

        Only a checkpoint between two epochs can be opened by another number of processes, and there is no unfinished
        epoch then.
        """
        state, ranks = checkpoint.state, self._context.devices.ranks
        self._best = BestEpoch(state.best, state.stale, state.done)
        if checkpoint.world == ranks.world:
            saved = checkpoint.of_rank(ranks.rank)
            self._totals = Totals.from_state(sub_state(saved, "totals"))
            if self._recorder is not None:
                self._recorder.load_state_dict(sub_state(saved, "records"))
        return state.epoch, state.step

    def _epoch(self, epoch: int, first_step: int) -> None:
        """Train one epoch, or what is left of it, then validate and save."""
        active, recipe = self._active, self._context.recipe
        sampler, stage = active.sampler, active.stage
        if first_step == 0:
            self._totals = Totals()
            active.method.begin_epoch(epoch)
        begin = time.monotonic()
        batches = sampler.batches(epoch)
        counts = self._splits.accumulate(active.number, epoch, len(batches), stage.accumulate)
        micro_batches = [
            [batch] if count == 1 else np.array_split(batch, min(count, len(batch)))
            for batch, count in zip(batches[first_step:], counts[first_step:], strict=True)
        ]
        images = sum(map(len, batches[first_step:]))
        coming = [micro_batch for batch in micro_batches for micro_batch in batch]
        active.memory.expect(coming)
        loaded = active.source.train(coming, epoch)
        drawn = random_bits(
            recipe.seed, f"step {active.number}", epoch, np.arange(len(batches)), self._context.devices.ranks.rank
        )
        seeds: list[int] = (drawn >> np.uint64(1)).tolist()
        rates = self._rates(epoch, len(batches))
        active.wrapped.train()
        with self._context.progress.bar(f"{stage.name} {epoch}/{stage.epochs}", images, "img") as bar:
            not_shown, shown_at, last = 0, 0.0, len(batches) - 1
            for step, split in enumerate(micro_batches, start=first_step):
                self._context.devices.seed(seeds[step])  # dropout and the like are drawn per step
                self._set_learning_rate(rates[step])
                size = len(batches[step])
                shares = _WHOLE if len(split) == 1 else [len(micro_batch) / size for micro_batch in split]
                try:
                    not_shown += self._step(epoch, step, shares, loaded)
                except Exception as error:
                    if out_of_memory(error):
                        raise self._too_large(epoch, step) from None
                    self._read_losses(epoch)  # a loss that was not finite may be the reason
                    raise
                show = (now := time.monotonic()) - shown_at > _SHOW_EVERY or step == last
                if show or step % READ_EVERY == READ_EVERY - 1:
                    self._read_losses(epoch)
                if show:
                    self._show_step(bar, not_shown)
                    not_shown, shown_at = 0, now
                if step < last:
                    self._pause(epoch, step + 1, save=self._is_due(step))
        self._end_epoch(epoch, time.monotonic() - begin, images)
        over = self._best.done or epoch == stage.epochs
        self._pause(epoch + 1, 0, save=not over and self._is_due(last, end_of_epoch=True))

    def _rates(self, epoch: int, steps: int) -> list[float]:
        """The learning rate of each step of an epoch."""
        stage, taken = self._active.stage, (epoch - 1) * steps
        return [stage.optimizer.lr * stage.schedule.at(taken + step, steps, stage.epochs) for step in range(steps)]

    def _set_learning_rate(self, lr: float) -> None:
        self._active.task.lr = lr
        for group in self._active.optimizer.param_groups:
            group["lr"] = lr * group["multiplier"]

    def _step(self, epoch: int, step: int, shares: Sequence[float], loaded: Iterator[Batch]) -> int:
        """Take one step of the optimizer.

        Args:
            epoch: from 1.
            step: within the epoch, from 0.
            shares: of the batch, one for each micro-batch.
            loaded: the micro-batches, followed by those of the next steps.

        Returns:
            How many of its images could be decoded.
        """
        active, clip_norm = self._active, self._active.stage.clip_norm
        visited: list[Tensor] = []
        for number, (share, micro_batch) in enumerate(zip(shares, loaded, strict=False), start=1):
            if not len(micro_batch.index):
                self._stop_together(self._empty_batch(epoch, step))
                continue
            self._forward_backward(epoch, step, micro_batch, share, last=number == len(shares))
            visited.append(micro_batch.index)
        if clip_norm is not None:
            norm = self._context.devices.clip(active.wrapped, active.stepper, clip_norm)
            if norm is not None:
                self._pending.append(PendingLoss(step, 0.0, torch.cat(visited), None, norm))
            if not self._alone:
                self._read_losses(epoch)
        active.stepper.step()
        for weight in active.weights:
            weight.grad = None
        if active.average is not None:
            active.average.update_parameters(active.module)
        return sum(map(len, visited))

    def _forward_backward(self, epoch: int, step: int, micro_batch: Batch, share: float, *, last: bool) -> None:
        """Add the gradients of a micro-batch, and let the method observe its predictions.

        Args:
            epoch: from 1.
            step: within the epoch, from 0.
            micro_batch: on the CPU.
            share: of the batch.
            last: whether it is the last one of the step, with which processes share their gradients.
        """
        active, devices = self._active, self._context.devices
        batch = devices.place(micro_batch)
        with devices.sharing(active.wrapped, last):
            try:
                prediction: Prediction = active.wrapped(batch.inputs, maps=active.maps)
                terms = active.method.loss(batch, prediction)
                loss, values = _sum_terms(terms)
            except RuntimeError as error:
                if not self._alone and out_of_memory(error):
                    self._stop_together(str(self._too_large(epoch, step)))
                raise
            self._pending.append(PendingLoss(step, share, batch.index, tuple(terms), values))
            if not self._alone:
                self._read_losses(epoch)
            devices.backward(loss if share == 1 else share * loss)
        decisions = self._observe(batch, prediction)
        if decisions is not None:
            self._totals.add_decisions(decisions)
        if self._recorder is not None:
            self._recorder.visit(batch, prediction, decisions)

    def _observe(self, batch: Batch, prediction: Prediction) -> Decisions | None:
        """Let the method update its memory; returns what it decided about labels."""
        active = self._active
        if active.has_memory:
            active.memory.begin_step()
        with torch.no_grad():
            active.method.observe(batch, _detach(prediction))
        return active.method.decisions()

    def _read_losses(self, epoch: int) -> None:
        """Read the losses of the last steps and add them to the sums; stop at the first that is not finite.

        Several processes read each loss before its backward pass, since all of them have to stop in the same step.
        """
        if not self._pending:
            return
        problem: str | None = None
        for loss in read_losses(self._pending):
            if loss.not_finite is not None:
                problem = self._not_finite(epoch, loss)
                break
            if loss.is_norm:
                continue
            self._totals.add(loss.terms, len(loss.images))
            if loss.step != self._shown_step:
                self._shown_step, self._shown = loss.step, {}
            for name, value in loss.terms.items():
                self._shown[name] = self._shown.get(name, 0.0) + loss.share * value
        self._stop_together(problem)

    def _end_epoch(self, epoch: int, seconds: float, images: int) -> None:
        """Validate, keep the model if it is the best one, and log the epoch.

        Args:
            epoch: from 1.
            seconds: that its steps took.
            images: that were visited.
        """
        context, active, best = self._context, self._active, self._best
        devices, stage = context.devices, active.stage
        devices.share_buffers(active.module)
        if self._recorder is not None:
            self._recorder.end_epoch(epoch)
        line: dict[str, Any] = {"stage": stage.name, "epoch": epoch, "lr": active.task.lr}
        line["loss"] = self._totals.means(devices.ranks)
        decisions = merge_counts(devices.gather_json(self._totals.decided()))
        validation = self._validate()
        score = float(epoch)
        if validation is not None:
            val_map = mean_average_precision(validation.scores, validation.labels)
            score = val_map if context.chosen_by_map else score
            if context.recipe.val_labels == "tags":
                area = float(np.nanmean(roc_auc(validation.scores, validation.labels)))
                line["val_AUC"] = 100 * area
                score = area if context.chosen_by_map else score
        line["best"] = best.update(active.number, epoch, score, stage.stopping)
        if line["best"]:
            self._keep_best(validation)
        if validation is not None:
            line["val_mAP"] = 100 * val_map
        if decisions is not None:
            line["decisions"] = decisions
        if devices.main:
            self._log_epoch(line, seconds, images)
        shown = _shown(line["loss"])
        if validation is not None:
            shown += f"  val mAP {line['val_mAP']:.2f}{' (best)' if line['best'] else ''}"
        context.progress.say(f"{stage.name} epoch {epoch}/{stage.epochs}  {shown}")
        if best.done and epoch < stage.epochs:
            context.progress.say(f"{stage.name} stops after epoch {epoch}: no better one is expected")

    def _validate(self) -> GatheredPredictions | None:
        """Predictions and labels of the validation split, if it can be scored."""
        context = self._context
        if not context.validated:
            return None
        gathered = gather_predictions(
            self._active.task.predict("val"), context.devices.ranks, len(context.dataset.classes)
        )
        read_validation_labels(gathered, context.dataset, context.recipe.val_labels)
        return gathered

    def _keep_best(self, validation: GatheredPredictions | None) -> None:
        """Save the model with thresholds and calibration, and its memory if the next stage starts from it."""
        context, active = self._context, self._active
        if context.devices.main:
            self._write_best(active.deployed(), validation)
        following = context.recipe.stages[active.number + 1 : active.number + 2]
        if following and following[0].start.memory == "best":
            save_best_memory(active.memory, best_memory_folder(context))

    def _write_best(self, model: Classifier, validation: GatheredPredictions | None) -> None:
        """Write the model of the best epoch, with thresholds and calibration from its validation."""
        model.thresholds = model.calibration = None
        if validation is not None:
            model.calibration, model.thresholds = choose_decisions(validation, self._context.recipe.val_labels)
        model.save(self._context.run.model_folder)

    def _log_epoch(self, line: dict[str, Any], seconds: float, images: int) -> None:
        """Append an epoch to `metrics.jsonl`, `timings.jsonl` and the events of TensorBoard."""
        run = self._context.run
        run.append("metrics.jsonl", line)
        run.append(
            "timings.jsonl", {"stage": line["stage"], "epoch": line["epoch"], "seconds": seconds, "images": images}
        )
        scalars = {"lr": line["lr"], **{f"loss/{term}": value for term, value in line["loss"].items()}}
        if "val_mAP" in line:
            scalars["val/mAP"] = line["val_mAP"]
        scalars |= {f"decisions/{kind}": count for kind, count in line.get("decisions", {}).items()}
        assert self._events is not None
        self._events.write(self._context.recipe.epochs_before(self._active.number) + line["epoch"], scalars)

    def _show_step(self, bar: Bar, images: int) -> None:
        best = self._best.best
        scored = best is not None and self._context.chosen_by_map
        name = "AUC" if self._context.recipe.val_labels == "tags" else "mAP"
        note = f"  best {name} {100 * best['score']:.2f}" if best is not None and scored else ""
        bar.note(_shown(self._shown) + note)
        bar.advance(images)

    def _is_due(self, step: int, *, end_of_epoch: bool = False) -> bool:
        """Whether to save after a step; at the end of an epoch, once 10% of `every_minutes` has passed."""
        every, minutes = self._saving.every_steps, self._saving.every_minutes
        if every is not None and (step + 1) % every == 0:
            return True
        if minutes is None or not (end_of_epoch or self._may_sync(step)):
            return False
        limit = (6 if end_of_epoch else 60) * minutes
        due: bool = self._context.devices.on_main(lambda: time.monotonic() - self._last_save > limit)
        return due

    def _pause(self, epoch: int, step: int, *, save: bool) -> None:
        """Between two steps: save if it is due, and stop if the user pressed Ctrl-C."""
        stop = self._may_sync(step) and self._context.devices.any_rank(self._interrupt.pressed)
        if save or stop:
            self._save(epoch, step)
        if stop:
            folder = self._context.run.folder
            self._context.progress.say(f"stopped and saved; continue with: tagfill train --resume {folder}")
            raise KeyboardInterrupt

    def _may_sync(self, step: int) -> bool:
        return self._context.devices.ranks.world == 1 or step % _SYNC_EVERY == 0

    def _save(self, epoch: int, step: int) -> None:
        """Write a checkpoint, and remove what only older ones needed; a full disk destroys nothing.

        Args:
            epoch: under way, from 1.
            step: how many of its steps are done.
        """
        self._read_losses(epoch)
        context, active, devices, folder = self._context, self._active, self._context.devices, self._context.run.folder
        stages, steps = context.recipe.stages, active.sampler.steps
        number = sum(stage.epochs * steps + 1 for stage in stages[: active.number]) + (epoch - 1) * steps + step
        moments, groups = optimizer_state(active.optimizer)
        state = State(
            number=number,
            stage=active.number,
            epoch=epoch,
            step=step,
            best=self._best.best,
            stale=self._best.stale,
            done=self._best.done,
            metrics_bytes=context.run.metrics_path.stat().st_size if devices.main else 0,
            memory=active.memory_name,
            disk=devices.gather_json(active.memory.mark(number)),
            groups=groups,
            precision=devices.state_dict(),
        )
        model = _prefixed("module", active.module.state_dict())
        if active.average is not None:
            model |= _prefixed("average", average_state(active.average))
        rank = {
            "shard.index": torch.from_numpy(active.sampler.shard),
            **_prefixed("memory", active.memory.state_dict()),
            **_prefixed("method", active.method.state_dict()),
            **_prefixed("totals", self._totals.state_dict()),
        }
        if self._recorder is not None:
            rank |= _prefixed("records", self._recorder.state_dict())
        try:
            checkpoints.save_checkpoint(context.run.checkpoints, devices, state, model, moments, rank)
        except OSError as error:
            if error.errno not in _DISK_FULL:
                raise
            saved = any(context.run.checkpoints.glob("[0-9]*"))
            how = f"continue with 'tagfill train --resume {folder}'" if saved else "start the run again"
            raise RunError(
                f"There is no room to save a checkpoint in {context.run.checkpoints}. Free some space and {how}."
            ) from None
        oldest = devices.on_main(lambda: checkpoints.prune(context.run.checkpoints))
        active.memory.forget(before=oldest["number"])
        if devices.main:
            for unused in (folder / "memory").glob("[0-9]*"):
                if unused.name not in oldest["memories"]:
                    shutil.rmtree(unused)
        self._last_save = time.monotonic()

    def _stop_together(self, problem: str | None) -> None:
        """Raise in all processes if any of them has a problem: a rank that exits alone deadlocks the all-reduce."""
        devices = self._context.devices
        if devices.any_rank(problem is not None):
            raise RunError(next(sentence for sentence in devices.gather_json(problem) if sentence is not None))

    def _empty_batch(self, epoch: int, step: int) -> str | None:
        """The problem of an empty micro-batch; one process continues, several would wait for its gradients."""
        if self._context.devices.ranks.world == 1:
            return None
        return (
            f"None of the images of step {step + 1} of epoch {epoch} can be decoded; find them with "
            "'tagfill inspect --decode'."
        )

    def _too_large(self, epoch: int, step: int) -> RunError:
        """The problem of a step that ran out of memory; keeps that batches are split further from this step on."""
        active, size = self._active, len(self._active.sampler.batches(epoch)[step])
        try:
            split = self._splits.split_further(active.number, epoch, step, size, active.stage.accumulate)
        except RunError as problem:
            return problem
        how = "" if self._alone else f" Continue with 'tagfill train --resume {self._context.run.folder}'."
        return BatchTooLargeError(
            f"Step {step + 1} of epoch {epoch} does not fit into memory; from there on, each batch is split into "
            f"{split} micro-batches.{how}"
        )

    def _not_finite(self, epoch: int, loss: ReadLoss) -> str:
        """The problem of a loss or of gradients that are not finite; writes the images of the batch to a file."""
        context, dataset = self._context, self._context.dataset
        path = context.run.folder / f"not-finite-rank{context.devices.ranks.rank}.json"
        content = {
            "stage": self._active.stage.name,
            "epoch": epoch,
            "step": loss.step,
            "terms": self._shown if loss.is_norm else loss.terms,
            "images": dataset.names(dataset.split("train")[loss.images.numpy(force=True)]),
        }
        write_json(path, content)
        bad = loss.not_finite or ""
        what = "The gradients are not finite" if loss.is_norm else f"The loss term '{bad}' is {loss.terms[bad]}"
        return (
            f"{what} in epoch {epoch}, step {loss.step + 1}; {path} lists the images of the batch. Lower the learning "
            "rate, or look at those images."
        )


def _sum_terms(terms: dict[str, Tensor]) -> tuple[Tensor, Tensor]:
    """The sum of the loss terms, and their values, both on the device."""
    if len(terms) == 1:
        (only,) = terms.values()
        return only, only.detach()
    stacked = torch.stack(list(terms.values()))
    return stacked.sum(), stacked.detach()


def _detach(prediction: Prediction) -> Prediction:
    rest = (prediction.maps, prediction.features, prediction.attention)
    return Prediction(prediction.logits.detach(), *(None if part is None else part.detach() for part in rest))


def _shown(terms: Mapping[str, float]) -> str:
    return " ".join(f"{name} {value:.4f}" for name, value in terms.items())


def _prefixed(name: str, state: Mapping[str, Tensor]) -> dict[str, Tensor]:
    return {f"{name}.{key}": value for key, value in state.items()}


@dataclass
class BestEpoch:
    """The best epoch of a stage so far, and whether a better one is still expected.

    Attributes:
        best: its stage, epoch and score.
        stale: epochs since then.
        done: whether the stage ends early.
    """

    best: dict[str, float] | None = None
    stale: int = 0
    done: bool = False

    def update(self, stage: int, epoch: int, score: float, stopping: Stopping) -> bool:
        """Add the score of another epoch; returns whether it is the best one.

        >>> best = BestEpoch()
        >>> [best.update(0, epoch, score, Stopping(patience=2)) for epoch, score in enumerate([0.5, 0.4, 0.3], 1)]
        [True, False, False]
        >>> best.done
        True
        """
        better = self.best is None or score > self.best["score"]
        if better:
            self.best = {"stage": stage, "epoch": epoch, "score": score}
        self.stale = 0 if better else self.stale + 1
        assert self.best is not None
        impatient = stopping.patience is not None and self.stale >= stopping.patience
        dropped = stopping.drop is not None and 100 * (self.best["score"] - score) > stopping.drop
        self.done = impatient or dropped
        return better


class Interrupt:
    """Ctrl-C or SIGTERM in its block: the first sets `pressed`, so that the run can save; the second stops at once."""

    def __init__(self) -> None:
        self.pressed = False
        self._process = os.getpid()
        self._before: dict[signal.Signals, Any] = {}

    def __enter__(self) -> Interrupt:
        if threading.current_thread() is threading.main_thread():
            self._before = {number: signal.signal(number, self._press) for number in (signal.SIGINT, signal.SIGTERM)}
        return self

    def __exit__(self, *error: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def _press(self, number: int, frame: FrameType | None) -> None:
        if number == signal.SIGTERM and os.getpid() != self._process:  # a forked worker, which has nothing to save
            signal.signal(number, signal.SIG_DFL)
            os.kill(os.getpid(), number)
        if self.pressed:
            raise KeyboardInterrupt
        self.pressed = True
