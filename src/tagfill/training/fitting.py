"""Training a run to its end, from the beginning or from a checkpoint, and writing down how it ended."""

from __future__ import annotations

from typing import Any

import torch

from tagfill.annotations import Dataset
from tagfill.models.heap import keep_freed_memory
from tagfill.progress import Progress
from tagfill.training.bad_images import BadImages
from tagfill.training.checkpoints import Checkpoint
from tagfill.training.devices import Devices
from tagfill.training.expecting import expected_positives
from tagfill.training.folder import Run
from tagfill.training.log import Logged
from tagfill.training.loop import Trainer
from tagfill.training.recipe import Recipe
from tagfill.training.saving import Saving
from tagfill.training.setting import Setting


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
    expected, origin = expected_positives(dataset, recipe)
    if origin is not None:
        progress.say(f"expected positives an image: {expected:.3f}, {origin}")
    bad_images = BadImages(run.folder / "bad-images.txt", int(recipe.max_bad_images * len(dataset)), progress)
    setting = Setting(run, recipe, dataset, devices, workers, expected, bad_images)
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
