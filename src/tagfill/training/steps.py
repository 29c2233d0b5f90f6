"""One step of the optimiser: forward, loss, backward, memory and update over the parts of a batch.

On cached features a step takes a fraction of a millisecond, so what surrounds it has to be little. The seeds of all
steps are drawn together when the epoch begins, and the loss terms leave the device once, all at the same time.

Processes that train together stop together: before they share gradients, each tells the others whether it can go on.
Whoever left alone would keep the others waiting for its gradients.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

import numpy as np
import torch
from torch import Tensor

from tagfill.contract import Batch, Prediction
from tagfill.draws import words
from tagfill.errors import RunError
from tagfill.files import write_json
from tagfill.training.optimizers import set_rate
from tagfill.training.records import Recorder
from tagfill.training.setting import Setting
from tagfill.training.stage import ActiveStage
from tagfill.training.totals import Totals


class Steps:
    """The steps of one epoch.

    Args:
        setting: of the run.
        active: the stage.
        epoch: from 1.
        totals: where loss terms and decisions are added up.
        recorder: what is written down for analyses.
    """

    def __init__(self, setting: Setting, active: ActiveStage, epoch: int, totals: Totals, recorder: Recorder) -> None:
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
