"""The training loop: epochs of steps, a validation at the end of each, and a checkpoint whenever one is due."""

from __future__ import annotations

import time

from tagfill.memory import below
from tagfill.metrics import Gathered, mean_average_precision
from tagfill.progress import Bar, Progress
from tagfill.training import reporting, saving
from tagfill.training.checkpoints import Checkpoint
from tagfill.training.evaluation import gather
from tagfill.training.interruption import Interruption
from tagfill.training.records import Recorder
from tagfill.training.saving import Saving
from tagfill.training.setting import Setting
from tagfill.training.stage import ActiveStage, enter
from tagfill.training.standing import Standing
from tagfill.training.steps import Steps
from tagfill.training.tensorboard import Events
from tagfill.training.totals import Totals, add_up
from tagfill.training.validating import observed_labels

_ASK_EVERY = 16  # steps between two questions to the other processes whether it is time to save or to stop
_SHOW_EVERY = 0.1  # seconds between two looks at the bar, which takes longer to draw than a step on cached features


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
                active.task.say = self._progress.say
                if sizes := active.memory.sizes():
                    shown = ", ".join(f"{name} {size / 1e6:,.1f} MB" for name, size in sizes.items())
                    self._progress.say(f"{active.stage.name} keeps per-image state: {shown}")
                epoch, step = 1, 0
                self._standing, self._recorder = Standing(), self._recorder_of(active)
                if checkpoint is not None:
                    epoch, step = checkpoint.state.epoch, checkpoint.state.step
                    self._standing = Standing(checkpoint.state.best, checkpoint.state.stale, checkpoint.state.done)
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
        self._totals = Totals.from_state(below(saved, "totals"))
        self._recorder.load_state_dict(below(saved, "records"))

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
        ended = reporting.Epoch(
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
            reporting.write_down(setting.run, self._events, ended)
        reporting.show(self._progress, ended, ended=standing.done)

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
        saving.save(self._setting, active, self._totals, self._recorder, self._standing, epoch, step)
        self._last_save = time.monotonic()
