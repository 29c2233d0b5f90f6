"""Resuming a run from its newest checkpoint, unless something that it depends on has changed."""

from __future__ import annotations

import os
from pathlib import Path

from tagfill.annotations import Dataset
from tagfill.errors import RunError
from tagfill.files import recover_folder
from tagfill.loading import FeatureCache
from tagfill.progress import SILENT, Progress
from tagfill.training import checkpoints, resharding
from tagfill.training.devices import Devices
from tagfill.training.fitting import fit
from tagfill.training.folder import Lock, Run, describe
from tagfill.training.recipe import Recipe
from tagfill.training.saving import Saving


def resume(
    folder: str | Path,
    *,
    processes: int = 1,
    device: str = "cpu",
    workers: int = 0,
    reshard: bool = False,
    saving: Saving | None = None,
    progress: Progress = SILENT,
) -> Run:
    """Continue a run that was stopped; with as many processes, it ends with the same bytes as one that was not.

    Args:
        folder: of the run.
        processes: that train together on this machine.
        device: to train on.
        workers: processes that decode images.
        reshard: go on with another number of processes, from the newest checkpoint between two epochs.
        saving: when to save.
        progress: told about epochs and steps.
    """
    run = Run.open(folder)
    if run.finished:
        return run
    recipe = run.recipe
    devices = Devices(processes, device, recipe.precision)
    dataset = Dataset.open(run.folder / recipe.dataset)
    lock = Lock(run)
    devices.on_main(lambda: _check(run, lock, dataset, recipe))
    try:
        recover_folder(run.model_folder)
        checkpoint, warnings = checkpoints.open_newest(run.checkpoints)
        if checkpoint.world != devices.ranks.world:
            if not reshard:
                raise RunError(
                    f"The run {run.folder} was saved by {checkpoint.world} processes and there are "
                    f"{devices.ranks.world} now; give --reshard to go on from the end of an epoch, or use as many."
                )
            checkpoint, warnings = checkpoints.open_newest(run.checkpoints, between_epochs=True)
        for warning in warnings:
            progress.say(warning)
        devices.barrier()
        if devices.main:
            checkpoints.discard_after(run.checkpoints, checkpoint.state.number)
            os.truncate(run.metrics_path, checkpoint.state.metrics_bytes)
            if checkpoint.world != devices.ranks.world:
                resharding.roll_back(run, checkpoint)
        devices.barrier()
        return fit(run, dataset, recipe, devices, checkpoint, workers, saving or Saving(), progress)
    finally:
        lock.release()


def _check(run: Run, lock: Lock, dataset: Dataset, recipe: Recipe) -> None:
    """Lock the run folder, unless something that the run depends on has changed."""
    was, now = run.description(), describe(dataset, recipe)
    if was["recipe_hash"] != now["recipe_hash"]:
        raise RunError(f"{run.folder / 'recipe.yaml'} was changed since the run began; undo that or start a new run.")
    for what, identity in was["identities"].items():
        if identity != now["identities"][what]:
            raise RunError(
                f"The {what} of dataset {dataset.folder} changed since the run {run.folder} began; start a new run."
            )
    if run.views is not None:
        assert recipe.features is not None
        FeatureCache.open(recipe.features, dataset).only(run.views)
    lock.acquire()
