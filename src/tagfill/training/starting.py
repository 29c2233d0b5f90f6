"""Starting a run, or resuming one."""

from __future__ import annotations

import os
import platform
import shutil
import sys
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch

from tagfill.annotations import Dataset
from tagfill.errors import RunError
from tagfill.files import recover_folder
from tagfill.loading import FeatureCache
from tagfill.models.heap import keep_freed_memory
from tagfill.progress import SILENT, Progress
from tagfill.training import checkpoints, resharding
from tagfill.training.bad_images import BadImages
from tagfill.training.devices import Devices
from tagfill.training.folder import Lock, Run, default_name
from tagfill.training.log import Logged
from tagfill.training.loop import Trainer
from tagfill.training.recipe import Recipe, make_recipe
from tagfill.training.saving import Saving
from tagfill.training.stage import Setting

_VERSIONS = ("tagfill", "torch", "timm", "numpy")


def train(
    dataset: Dataset | str | Path,
    *,
    method: str = "an",
    backbone: str = "tf_efficientnet_lite0",
    head: str = "cam",
    features: FeatureCache | str | Path | None = None,
    epochs: int = 10,
    lr: float = 1e-3,
    out: str | Path | None = None,
    progress: Progress = SILENT,
    **settings: Any,
) -> Run:
    """Train a classifier from partly labelled images.

    Args:
        dataset: the data, or its folder; one that was never saved is saved inside the run folder.
        method: how to learn from labels with gaps; several that add up are joined by `+`.
        backbone: timm's name of the backbone.
        head: what turns features into logits.
        features: a feature cache to train on instead of images.
        epochs: of the only stage, unless `stages` is given.
        lr: learning rate of the only stage, unless `stages` is given.
        out: the run folder; by default a name below `runs/` that tells what the run is.
        progress: told about epochs and steps.
        **settings: any other field of a recipe (`seed`, `batch_size`, `options`, `stages`, …).

    Returns:
        The finished run.

    Example:
        >>> run = tagfill.train(part, method="en+scl", features=cache, epochs=10)  # doctest: +SKIP
    """
    data = dataset if isinstance(dataset, Dataset) else Dataset.open(dataset)
    if isinstance(features, FeatureCache):
        features = features.folder
    if "stages" not in settings:
        given = "images" if features is None else "cache"
        settings["stages"] = [{"name": "main", "input": given, "epochs": epochs, "optimizer": {"lr": lr}}]
    recipe = make_recipe(
        {
            "dataset": str(data.folder.absolute() if data.folder else "dataset"),
            "method": method,
            "backbone": backbone,
            "head": head,
            "features": None if features is None else str(Path(features).absolute()),
            **settings,
        },
        "the settings",
    )
    return start(data, recipe, out=out, progress=progress)


def start(
    dataset: Dataset,
    recipe: Recipe,
    *,
    out: str | Path | None = None,
    processes: int = 1,
    device: str = "cpu",
    workers: int = 0,
    saving: Saving | None = None,
    force: bool = False,
    progress: Progress = SILENT,
) -> Run:
    """Begin a run with a complete recipe in a new folder, and train it to the end.

    Args:
        dataset: the data that the recipe names.
        recipe: all settings that decide the result.
        out: the run folder.
        processes: that train together on this machine.
        device: to train on.
        workers: processes that decode images.
        saving: when to save.
        force: begin anew in a folder that is not empty.
        progress: told about epochs and steps.
    """
    if dataset.folder is not None:  # wherever the run is resumed from
        recipe = recipe.model_copy(update={"dataset": str(dataset.folder.absolute())})
    devices = Devices(processes, device, recipe.precision)
    run = Run(Path(out) if out is not None else Path("runs") / default_name(dataset, recipe))
    lock = Lock(run)
    devices.on_main(lambda: _prepare(run, lock, dataset, recipe, force))
    try:
        if dataset.folder is None:
            dataset = Dataset.open(run.folder / "dataset")
        return _fit(run, dataset, recipe, devices, None, workers, saving or Saving(), progress)
    finally:
        lock.release()


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
        return _fit(run, dataset, recipe, devices, checkpoint, workers, saving or Saving(), progress)
    finally:
        lock.release()


def _prepare(run: Run, lock: Lock, dataset: Dataset, recipe: Recipe, force: bool) -> None:
    """Lock the run folder and make it a run."""
    if run.folder.exists() and any(run.folder.iterdir()) and not force:
        hint = f"continue it with 'tagfill train --resume {run.folder}', " if run.description_path.exists() else ""
        raise RunError(f"{run.folder} is not empty; {hint}choose another --out, or give --force to begin anew in it.")
    lock.acquire()
    _clear(run)
    if dataset.folder is None:
        dataset.save(run.folder / "dataset")
    run.create(recipe, _description(dataset, recipe))


def _clear(run: Run) -> None:
    """Remove what an earlier run in this folder left."""
    for name in ("checkpoints", "memory", "best", "tensorboard"):
        shutil.rmtree(run.folder / name, ignore_errors=True)
    for pattern in ("run.json", "*.jsonl", "log.txt", "bad-images.txt", "not-finite-*.json"):
        for path in run.folder.glob(pattern):
            path.unlink()


def _check(run: Run, lock: Lock, dataset: Dataset, recipe: Recipe) -> None:
    """Lock the run folder, unless something that the run depends on has changed."""
    was, now = run.description(), _description(dataset, recipe)
    if was["recipe_hash"] != now["recipe_hash"]:
        raise RunError(f"{run.folder / 'recipe.yaml'} was changed since the run began; undo that or start a new run.")
    for what, identity in was["identities"].items():
        if identity != now["identities"][what]:
            raise RunError(
                f"The {what} of dataset {dataset.folder} changed since the run {run.folder} began; start a new run."
            )
    lock.acquire()


def _description(dataset: Dataset, recipe: Recipe) -> dict[str, Any]:
    return {
        "dataset": dataset.name,
        "identities": dataset.identities,
        "recipe_hash": recipe.hash(),
        "versions": {"python": platform.python_version(), **{name: version(name) for name in _VERSIONS}},
        "command": sys.argv,
    }


def _fit(
    run: Run,
    dataset: Dataset,
    recipe: Recipe,
    devices: Devices,
    checkpoint: checkpoints.Checkpoint | None,
    workers: int,
    saving: Saving,
    progress: Progress,
) -> Run:
    if devices.main:
        progress = Logged(progress, run.folder / "log.txt")
    expected, origin = _expected_positives(dataset, recipe)
    if origin is not None:
        progress.say(f"expected positives an image: {expected:.3f}, {origin}")
    bad_images = BadImages(run.folder / "bad-images.txt", int(recipe.max_bad_images * len(dataset)), progress)
    setting = Setting(run, recipe, dataset, devices, workers, expected, bad_images)
    threads = torch.get_num_threads()
    torch.set_num_threads(recipe.threads)
    if any(stage.input == "images" for stage in recipe.stages):
        keep_freed_memory()  # heads on cached features take and free little
    try:
        with torch.random.fork_rng():
            best = Trainer(setting, saving, progress, checkpoint).run()
    finally:
        torch.set_num_threads(threads)
    stage = recipe.stages[int(best["stage"])].name
    result: dict[str, Any] = {"stage": stage, "epoch": int(best["epoch"]), "expected_positives": expected}
    if origin is not None:
        result["expected_positives_from"] = origin
    if "val" in dataset.splits and recipe.select == "mAP":
        result |= {"val_mAP": 100 * best["score"], "chosen_by": f"mAP on val, {recipe.val_labels} labels"}
    else:
        result |= {"chosen_by": "being the last epoch"}
    if devices.main:
        run.finish(result)
    devices.barrier()
    return run


def _expected_positives(dataset: Dataset, recipe: Recipe) -> tuple[float | None, str | None]:
    """κ as given, or as counted on a completely labelled validation split; and where it comes from."""
    if recipe.expected_positives is not None:
        return recipe.expected_positives, None
    if "val" in dataset.splits:
        labels = dataset.labels("val")
        if labels.complete():
            return float(labels.positives_per_image().mean()), "counted on the validation split"
    return None, None
