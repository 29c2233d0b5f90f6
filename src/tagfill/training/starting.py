"""Starting a run in a folder of its own."""

from __future__ import annotations

import inspect
import os
import shutil
from pathlib import Path
from typing import Any

from tagfill.annotations import Dataset
from tagfill.errors import RunError, unknown_name
from tagfill.models import HEADS
from tagfill.progress import SILENT, Progress
from tagfill.training.devices import Devices
from tagfill.training.fitting import fit
from tagfill.training.folder import Lock, Run, default_name, describe
from tagfill.training.inputs import views_of
from tagfill.training.recipe import Recipe, make_recipe
from tagfill.training.saving import Saving


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
    parameters = inspect.signature(HEADS[head]).parameters.values()
    return {p.name for p in parameters if p.kind is p.KEYWORD_ONLY} - Recipe.model_fields.keys()


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
