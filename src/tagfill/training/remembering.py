"""The memory of a stage: new, from a checkpoint, from other processes, or from the best epoch of the stage before."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tagfill.loading import Sampler
from tagfill.memory import Memory, below
from tagfill.training import keepsake, resharding
from tagfill.training.checkpoints import Checkpoint
from tagfill.training.folder import memory_folder
from tagfill.training.setting import Setting


def open_memory(
    setting: Setting, sampler: Sampler, stage: int, checkpoint: Checkpoint | None, best: bool
) -> tuple[Memory, str]:
    """The memory of a stage, and the name of its folder."""
    ranks, name = setting.devices.ranks, str(stage)
    options: dict[str, Any] = {}
    if checkpoint is not None and checkpoint.world == ranks.world:
        name = checkpoint.state.memory
        options["saved"] = below(checkpoint.of_rank(ranks.rank), "memory")
        options["disk"] = (checkpoint.state.number, checkpoint.state.disk[ranks.rank])
    elif checkpoint is not None:
        name = f"{stage}-{ranks.world}-from-{checkpoint.state.number}"
        options["parts"] = resharding.parts(setting.run, sampler, checkpoint)
    on_disk = setting.recipe.memory.storage == "disk"
    folder = memory_folder(setting.run, name, ranks.rank) if on_disk else None
    if checkpoint is None and best:
        options["saved"], options["disk"] = keepsake.take(keepsake_folder(setting), folder)
        options["warm"] = True
    memory = Memory(
        setting.dataset.labels("train"),
        sampler.shard,
        seed=setting.recipe.seed,
        folder=folder,
        budget=int(setting.recipe.memory.budget_gb * 1e9),
        **options,
    )
    return memory, name


def keepsake_folder(setting: Setting) -> Path:
    """Where the memory of the best epoch is kept."""
    return setting.run.folder / "memory" / "best" / f"rank{setting.devices.ranks.rank}"
