"""κ, the number of labels that an image is expected to have, for the methods that ask for it.

Training a run to its end, from the beginning or from a checkpoint, and writing down how it ended.

Starting a run in a folder of its own.

Resuming a run from its newest checkpoint, unless something that it depends on has changed.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

from tagfill import methods
from tagfill.data import FeatureCache
from tagfill.dataset import Dataset
from tagfill.errors import RunError, TagfillError, unknown_name
from tagfill.io import recover_folder
from tagfill.models import HEADS
from tagfill.models.allocator import keep_freed_memory
from tagfill.options import option_parameters
from tagfill.progress import SILENT, Progress
from tagfill.training import checkpoints
from tagfill.training.checkpoints import Checkpoint
from tagfill.training.devices import Devices
from tagfill.training.recipe import Recipe, make_recipe
from tagfill.training.run_folder import BadImages, Lock, Logged, Run, default_name, describe
from tagfill.training.stage import RunContext, views_of
from tagfill.training.trainer import Saving, Trainer


def resolve_expected_positives(dataset: Dataset, recipe: Recipe) -> tuple[float | None, str | None]:
    """κ as given, or as counted on a completely labelled validation split.

    Args:
        dataset: the data.
        recipe: names the methods; an option `expected` of a method goes before the run's own number.

    Returns:
        The number, and where it comes from; None where nobody knows it, and where no method of the run asks for it.
    """
    chosen = [recipe.method_of(stage) for stage in recipe.stages]
    own = [_own(options) for name, options in chosen if "expected_positives" in methods.create(name, options).needs]
    if not own:
        return None, None
    if None not in own:
        return _possible(own[0], dataset), "given as an option of the method"
    if recipe.expected_positives is not None:
        return _possible(recipe.expected_positives, dataset), "given as expected_positives"
    if "val" in dataset.splits:
        labels = dataset.labels("val")
        if labels.complete():
            return float(labels.positives_per_image().mean()), "counted on the validation split"
    return None, None


def _possible(expected: float | None, dataset: Dataset) -> float | None:
    """A number that was given, unless an image cannot have as many labels."""
    if expected is not None and expected > len(dataset.classes):
        raise TagfillError(
            f"{expected:g} present labels an image are expected, and there are {len(dataset.classes)} classes; give a "
            "smaller number."
        )
    return expected


def _own(options: Mapping[str, Mapping[str, Any]]) -> float | None:
    """What the method of a stage was given as its own option."""
    given = [float(part["expected"]) for part in options.values() if part.get("expected") is not None]
    return given[0] if given else None


def fit(
    run: Run,
    dataset: Dataset,
    recipe: Recipe,
    devices: Devices,
    checkpoint: Checkpoint | None,
    workers: int,
    saving: Saving,
    progress: Progress,
) -> Run:
    """Run all stages that are left.

    Args:
        run: its folder, locked.
        dataset: the data.
        recipe: all settings that decide the result.
        devices: the processes, launched.
        checkpoint: to go on from; None begins.
        workers: processes that decode images.
        saving: when to save.
        progress: told about epochs and steps.
    """
    if devices.main:
        progress = Logged(progress, run.folder / "log.txt")
    expected, origin = resolve_expected_positives(dataset, recipe)
    if origin is not None:
        progress.say(f"expected positives an image: {expected:.3f}, {origin}")
    bad_images = BadImages(run.folder / "bad-images.txt", int(recipe.max_bad_images * len(dataset)), progress)
    setting = RunContext(run, recipe, dataset, devices, workers, expected, bad_images)
    if "val" in dataset.splits and not setting.validated:
        progress.say(
            "Validation has no class that is known as present in one image and as absent in another, and so no mAP; "
            "the last epoch is kept."
        )
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
    result: dict[str, Any] = {"stage": stage, "epoch": int(best["epoch"])}
    if origin is not None:
        result |= {"expected_positives": expected, "expected_positives_from": origin}
    if setting.chosen_by_map:
        result |= {"val_mAP": 100 * best["score"], "chosen_by": f"mAP on val, {recipe.val_labels} labels"}
    else:
        result |= {"chosen_by": "being the last epoch"}
    if devices.main:
        run.finish(result)
    devices.barrier()
    return run


def train(
    dataset: Dataset | str | Path,
    *,
    method: str = "an",
    backbone: str = "tf_efficientnet_lite0",
    head: str = "cam",
    features: str | os.PathLike[str] | None = None,
    epochs: int = 10,
    lr: float = 1e-3,
    out: str | Path | None = None,
    force: bool = False,
    progress: Progress = SILENT,
    **settings: Any,
) -> Run:
    """Train a classifier from partly labelled images.

    Args:
        dataset: the data, or its folder; one that was never saved is saved inside the run folder.
        method: how to learn from labels with gaps; several that add up are joined by `+`.
        backbone: timm's name of the backbone, or that of one of your own in `tagfill.models.BACKBONES`.
        head: what turns features into logits.
        features: a feature cache, or its folder, to train on instead of images.
        epochs: of the only stage, unless `stages` is given.
        lr: learning rate of the only stage, unless `stages` is given.
        out: the run folder; by default a name below `runs/` that tells what the run is.
        force: begin anew in a folder that is not empty, such as that of the same script an hour ago.
        progress: told about epochs and steps.
        **settings: any other field of a recipe (`seed`, `batch_size`, `options`, `stages`, …), or an option of the head
            (`boost`).

    Returns:
        The finished run.

    Example:
        >>> run = tagfill.train(part, method="en+scl", features=cache, epochs=10)  # doctest: +SKIP
    """
    data = dataset if isinstance(dataset, Dataset) else Dataset.open(dataset)
    if "stages" not in settings:
        given = "images" if features is None else "cache"
        settings["stages"] = [{"name": "main", "input": given, "epochs": epochs, "optimizer": {"lr": lr}}]
    of_head = {name: settings.pop(name) for name in _options_of(head) & settings.keys()}
    settings["head_options"] = {**settings.get("head_options", {}), **of_head}
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
    return start(data, recipe, out=out, force=force, progress=progress)


def _options_of(head: str) -> set[str]:
    """Names of a head's options that are no settings of a recipe."""
    if head not in HEADS:
        raise unknown_name("head", head, HEADS)
    return option_parameters(HEADS[head]).keys() - Recipe.model_fields.keys()


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
        return fit(run, dataset, recipe, devices, None, workers, saving or Saving(), progress)
    finally:
        lock.release()


def _prepare(run: Run, lock: Lock, dataset: Dataset, recipe: Recipe, force: bool) -> None:
    """Lock the run folder and make it a run."""
    if not force and _occupied(run):
        hint = f"continue it with 'tagfill train --resume {run.folder}', " if run.begun else ""
        raise RunError(
            f"{run.folder} is not empty; {hint}choose another --out, or give --force to begin anew in it (out and "
            "force=True in Python)."
        )
    views = views_of(recipe, dataset)
    lock.acquire()
    _clear(run)
    if dataset.folder is None:
        dataset.save(run.folder / "dataset")
    run.create(recipe, describe(dataset, recipe) | ({} if views is None else {"views": views}))


def _occupied(run: Run) -> bool:
    """Whether a folder holds anything, but for what is left of a run that was refused before its first epoch."""
    if not run.folder.exists() or not any(run.folder.iterdir()):
        return False
    epochs = run.metrics_path.exists() and run.metrics_path.stat().st_size > 0
    return run.begun or epochs or run.model_folder.exists() or not run.description_path.exists()


def _clear(run: Run) -> None:
    """Remove what an earlier run in this folder left."""
    for name in ("checkpoints", "memory", "best", "tensorboard", "records"):
        shutil.rmtree(run.folder / name, ignore_errors=True)
    for pattern in ("run.json", "*.jsonl", "log.txt", "bad-images.txt", "not-finite-*.json"):
        for path in run.folder.glob(pattern):
            path.unlink()


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
                checkpoints.roll_back(run, checkpoint)
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
