"""A run is a folder.

recipe.yaml       every setting, defaults written out
run.json          what the run depends on: recipe hash, dataset identities, cached views, versions, command line
metrics.jsonl     one line per epoch; the same run always writes the same bytes
timings.jsonl     how long each epoch took
log.txt           messages, with the time of day
bad-images.txt    images that could not be decoded
splits.json       steps from which on batches are split, if they did not fit into memory
best/             the model folder of the best epoch
members/          runs that the method `auto` combines
checkpoints/      to resume from
memory/           per-image state on disk, if the recipe keeps it there
records/          data for analyses, if the recipe asks for it
tensorboard/      events, if the extra `tensorboard` is installed
"""

from __future__ import annotations

import json
import os
import platform
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cache, cached_property
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from tagfill.dataset import Dataset
from tagfill.errors import ImageError, RunError
from tagfill.images.notebook import counts_table, line_chart, never_raises, panel
from tagfill.io import atomic_write, write_json
from tagfill.progress import Bar, Progress
from tagfill.training.recipe import Recipe, read_recipe

_VERSIONS = ("tagfill", "torch", "timm", "numpy")


@dataclass(frozen=True)
class Run:
    """A run folder, finished or not.

    >>> Run.open("runs/scenes-role-tf_efficientnet_lite0-s0-1f3a5c").best["val_mAP"]  # doctest: +SKIP
    68.5
    """

    folder: Path

    def __fspath__(self) -> str:
        """The folder, so that a run can be passed as a path."""
        return str(self.folder)

    @classmethod
    def open(cls, folder: str | os.PathLike[str]) -> Run:
        """Open an existing run folder."""
        run = cls(Path(folder))
        if not run.description_path.is_file():
            raise RunError(f"{folder} is not a run folder: it has no run.json.")
        return run

    @property
    def description_path(self) -> Path:
        """Path of `run.json`."""
        return self.folder / "run.json"

    @property
    def metrics_path(self) -> Path:
        """Path of `metrics.jsonl`."""
        return self.folder / "metrics.jsonl"

    @property
    def model_folder(self) -> Path:
        """Folder of the best epoch's model."""
        return self.folder / "best"

    @property
    def checkpoints(self) -> Path:
        """Folder of the checkpoints."""
        return self.folder / "checkpoints"

    @property
    def splits_path(self) -> Path:
        """Path of `splits.json`."""
        return self.folder / "splits.json"

    @property
    def members_folder(self) -> Path:
        """Folder of the runs that `auto` combines."""
        return self.folder / "members"

    @cached_property
    def recipe(self) -> Recipe:
        """All settings."""
        return read_recipe(self.folder / "recipe.yaml")

    def description(self) -> dict[str, Any]:
        """The content of `run.json`: what the run depends on, and its result if it is finished."""
        content: dict[str, Any] = json.loads(self.description_path.read_text(encoding="utf-8"))
        return content

    @property
    def views(self) -> dict[str, str] | None:
        """Identities of the cached views that the run trains on, by name; None without a feature cache."""
        found: dict[str, str] | None = self.description().get("views")
        return found

    @property
    def finished(self) -> bool:
        """Whether all epochs are done."""
        return "result" in self.description()

    @property
    def begun(self) -> bool:
        """Whether there is something to continue from: a checkpoint or members."""
        return self.description_path.exists() and (
            any(self.checkpoints.glob("[0-9]*")) or any(self.members_folder.glob("*"))
        )

    @property
    def best(self) -> dict[str, Any]:
        """Stage, epoch and validation score of the best epoch of a finished run."""
        description = self.description()
        if "result" not in description:
            raise RunError(
                f"The run {self.folder} is not finished; continue it with 'tagfill train --resume {self.folder}'."
            )
        result: dict[str, Any] = description["result"]
        return result

    def metrics(self) -> list[dict[str, Any]]:
        """The lines of `metrics.jsonl`, one per epoch."""
        lines = self.metrics_path.read_text(encoding="utf-8").splitlines()
        return [json.loads(line) for line in lines]

    def __repr__(self) -> str:
        try:
            return f"<Run {self.folder}: {self._state()}>"
        except Exception:
            return f"<Run {self.folder}>"

    def _state(self) -> str:
        """How far it is, and how good."""
        method, result = self.recipe.method, self.description().get("result")
        if result is None:
            return f"{method}, {len(self.metrics())} epochs done, not finished"
        score = f", val mAP {result['val_mAP']:.2f}" if "val_mAP" in result else ""
        return f"{method}, finished, best epoch {result['epoch']}{score}"

    @never_raises
    def _repr_html_(self) -> str:
        recipe, description, metrics = self.recipe, self.description(), self.metrics()
        settings = {
            "dataset": description["dataset"],
            "method": " + ".join(description.get("auto", {}).get("members", [recipe.method])),
            "backbone": recipe.backbone,
            "epochs": sum(stage.epochs for stage in recipe.stages),
            "seed": str(recipe.seed),
        }
        scored = [line["val_mAP"] for line in metrics if "val_mAP" in line]
        loss = [sum(line["loss"].values()) for line in metrics if line.get("loss")]
        name, values = ("val mAP", scored) if len(scored) > 1 else ("training loss", loss)
        hint = (
            "`tagfill.evaluate(run, dataset)` scores it, `tagfill.suggest(dataset, run)` finds missing labels."
            if self.finished
            else f"`tagfill.resume('{self.folder}')` continues it."
        )
        return panel(
            f"Run {self.folder.name}: {self._state()}",
            counts_table(list(settings), [list(settings.values())]),
            line_chart(name, values),
            hint=hint,
        )

    def timings(self) -> list[str]:
        """The lines of `timings.jsonl`, one per epoch."""
        return (self.folder / "timings.jsonl").read_text(encoding="utf-8").splitlines()

    def create(self, recipe: Recipe, description: dict[str, Any]) -> None:
        """Write the files that make a folder a run."""
        with atomic_write(self.folder / "recipe.yaml") as file:
            file.write(recipe.to_yaml().encode())
        self.metrics_path.write_bytes(b"")
        write_json(self.description_path, description)

    def append(self, name: str, line: dict[str, Any]) -> None:
        """Append a line to one of the `.jsonl` files."""
        with (self.folder / name).open("ab") as file:
            file.write(json.dumps(line).encode() + b"\n")
            file.flush()
            os.fsync(file.fileno())

    def finish(self, result: dict[str, Any]) -> None:
        """Add the result to `run.json`."""
        write_json(self.description_path, {**self.description(), "result": result})


def memory_folder(run: Run, name: str, rank: int) -> Path:
    """Folder of the files of a memory."""
    return run.folder / "memory" / name / f"rank{rank}"


def default_name(dataset: Dataset, recipe: Recipe) -> str:
    """`<dataset>-<method>-<backbone>-s<seed>-<recipe hash 6>`."""
    return f"{dataset.name}-{recipe.method}-{recipe.backbone}-s{recipe.seed}-{recipe.hash()[:6]}"


def describe(dataset: Dataset, recipe: Recipe) -> dict[str, Any]:
    """What a run depends on, as written to `run.json`."""
    return {
        "dataset": dataset.name,
        "identities": dataset.identities,
        "recipe_hash": recipe.hash(),
        "versions": _versions(),
        "command": sys.argv,
    }


@cache
def _versions() -> dict[str, str]:
    """Of Python and the libraries that a result depends on."""
    return {"python": platform.python_version(), **{name: version(name) for name in _VERSIONS}}


class Logged:
    """Passes progress on, and appends messages to a file with the time of day."""

    def __init__(self, progress: Progress, path: Path) -> None:
        self._progress, self._path = progress, path

    def bar(self, title: str, total: int | None, unit: str = "") -> Bar:
        """Start a bar, which is not logged."""
        return self._progress.bar(title, total, unit)

    def say(self, text: str) -> None:
        """Show a message and log it."""
        with self._path.open("a", encoding="utf-8") as file:
            file.write(f"{datetime.now(UTC):%Y-%m-%d %H:%M:%S}Z {text}\n")
        self._progress.say(text)


class BadImages:
    """Counts the images of a run that cannot be decoded; they are left out, and too many of them stop the run.

    Args:
        path: of the list of bad images, which a resumed run continues.
        limit: how many are tolerated.
        progress: receives a message about each new one.
    """

    def __init__(self, path: Path, limit: int, progress: Progress) -> None:
        self._path, self._limit, self._progress = path, limit, progress
        known = path.read_text(encoding="utf-8").splitlines() if path.is_file() else []
        self._names = {line.partition("\t")[0] for line in known}

    def __call__(self, error: ImageError) -> None:
        """Report an image that could not be decoded and is missing from its batch."""
        if error.image in self._names:
            return
        self._names.add(error.image)
        with self._path.open("a", encoding="utf-8") as file:
            file.write(f"{error.image}\t{error.problem}\n")
        self._progress.say(f"left out: {error}")
        if len(self._names) > self._limit:
            raise RunError(
                f"{len(self._names)} images cannot be decoded, more than the {self._limit} that max_bad_images allows; "
                f"{self._path} lists them. Repair or drop them, or check with 'tagfill inspect --decode'."
            )


class Events:
    """Writes scalars for TensorBoard; does nothing if it is not installed."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._writer: Any = None

    def write(self, epoch: int, values: Mapping[str, float]) -> None:
        """Write the scalars of an epoch, which is counted over all stages."""
        if self._writer is None and find_spec("tensorboard") is not None:
            from torch.utils.tensorboard import SummaryWriter  # takes a while; training begins without it

            self._writer = SummaryWriter(str(self._folder))
        if self._writer is not None:
            for name, value in values.items():
                self._writer.add_scalar(name, value, epoch)
            self._writer.flush()

    def close(self) -> None:
        """Close the file."""
        if self._writer is not None:
            self._writer.close()
