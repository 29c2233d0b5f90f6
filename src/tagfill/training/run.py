"""Training a run: start it in a folder of its own, resume it from its newest checkpoint, and fit it to the end."""

from __future__ import annotations

import json
import os
import shutil
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager, nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from tagfill import methods
from tagfill.data import FeatureCache
from tagfill.dataset import Dataset
from tagfill.dataset.validation import require_valid
from tagfill.errors import RunError, unknown_name
from tagfill.io import exclusive_lock, is_unused, recover_folder, sha256_of_strings
from tagfill.models import HEADS, choose_device
from tagfill.models.allocator import disable_heap_trimming
from tagfill.models.backbone import check_backbone
from tagfill.models.classifier import check_head
from tagfill.models.compilation import compile_errors
from tagfill.options import option_parameters
from tagfill.progress import NOTEBOOK, SILENT, Progress
from tagfill.training import auto, checkpoints
from tagfill.training.automatic_cache import cache_features
from tagfill.training.checkpoints import Checkpoint
from tagfill.training.devices import Devices
from tagfill.training.recipe import Recipe, build_recipe
from tagfill.training.run_folder import Logged, Run, default_name, describe
from tagfill.training.splits import BatchTooLargeError
from tagfill.training.stage import RunContext, open_cache
from tagfill.training.trainer import Saving, Trainer

_CANDIDATES = "candidates"  # runs that are compared before a run of `auto` begins


def train(
    dataset: Dataset | str | Path,
    *,
    method: str = auto.AUTO,
    backbone: str = "tf_efficientnet_lite0",
    head: str = "cam",
    features: str | os.PathLike[str] | None = None,
    epochs: int = 10,
    lr: float | None = None,
    train: str | None = None,
    out: str | Path | None = None,
    cache: bool = False,
    device: str = "auto",
    force: bool = False,
    progress: Progress = NOTEBOOK,
    **settings: Any,
) -> Run:
    """Train a classifier from partly labeled images.

    Args:
        dataset: the data, or its folder; one that was never saved is saved inside the run folder.
        method: how to learn from partial labels: `auto`, which chooses methods by what is known about the images and
            combines them, or a name of `tagfill list methods`; methods that add up are joined by `+`.
        backbone: timm's name of the backbone, or the name of a custom one in `tagfill.models.BACKBONES`.
        head: turns features into logits.
        features: a feature cache, or its folder, to train on instead of images.
        epochs: of the only stage, unless `stages` is given.
        lr: learning rate of the only stage, unless `stages` is given; by default 0.001; with `train="top"`
            0.0001, and ten times the rate for the head.
        train: what trains, unless `stages` is given: `head`, `top` (what lies above the stage of the backbone that
            `features` holds, or that the setting `at` names) or `all`.
        out: the run folder; by default `runs/<dataset>-<method>-<backbone>-s<seed>-<hash>`.
        cache: without `features`, make a feature cache by itself if only the head trains, as the command line does.
        device: to train on: `cpu`, `cuda`, `mps`, or `auto`.
        force: start over in a folder that is not empty, such as that of an earlier run of the same script.
        progress: shows epochs and steps.
        **settings: any other field of a recipe (`seed`, `batch_size`, `options`, `stages`, …), or an option of the head
            (`boost`).

    Returns:
        The finished run.

    Example:
        >>> run = tagfill.train(part, features=cache)  # doctest: +SKIP
    """
    data = dataset if isinstance(dataset, Dataset) else Dataset.open(dataset)
    of_head = {name: settings.pop(name) for name in _head_options(head) & settings.keys()}
    settings["head_options"] = {**settings.get("head_options", {}), **of_head}
    folder = str(data.folder.absolute() if data.folder else "dataset")
    content = {"dataset": folder, "method": method, "backbone": backbone, "head": head, **settings}
    if "stages" in settings:
        recipe = build_recipe(content, features=features)
    else:
        recipe = build_recipe(content, features=features, epochs=epochs, lr=lr, train=train)
    if cache:
        check_start(recipe, out=out, device=device, force=force)
        require_valid(data, progress=progress)
        recipe = cache_features(data, recipe, device=device, progress=progress)
    return start(data, recipe, out=out, device=device, force=force, progress=progress)


def _head_options(head: str) -> set[str]:
    """Names of a head's options, except those that are also fields of a recipe."""
    if head not in HEADS:
        raise unknown_name("head", head, HEADS)
    return option_parameters(HEADS[head]).keys() - Recipe.model_fields.keys()


def start(
    dataset: Dataset,
    recipe: Recipe,
    *,
    out: str | Path | None = None,
    processes: int = 1,
    device: str = "auto",
    workers: int = 0,
    saving: Saving | None = None,
    force: bool = False,
    progress: Progress = SILENT,
) -> Run:
    """Start a run with a complete recipe in a new folder, and train it to the end.

    Args:
        dataset: the data that the recipe names.
        recipe: all settings that decide the result.
        out: the run folder.
        processes: that train together on this machine.
        device: to train on: `cpu`, `cuda`, `mps`, or `auto`.
        workers: processes that decode images.
        saving: when to save.
        force: start over in a folder that is not empty.
        progress: shows epochs and steps.
    """
    if dataset.folder is not None:  # an absolute path, for resuming from another working directory
        recipe = recipe.model_copy(update={"dataset": str(dataset.folder.absolute())})
    check_start(recipe, out=None, device=device)
    require_valid(dataset, progress=progress)
    if recipe.method == auto.AUTO:
        return _start_auto(
            dataset, recipe, out, processes, device, workers=workers, saving=saving, force=force, progress=progress
        )
    devices = Devices(processes, device, recipe.precision, recipe.compile)
    run = Run(Path(out) if out is not None else Path("runs") / default_name(dataset, recipe))
    with new_run(run, dataset, recipe, devices, force=force, workers=workers, progress=progress) as context:
        return _fit(context, saving, None)


@contextmanager
def new_run(
    run: Run,
    dataset: Dataset,
    recipe: Recipe,
    devices: Devices,
    *,
    force: bool = False,
    workers: int = 0,
    progress: Progress = SILENT,
) -> Iterator[RunContext]:
    """Make a folder a run and keep it locked; for the arguments see `start`."""
    devices.on_main(lambda: _check_free(run, force))
    cache = open_cache(recipe, dataset)
    with _locked(run, devices):
        devices.on_main(lambda: _create(run, dataset, recipe, cache))
        if dataset.folder is None:
            dataset = Dataset.open(run.folder / "dataset")
        yield RunContext(run, recipe, dataset, cache, devices, workers, progress)


def start_or_resume(dataset: Dataset, recipe: Recipe, *, out: str | Path, **settings: Any) -> Run:
    """Start a run, or continue the one with the same recipe that the folder holds.

    The same command then does the right thing each time, as torchrun with `--max-restarts` and queues that requeue a
    job need it: they only repeat what they were given.

    Args:
        dataset: the data that the recipe names.
        recipe: all settings that decide the result.
        out: the run folder.
        **settings: `processes`, `device`, `workers`, `saving` and `progress`, as of `start`.

    Raises:
        RunError: if the folder holds a run with other settings, or anything else.
    """
    run = Run(Path(out))
    if not run.description_path.exists():
        return start(dataset, recipe, out=out, **settings)
    if recipe.method != auto.AUTO and run.description()["recipe_hash"] != recipe.hash():
        raise RunError(f"{run.folder} holds a run with other settings; choose another --out, or leave out --continue.")
    if run.begun or recipe.method == auto.AUTO:
        return resume(run.folder, **settings)
    return start(dataset, recipe, out=out, force=True, **settings)  # it was killed before its first checkpoint


def check_start(recipe: Recipe, *, out: str | Path | None, device: str = "auto", force: bool = False) -> None:
    """Raise for what can be known to be wrong before anything is computed or written.

    Args:
        recipe: its methods, head and backbone must exist.
        out: the run folder, which must be empty; None checks no folder.
        device: must exist.
        force: allow a folder that is not empty.
    """
    choose_device(device)
    auto.check_method(recipe)
    check_head(recipe.head, recipe.head_options)
    check_backbone(recipe.backbone, recipe.pretrained)
    if out is not None:
        _check_free(Run(Path(out)), force)


def _start_auto(
    dataset: Dataset,
    recipe: Recipe,
    out: str | Path | None,
    processes: int,
    device: str,
    *,
    force: bool,
    **settings: Any,
) -> Run:
    """Start a run of `auto` in a new folder: choose its members, train them and combine them."""
    if processes > 1:
        raise RunError("The method 'auto' trains in one process; leave out --processes, or choose a method.")
    choice = auto.choose(dataset, recipe)
    run = Run(Path(out) if out is not None else Path("runs") / default_name(dataset, choice.recipe))
    _check_free(run, force)
    cache = open_cache(choice.recipe, dataset)
    with exclusive_lock(run.folder, "is training", choose="--out"):
        if choice.rival is not None or choice.guest is not None:
            choice = _settle_rivals(run, dataset, choice, device=device, **settings)
        chosen = {"members": list(choice.members), "reason": choice.reason}
        _create(run, dataset, choice.recipe, cache, {"auto": chosen})
        run.members_folder.mkdir()
        if dataset.folder is None:
            dataset = Dataset.open(run.folder / "dataset")
        return _fit_auto(run, choice.recipe, dataset, device=device, **settings)


def _settle_rivals(
    run: Run, dataset: Dataset, choice: auto.Choice, *, device: str, workers: int, progress: Progress, **_: Any
) -> auto.Choice:
    """Compare methods that suit the data by cross-fitting, and take the better ones.

    The runs of the folds are below the folder of the run until it begins; started again after an interruption, the
    comparison goes on.
    """
    from tagfill.training.cross_fitting import compare_methods  # which starts runs itself

    key = sha256_of_strings([choice.recipe.hash(), *dataset.identities.values()])[:12]
    found = compare_methods(
        dataset,
        choice.candidates(),
        run.folder / _CANDIDATES / key,
        guest=choice.guest,
        device=device,
        workers=workers,
        progress=progress,
    )
    return choice.settled(found.taken, str(found))


def _fit_auto(
    run: Run, recipe: Recipe, dataset: Dataset, *, progress: Progress, saving: Saving | None, **settings: Any
) -> Run:
    """Train the members of `auto` that are not finished, and combine all of them."""
    chosen = run.description()["auto"]
    logged = Logged(progress, run.folder / "log.txt")
    logged.say(chosen["reason"])
    scale = auto.given_scale(recipe)
    to_train = auto.trained(chosen["members"])
    runs: dict[str, Run] = {}
    for name in dict.fromkeys([*to_train, *([] if scale is None else [scale])]):
        logged.say(f"training {name}" if name in to_train else f"training {name}, for the scale of the logits")
        member = Run(run.members_folder / name)
        if member.begun:
            runs[name] = resume(member.folder, saving=saving, progress=progress, **settings)
        else:  # `force` clears what a process left that was killed before its first checkpoint
            own = auto.member_recipe(recipe, name)
            runs[name] = start(
                dataset, own, out=member.folder, saving=saving, force=True, progress=progress, **settings
            )
    members = [runs[name] for name in to_train]
    if computed := [name for name in chosen["members"] if name not in to_train]:
        logged.say(f"computing {' and '.join(computed)}")
    begin, threads = time.perf_counter(), torch.get_num_threads()
    torch.set_num_threads(recipe.threads)
    try:
        result = auto.combine_runs(members, dataset, recipe, run.model_folder, None if scale is None else runs[scale])
    finally:
        torch.set_num_threads(threads)
    seconds = [json.loads(line)["seconds"] for one in runs.values() for line in one.timings()]
    total = sum(seconds) + time.perf_counter() - begin
    epoch = {"stage": result["stage"], "epoch": result["epoch"]}
    run.append("timings.jsonl", {**epoch, "seconds": total, "images": len(dataset.split("train"))})
    if "val_mAP" in result:
        run.append("metrics.jsonl", {**epoch, "val_mAP": result["val_mAP"]})
    run.finish(result)
    return run


def _check_free(run: Run, force: bool) -> None:
    """Refuse a folder that is not empty, unless forced."""
    if not force and _occupied(run):
        hint = f"continue it with 'tagfill train --resume {run.folder}', " if run.begun else ""
        raise RunError(
            f"{run.folder} is not empty; {hint}choose another --out, or give --force to start over in it (out and "
            "force=True in Python)."
        )


@contextmanager
def _locked(run: Run, devices: Devices) -> Iterator[None]:
    """Keep other processes from training in the folder; the main process holds the lock for all."""
    with ExitStack() as held:
        lock = exclusive_lock(run.folder, "is training", choose="--out")
        devices.on_main(lambda: held.enter_context(lock))
        yield


def _create(
    run: Run, dataset: Dataset, recipe: Recipe, cache: FeatureCache | None, more: Mapping[str, Any] | None = None
) -> None:
    """Remove what an earlier run left in the folder, and make it a run."""
    _clear(run)
    if dataset.folder is None:
        dataset.save(run.folder / "dataset")
    description = {**describe(dataset, recipe), **(more or {})}
    if cache is not None:
        description["views"] = {name: view.identity for name, view in cache.manifest.views.items()}
    run.create(recipe, description)


def _occupied(run: Run) -> bool:
    """Whether a folder holds anything, except what a run that was refused before its first epoch leaves."""
    if is_unused(run.folder) or _is_abandoned(run):
        return False
    epochs = run.metrics_path.exists() and run.metrics_path.stat().st_size > 0
    return run.begun or epochs or run.model_folder.exists() or not run.description_path.exists()


def _is_abandoned(run: Run) -> bool:
    """Whether a process was killed while it made the folder a run: it was locked, and has only the first files."""
    names = {path.name for path in run.folder.iterdir() if not path.name.endswith(".tmp")}
    return ".lock" in names and names <= {".lock", "dataset", "recipe.yaml", "metrics.jsonl", _CANDIDATES}


def _clear(run: Run) -> None:
    """Remove the files of an earlier run."""
    for name in ("checkpoints", "members", "memory", "best", "tensorboard", "records", _CANDIDATES):
        shutil.rmtree(run.folder / name, ignore_errors=True)
    for pattern in ("run.json", "*.jsonl", "log.txt", "bad-images.txt", "splits.json", "not-finite-*.json", ".*.tmp"):
        for path in run.folder.glob(pattern):
            path.unlink()


def resume(
    folder: str | Path,
    *,
    processes: int = 1,
    device: str = "auto",
    workers: int = 0,
    reshard: bool = False,
    saving: Saving | None = None,
    progress: Progress = NOTEBOOK,
) -> Run:
    """Continue a run that was stopped.

    With the same number of processes, it ends with the same bytes as a run that was never stopped.

    Args:
        folder: of the run.
        processes: that train together on this machine.
        device: to train on: `cpu`, `cuda`, `mps`, or `auto`.
        workers: processes that decode images.
        reshard: continue with another number of processes, from the newest checkpoint between two epochs.
        saving: when to save.
        progress: shows epochs and steps.
    """
    run = Run.open(folder)
    if run.finished:
        return run
    recipe = run.recipe
    if recipe.method == auto.AUTO:
        return _resume_auto(run, device=device, workers=workers, saving=saving, progress=progress)
    devices = Devices(processes, device, recipe.precision, recipe.compile)
    with stopped_run(run, devices, workers=workers, reshard=reshard, progress=progress) as (context, checkpoint):
        return _fit(context, saving, checkpoint)


@contextmanager
def stopped_run(
    run: Run, devices: Devices, *, workers: int = 0, reshard: bool = False, progress: Progress = SILENT
) -> Iterator[tuple[RunContext, Checkpoint]]:
    """Lock a run that was stopped, and open its newest checkpoint; for the arguments see `resume`."""
    recipe = run.recipe
    dataset = Dataset.open(run.folder / recipe.dataset)
    devices.on_main(lambda: _check_unchanged(run, dataset, recipe))
    cache = open_cache(recipe, dataset, run.views)
    with _locked(run, devices):
        context = RunContext(run, recipe, dataset, cache, devices, workers, progress)
        yield context, _rewind(context, reshard=reshard)


def _rewind(context: RunContext, *, reshard: bool = False) -> Checkpoint:
    """Take the folder of a run back to its newest checkpoint, which is returned."""
    run, devices = context.run, context.devices
    recover_folder(run.model_folder)
    checkpoint, warnings = checkpoints.open_newest(run.checkpoints)
    if checkpoint.world != devices.ranks.world:
        if not reshard:
            raise RunError(
                f"The run {run.folder} was saved by {checkpoint.world} processes and there are "
                f"{devices.ranks.world} now; give --reshard to continue from the end of an epoch, or use as many."
            )
        checkpoint, warnings = checkpoints.open_newest(run.checkpoints, between_epochs=True)
    for warning in warnings:
        context.progress.say(warning)
    devices.barrier()
    if devices.main:
        checkpoints.discard_after(run.checkpoints, checkpoint.state.number)
        os.truncate(run.metrics_path, checkpoint.state.metrics_bytes)
        if checkpoint.world != devices.ranks.world:
            checkpoints.roll_back(run, checkpoint)
    devices.barrier()
    return checkpoint


def _resume_auto(run: Run, **settings: Any) -> Run:
    """Continue a run of `auto` with the member that was stopped."""
    dataset = Dataset.open(run.folder / run.recipe.dataset)
    _check_unchanged(run, dataset, run.recipe)
    with exclusive_lock(run.folder, "is training", choose="--out"):
        recover_folder(run.model_folder)
        return _fit_auto(run, run.recipe, dataset, **settings)


def _check_unchanged(run: Run, dataset: Dataset, recipe: Recipe) -> None:
    """Refuse to resume if the recipe or the dataset changed since the run began."""
    was, now = run.description(), describe(dataset, recipe)
    if was["recipe_hash"] != now["recipe_hash"]:
        raise RunError(f"{run.folder / 'recipe.yaml'} was changed since the run began; undo that or start a new run.")
    for what, identity in was["identities"].items():
        if identity != now["identities"][what]:
            raise RunError(
                f"The {what} of dataset {dataset.folder} changed since the run {run.folder} began; start a new run."
            )


def _warn_without_negatives(context: RunContext) -> None:
    """Say so if a method learns from known negatives and there are none."""
    if context.dataset.labels("train").negatives.any():
        return
    for stage in context.recipe.stages:
        part = methods.needs_negatives(*context.recipe.method_of(stage))
        if part is not None:
            context.progress.say(
                f"Warning: '{part}' learns from labels that are known to be absent, and no training image has one, so "
                "it cannot work here; use auto."
            )


def _warn_late_start(context: RunContext) -> None:
    """Say so if a stage ends before its method begins to differ from the simpler one that it starts as."""
    for stage in context.recipe.stages:
        name, options = context.recipe.method_of(stage)
        first = methods.first_epoch(methods.create(name, options), stage.epochs)
        if first > stage.epochs:
            context.progress.say(
                f"Warning: before epoch {first} '{name}' is a simpler method, and stage '{stage.name}' ends with epoch "
                f"{stage.epochs}; give it more epochs, or shorten its warm-up."
            )


def _note_early_best(context: RunContext, stage: int, epoch: int) -> None:
    """Say so if the best epoch comes before its method begins to differ from a simpler one."""
    chosen = context.recipe.stages[stage]
    name, options = context.recipe.method_of(chosen)
    first = methods.first_epoch(methods.create(name, options), chosen.epochs)
    if epoch < first <= chosen.epochs:
        context.progress.say(
            f"The best epoch, {epoch}, comes before epoch {first}, in which '{name}' begins; until then it is "
            "a simpler method."
        )


def _train(context: RunContext, saving: Saving, checkpoint: Checkpoint | None) -> dict[str, float]:
    """Train all stages that are left; where batches do not fit into memory, go back and split them.

    Returns:
        Stage, epoch and score of the best epoch.
    """
    while True:
        trainer = Trainer(context, saving, checkpoint)
        try:
            return trainer.run()
        except BatchTooLargeError as error:
            if context.devices.ranks.world > 1:
                raise  # the others may be waiting for gradients, so the processes have to start again
            trainer.release()
            context.progress.say(str(error))
        del trainer
        context.devices.release_memory()
        context = replace(context)  # stages take methods out of it
        checkpoint = _rewind(context)


def _fit(context: RunContext, saving: Saving | None, checkpoint: Checkpoint | None) -> Run:
    """Train all stages that are left, and write the result into the run folder."""
    announce(context, checkpoint)
    threads = torch.get_num_threads()
    torch.set_num_threads(context.recipe.threads)
    if any(stage.input == "images" or stage.train == "top" for stage in context.recipe.stages):
        disable_heap_trimming()  # heads on cached features allocate little
    try:
        with torch.random.fork_rng(), compile_errors() if context.recipe.compile else nullcontext():
            best = _train(context, saving or Saving(), checkpoint)
    finally:
        torch.set_num_threads(threads)
    return finish(context, best)


def announce(context: RunContext, checkpoint: Checkpoint | None) -> None:
    """Open the log of a run, and say what the user should know before it trains."""
    dataset = context.dataset
    if context.devices.main:
        context.progress = Logged(context.progress, context.run.folder / "log.txt")
    expected, origin = context.expected_positives
    if origin is not None:
        context.progress.say(f"expected positives per image: {expected:.3f}, {origin}")
    if "val" in dataset.splits and not context.validated:
        context.progress.say(
            "Validation has no class that is known to be present in one image and absent in another, so there is no "
            "mAP; the last epoch is kept."
        )
    if checkpoint is None:
        _warn_without_negatives(context)
        _warn_late_start(context)


def finish(context: RunContext, best: Mapping[str, float]) -> Run:
    """Write the result of a run that was trained to the end.

    Args:
        context: the run.
        best: stage, epoch and score of its best epoch.
    """
    run, recipe, devices = context.run, context.recipe, context.devices
    expected, origin = context.expected_positives
    result: dict[str, Any] = {"stage": recipe.stages[int(best["stage"])].name, "epoch": int(best["epoch"])}
    if origin is not None:
        result |= {"expected_positives": expected, "expected_positives_from": origin}
    if context.chosen_by_map and recipe.val_labels == "tags":
        result |= {"val_AUC": 100 * best["score"], "chosen_by": "AUC of the known tags of val"}
    elif context.chosen_by_map:
        result |= {"val_mAP": 100 * best["score"], "chosen_by": f"mAP on val, {recipe.val_labels} labels"}
    else:
        result |= {"chosen_by": "last epoch"}
    _note_early_best(context, int(best["stage"]), int(best["epoch"]))
    if devices.main:
        run.finish(result)
    devices.barrier()
    return run
