"""The training loop: epochs of steps, a validation at the end of each, and a checkpoint whenever one is due."""

from __future__ import annotations

import time
from dataclasses import dataclass

import torch

from tagfill.contract import Batch, Prediction
from tagfill.draws import seed_of
from tagfill.errors import RunError
from tagfill.files import write_json
from tagfill.progress import Bar, Progress
from tagfill.training import saving
from tagfill.training.checkpoints import Checkpoint, below
from tagfill.training.evaluation import Evaluation, gather, summarise
from tagfill.training.interruption import Interruption
from tagfill.training.optimizers import set_rate
from tagfill.training.saving import Saving
from tagfill.training.stage import ActiveStage, Setting, enter
from tagfill.training.tensorboard import Events
from tagfill.training.totals import Totals
from tagfill.training.validating import observed_labels

_ASK_EVERY = 16  # steps between two questions to the other processes whether it is time to save or to stop


@dataclass
class Standing:
    """How far a stage has come.

    Attributes:
        best: epoch and score of the best one so far.
        stale: epochs since then.
        done: whether the stage has ended early.
    """

    best: dict[str, float] | None = None
    stale: int = 0
    done: bool = False


class Trainer:
    """Runs all stages of a recipe, from the beginning or from a checkpoint."""

    def __init__(self, setting: Setting, due: Saving, progress: Progress, checkpoint: Checkpoint | None) -> None:
        self._setting = setting
        self._saving = due
        self._progress = progress
        self._checkpoint = checkpoint
        self._standing = Standing()
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
                if sizes := active.memory.sizes():
                    shown = ", ".join(f"{name} {size / 1e6:,.1f} MB" for name, size in sizes.items())
                    self._progress.say(f"{active.stage.name} keeps per-image state: {shown}")
                epoch, step = 1, 0
                self._standing = Standing()
                if checkpoint is not None:
                    epoch, step = checkpoint.state.epoch, checkpoint.state.step
                    self._standing = Standing(checkpoint.state.best, checkpoint.state.stale, checkpoint.state.done)
                    self._totals = self._saved_totals(checkpoint)
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

    def _saved_totals(self, checkpoint: Checkpoint) -> Totals:
        ranks = self._setting.devices.ranks
        if checkpoint.world != ranks.world:
            return Totals()  # it lies between two epochs
        return Totals.from_state(below(checkpoint.of_rank(ranks.rank), "totals"))

    def _epoch(self, active: ActiveStage, epoch: int, done: int) -> None:
        if done == 0:
            self._totals = Totals()
            active.method.begin_epoch(epoch)
        begin = time.monotonic()
        batches = active.sampler.batches(epoch)
        parts = [active.parts(batch) for batch in batches[done:]]
        visits = sum(map(len, batches[done:]))
        loaded = active.source.train([part for batch in parts for part in batch], epoch)
        title = f"{active.stage.name} {epoch}/{active.stage.epochs}"
        with self._progress.bar(title, visits, "img") as bar:
            for step, batch in enumerate(parts, start=done):
                shares = [len(part) / sum(map(len, batch)) for part in batch]
                self._step(active, epoch, step, [(share, next(loaded)) for share in shares], bar)
                if step + 1 < len(batches):
                    self._pause(active, epoch, step + 1, self._due(step))
        self._end_epoch(active, epoch, time.monotonic() - begin, visits)
        over = self._standing.done or epoch == active.stage.epochs
        self._pause(active, epoch + 1, 0, not over and self._due(len(batches) - 1, between_epochs=True))

    def _step(self, active: ActiveStage, epoch: int, step: int, parts: list[tuple[float, Batch]], bar: Bar) -> None:
        """One step of the optimiser, over the parts of a batch and the share of the batch that each is."""
        devices, stage, seed = self._setting.devices, active.stage, self._setting.recipe.seed
        factor = stage.schedule.at((epoch - 1) * active.sampler.steps + step, active.sampler.steps, stage.epochs)
        active.task.lr = stage.optimizer.lr * factor
        set_rate(active.optimizer.optimizer, active.task.lr)
        torch.manual_seed(seed_of(seed, f"step {active.number}", epoch, step, devices.ranks.rank))
        active.wrapped.train()
        shown: dict[str, float] = {}
        for number, (share, batch) in enumerate(parts, start=1):
            if not len(batch.index):
                self._skip(active, epoch, step)
                continue
            placed = devices.place(batch)
            active.memory.begin_step()
            with devices.sharing(active.wrapped, number == len(parts)):
                prediction: Prediction = active.wrapped(placed.inputs, maps=active.maps)
                terms = active.method.loss(placed, prediction)
                loss = torch.stack(list(terms.values())).sum()
                if not bool(torch.isfinite(loss)):
                    self._refuse(active, epoch, step, placed, {k: float(v.detach()) for k, v in terms.items()})
                devices.backward(share * loss)
            with torch.no_grad():
                active.method.observe(placed, prediction.detach())
            self._totals.add(terms, len(placed.index))
            bar.advance(len(placed.index))
            for name, value in terms.items():
                shown[name] = shown.get(name, 0.0) + share * float(value.detach())
        if stage.clip_norm is not None:
            devices.clip(active.wrapped, active.optimizer, stage.clip_norm)
        active.optimizer.step()
        active.optimizer.zero_grad()
        if active.average is not None:
            active.average.update(active.module)
        best = self._standing.best
        losses = " ".join(f"{name} {value:.4f}" for name, value in shown.items())
        bar.note(losses if best is None else f"{losses}  best mAP {100 * best['score']:.2f}")

    def _end_epoch(self, active: ActiveStage, epoch: int, seconds: float, visits: int) -> None:
        setting, standing = self._setting, self._standing
        setting.devices.share_buffers(active.module)
        losses = self._totals.means(setting.devices.ranks)
        validation = self._validate(active)
        score = validation.mean if validation is not None and setting.recipe.select == "mAP" else float(epoch)
        better = standing.best is None or score > standing.best["score"]
        if better:
            standing.best = {"stage": active.number, "epoch": epoch, "score": score}
            active.keep_best(setting)
        standing.stale = 0 if better else standing.stale + 1
        standing.done = self._stops(active, score)
        if setting.devices.main:
            line = {"stage": active.stage.name, "epoch": epoch, "lr": active.task.lr, "loss": losses, "best": better}
            if validation is not None:
                line["val_mAP"] = 100 * validation.mean
            setting.run.append("metrics.jsonl", line)
            took = {"stage": active.stage.name, "epoch": epoch, "seconds": seconds, "images": visits}
            setting.run.append("timings.jsonl", took)
            assert self._events is not None
            scalars = {"lr": active.task.lr, **{f"loss/{name}": value for name, value in losses.items()}}
            if validation is not None:
                scalars["val/mAP"] = 100 * validation.mean
            self._events.write(sum(s.epochs for s in setting.recipe.stages[: active.number]) + epoch, scalars)
        shown = " ".join(f"{name} {value:.4f}" for name, value in losses.items())
        scored = "" if validation is None else f"  val mAP {100 * validation.mean:.2f}{' (best)' if better else ''}"
        self._progress.say(f"{active.stage.name} epoch {epoch}/{active.stage.epochs}  {shown}{scored}")
        if standing.done and epoch < active.stage.epochs:
            self._progress.say(f"{active.stage.name} stops after epoch {epoch}: no better one is expected")

    def _stops(self, active: ActiveStage, score: float) -> bool:
        stopping, best = active.stage.stopping, self._standing.best
        assert best is not None
        if stopping.patience is not None and self._standing.stale >= stopping.patience:
            return True
        return stopping.drop is not None and 100 * (best["score"] - score) > stopping.drop

    def _validate(self, active: ActiveStage) -> Evaluation | None:
        dataset = self._setting.dataset
        if "val" not in dataset.splits:
            return None
        gathered = gather(active.task.predict("val"), self._setting.devices.ranks, len(dataset.classes))
        if self._setting.recipe.val_labels == "observed":
            gathered.labels[:] = observed_labels(dataset, "val")[gathered.index]
        return summarise(gathered, "val", dataset.classes)

    def _skip(self, active: ActiveStage, epoch: int, step: int) -> None:
        """No image of a batch could be decoded; processes that wait for each other's gradients cannot pass over it."""
        if self._setting.devices.ranks.world > 1:
            raise RunError(
                f"None of the images of step {step + 1} of epoch {epoch} can be decoded; find them with "
                "'tagfill inspect --decode'."
            )

    def _refuse(self, active: ActiveStage, epoch: int, step: int, batch: Batch, terms: dict[str, float]) -> None:
        """Stop on a loss that is not a number, and keep what it was made from."""
        setting = self._setting
        rows = setting.dataset.split("train")[batch.index.numpy()]
        path = setting.run.folder / f"not-finite-rank{setting.devices.ranks.rank}.json"
        images = setting.dataset.names(rows)
        write_json(path, {"stage": active.stage.name, "epoch": epoch, "step": step, "terms": terms, "images": images})
        bad = next(name for name, value in terms.items() if not torch.isfinite(torch.tensor(value)))
        raise RunError(
            f"The loss term '{bad}' is {terms[bad]} in epoch {epoch}, step {step + 1}; {path} lists the images of the "
            "batch. Lower the learning rate, or look at those images."
        )

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
        stop = False
        if self._may_ask(step):
            asked = torch.tensor(int(self._interruption.asked))
            stop = bool(self._setting.devices.ranks.sum(asked))
        if due or stop:
            self._save(active, epoch, step)
        if stop:
            folder = self._setting.run.folder
            self._progress.say(f"stopped and saved; continue with: tagfill train --resume {folder}")
            raise KeyboardInterrupt

    def _may_ask(self, step: int) -> bool:
        return self._setting.devices.ranks.world == 1 or step % _ASK_EVERY == 0

    def _save(self, active: ActiveStage, epoch: int, step: int) -> None:
        standing = self._standing
        saving.save(self._setting, active, self._totals, epoch, step, standing.best, standing.stale, standing.done)
        self._last_save = time.monotonic()
