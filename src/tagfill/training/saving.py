"""What goes into a checkpoint of a run, and when one is due."""

from __future__ import annotations

import errno
import shutil
from dataclasses import dataclass
from typing import Any

import torch

from tagfill.errors import RunError
from tagfill.training import checkpoints, optimizers
from tagfill.training.checkpoints import State
from tagfill.training.records import Recorder
from tagfill.training.setting import Setting
from tagfill.training.stage import ActiveStage
from tagfill.training.standing import Standing
from tagfill.training.totals import Totals

_NO_ROOM = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


@dataclass
class Saving:
    """When to save besides the beginning of a stage and the end of the run."""

    every_steps: int | None = None
    every_minutes: float | None = 5.0


def save(
    setting: Setting,
    active: ActiveStage,
    totals: Totals,
    recorder: Recorder,
    standing: Standing,
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
