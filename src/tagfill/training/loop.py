"""The training loop: epochs of steps, a validation at the end of each, and a checkpoint whenever one is due."""

from __future__ import annotations

import shutil
import time
from dataclasses import dataclass, field

import torch
from torch import Tensor

from tagfill.contract import Batch, Prediction, Ranks
from tagfill.draws import seed_of
from tagfill.errors import RunError
from tagfill.progress import Bar, Progress
from tagfill.training import checkpoints
from tagfill.training.checkpoints import Checkpoint, State
from tagfill.training.evaluation import Evaluation, gather, summarise
from tagfill.training.stage import ActiveStage, Setting, enter, memory_folder

_ASK_EVERY = 16  # steps between two questions to the main process whether the clock says to save


@dataclass
class Saving:
    """When to save besides the beginning of a stage and the end of the run."""

    every_steps: int | None = None
    every_minutes: float | None = 5.0


@dataclass
class Totals:
    """Sums of the loss terms of an epoch so far."""

    sums: dict[str, Tensor] = field(default_factory=dict)
    images: int = 0

    def add(self, terms: dict[str, Tensor], images: int) -> None:
        """One more step."""
        for name, value in terms.items():
            total = self.sums.setdefault(name, torch.zeros((), dtype=torch.float64))
            total += value.detach().double().cpu() * images
        self.images += images

    def means(self, ranks: Ranks) -> dict[str, float]:
        """The mean of each term over the images of all ranks."""
        count = float(ranks.sum(torch.tensor(float(self.images), dtype=torch.float64)))
        return {name: float(ranks.sum(self.sums[name])) / max(count, 1.0) for name in sorted(self.sums)}

    def state_dict(self) -> dict[str, Tensor]:
        """As tensors."""
        return {**{f"sum.{name}": value for name, value in self.sums.items()}, "images": torch.tensor(self.images)}

    @classmethod
    def from_state(cls, state: dict[str, Tensor]) -> Totals:
        """Back from `state_dict`."""
        sums = {name.removeprefix("sum."): value for name, value in state.items() if name.startswith("sum.")}
        return cls(sums, int(state["images"]))


class Trainer:
    """Runs all stages of a recipe, from the beginning or from a checkpoint."""

    def __init__(self, setting: Setting, saving: Saving, progress: Progress, checkpoint: Checkpoint | None) -> None:
        self._setting = setting
        self._saving = saving
        self._progress = progress
        self._checkpoint = checkpoint
        self._best: dict[str, float] | None = None
        self._totals = Totals()
        self._last_save = time.monotonic()

    def run(self) -> dict[str, float]:
        """Train to the end; gives stage, epoch and score of the best epoch of the last stage."""
        checkpoint, active = self._checkpoint, None
        first = checkpoint.state.stage if checkpoint else 0
        for number in range(first, len(self._setting.recipe.stages)):
            active = enter(self._setting, number, active, checkpoint)
            epoch, step = 1, 0
            if checkpoint is not None:
                epoch, step, self._best = checkpoint.state.epoch, checkpoint.state.step, checkpoint.state.best
                prefix = "totals."
                totals = {k.removeprefix(prefix): v for k, v in checkpoint.rank.items() if k.startswith(prefix)}
                self._totals = Totals.from_state(totals)
                checkpoint = None
            else:
                self._best = None
                self._save(active, 1, 0)
            while epoch <= active.stage.epochs:
                self._epoch(active, epoch, step)
                epoch, step = epoch + 1, 0
        assert active is not None
        self._save(active, active.stage.epochs + 1, 0)
        active.memory.close()
        assert self._best is not None
        return self._best

    def _epoch(self, active: ActiveStage, epoch: int, done: int) -> None:
        if done == 0:
            self._totals = Totals()
            active.method.begin_epoch(epoch)
        begin = time.monotonic()
        batches = active.sampler.batches(epoch)
        visits = sum(map(len, batches[done:]))
        title = f"{active.stage.name} {epoch}/{active.stage.epochs}"
        with self._progress.bar(title, visits, "img") as bar:
            for step, batch in enumerate(active.source.train(batches[done:], epoch), start=done):
                self._step(active, epoch, step, batch, bar)
                if step + 1 < len(batches) and self._due(step):
                    self._save(active, epoch, step + 1)
        self._end_epoch(active, epoch, time.monotonic() - begin, visits)
        if epoch < active.stage.epochs and self._due(len(batches) - 1):
            self._save(active, epoch + 1, 0)

    def _step(self, active: ActiveStage, epoch: int, step: int, batch: Batch, bar: Bar) -> None:
        setting = self._setting
        torch.manual_seed(
            seed_of(setting.recipe.seed, f"step {active.number}", epoch, step, setting.devices.ranks.rank)
        )
        placed = setting.devices.place(batch)
        active.memory.begin_step()
        active.wrapped.train()
        prediction: Prediction = active.wrapped(placed.inputs, maps=active.maps)
        terms = active.method.loss(placed, prediction)
        loss = torch.stack(list(terms.values())).sum()
        if not bool(torch.isfinite(loss)):
            bad = next(name for name, value in terms.items() if not bool(torch.isfinite(value)))
            raise RunError(
                f"The loss term '{bad}' is {float(terms[bad].detach())} in epoch {epoch}, step {step + 1}; "
                "lower the learning rate."
            )
        setting.devices.backward(loss)
        active.optimizer.step()
        active.optimizer.zero_grad()
        with torch.no_grad():
            active.method.observe(placed, _detached(prediction))
        self._totals.add(terms, len(placed.index))
        bar.advance(len(placed.index))
        bar.note(f"loss {float(loss.detach()):.4f}")

    def _end_epoch(self, active: ActiveStage, epoch: int, seconds: float, visits: int) -> None:
        setting = self._setting
        setting.devices.share_buffers(active.module)
        losses = self._totals.means(setting.devices.ranks)
        validation = self._validate(active)
        score = validation.mean if validation is not None else float(epoch)
        better = self._best is None or score > self._best["score"]
        if better:
            self._best = {"stage": active.number, "epoch": epoch, "score": score}
        if setting.devices.main:
            if better:
                active.full.save(setting.run.model_folder)
            line = {"stage": active.stage.name, "epoch": epoch, "loss": losses, "best": better}
            if validation is not None:
                line["val_mAP"] = 100 * validation.mean
            setting.run.append("metrics.jsonl", line)
            setting.run.append(
                "timings.jsonl", {"stage": active.stage.name, "epoch": epoch, "seconds": seconds, "images": visits}
            )
        shown = " ".join(f"{name} {value:.4f}" for name, value in losses.items())
        scored = "" if validation is None else f"  val mAP {100 * score:.2f}{' (best)' if better else ''}"
        self._progress.say(f"{active.stage.name} epoch {epoch}/{active.stage.epochs}  {shown}{scored}")

    def _validate(self, active: ActiveStage) -> Evaluation | None:
        dataset = self._setting.dataset
        if "val" not in dataset.splits:
            return None
        gathered = gather(active.task.predict("val"), self._setting.devices.ranks, len(dataset.classes))
        return summarise(gathered, "val", dataset.classes)

    def _due(self, step: int) -> bool:
        if self._saving.every_steps is not None and (step + 1) % self._saving.every_steps == 0:
            return True
        minutes = self._saving.every_minutes
        if minutes is None or (self._setting.devices.ranks.world > 1 and step % _ASK_EVERY):
            return False
        overdue: bool = self._setting.devices.on_main(lambda: time.monotonic() - self._last_save > 60 * minutes)
        return overdue

    def _save(self, active: ActiveStage, epoch: int, step: int) -> None:
        setting, devices = self._setting, self._setting.devices
        offset = sum(stage.epochs * active.sampler.steps + 1 for stage in setting.recipe.stages[: active.number])
        number = offset + (epoch - 1) * active.sampler.steps + step
        tensors, groups = checkpoints.optimizer_tensors(active.optimizer.optimizer)
        state = State(
            number=number,
            stage=active.number,
            epoch=epoch,
            step=step,
            best=self._best,
            metrics_bytes=setting.run.metrics_path.stat().st_size if devices.main else 0,
            memory_stage=active.memory_stage,
            disk=devices.gather_json(active.memory.mark(number)),
            groups=groups,
        )
        rank = {
            **{f"memory.{name}": value for name, value in active.memory.state_dict().items()},
            **{f"method.{name}": value for name, value in active.method.state_dict().items()},
            **{f"totals.{name}": value for name, value in self._totals.state_dict().items()},
        }
        model = active.module.state_dict()
        checkpoints.save_checkpoint(setting.run.checkpoints, devices, state, model, tensors, rank)
        oldest = devices.on_main(lambda: checkpoints.prune(setting.run.checkpoints))
        active.memory.forget(before=oldest["number"])
        if devices.main:
            for stage in range(oldest["memory_stage"]):
                shutil.rmtree(memory_folder(setting.run, stage), ignore_errors=True)
        self._last_save = time.monotonic()


def _detached(prediction: Prediction) -> Prediction:
    maps, features = prediction.maps, prediction.features
    return Prediction(
        prediction.logits.detach(),
        None if maps is None else maps.detach(),
        None if features is None else features.detach(),
    )
