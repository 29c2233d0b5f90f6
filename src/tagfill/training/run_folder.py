"""A run is a folder.

recipe.yaml       every setting, defaults written out
run.json          what the run depends on: recipe hash, dataset identities, cached views, versions, command line
metrics.jsonl     a line an epoch, the same bytes whenever the same run is made
timings.jsonl     how long each epoch took here
best/             the model folder of the best epoch
checkpoints/      to resume from
memory/           per-image state on disk, if the method keeps any there
records/          what analyses need of each epoch, if the recipe asks for it


Everything worth knowing about a run also goes into its `log.txt`.

Images that cannot be decoded: left out, written down once, and too many of them stop the run.

TensorBoard events beside the run's own metrics, where the extra `tensorboard` is installed.
"""

from __future__ import annotations

import json
import os
import platform
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cached_property
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from tagfill.dataset import Dataset
from tagfill.errors import ImageError, RunError
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
        """Its folder: a run goes wherever the path of one does."""
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
        """Of what the run depends on."""
        return self.folder / "run.json"

    @property
    def metrics_path(self) -> Path:
        """Of the table of epochs."""
        return self.folder / "metrics.jsonl"

    @property
    def model_folder(self) -> Path:
        """Of the best epoch's model."""
        return self.folder / "best"

    @property
    def checkpoints(self) -> Path:
        """Where checkpoints lie."""
        return self.folder / "checkpoints"

    @cached_property
    def recipe(self) -> Recipe:
        """All settings."""
        return read_recipe(self.folder / "recipe.yaml")

    def description(self) -> dict[str, Any]:
        """What the run depends on, and how it ended if it has."""
        content: dict[str, Any] = json.loads(self.description_path.read_text(encoding="utf-8"))
        return content

    @property
    def views(self) -> dict[str, str] | None:
        """Identities of the cached views that it draws from, by name; None if it draws from none."""
        found: dict[str, str] | None = self.description().get("views")
        return found

    @property
    def finished(self) -> bool:
        """Whether all epochs are done."""
        return "result" in self.description()

    @property
    def begun(self) -> bool:
        """Whether there is a checkpoint to go on from; the first is made before the first epoch."""
        return self.description_path.exists() and any(self.checkpoints.glob("[0-9]*"))

    @property
    def best(self) -> dict[str, Any]:
        """Stage, epoch and validation score of the best epoch; only of a finished run."""
        description = self.description()
        if "result" not in description:
            raise RunError(
                f"The run {self.folder} is not finished; continue it with 'tagfill train --resume {self.folder}'."
            )
        result: dict[str, Any] = description["result"]
        return result

    def metrics(self) -> list[dict[str, Any]]:
        """A mapping an epoch."""
        lines = self.metrics_path.read_text(encoding="utf-8").splitlines()
        return [json.loads(line) for line in lines]

    def create(self, recipe: Recipe, description: dict[str, Any]) -> None:
        """Write the two files that make a folder a run."""
        with atomic_write(self.folder / "recipe.yaml") as file:
            file.write(recipe.to_yaml().encode())
        self.metrics_path.write_bytes(b"")
        write_json(self.description_path, description)

    def append(self, name: str, line: dict[str, Any]) -> None:
        """Add a line to one of the `.jsonl` files."""
        with (self.folder / name).open("ab") as file:
            file.write(json.dumps(line).encode() + b"\n")
            file.flush()
            os.fsync(file.fileno())

    def finish(self, result: dict[str, Any]) -> None:
        """Record how the run ended."""
        write_json(self.description_path, {**self.description(), "result": result})


def memory_folder(run: Run, name: str, rank: int) -> Path:
    """Where the files of a memory lie."""
    return run.folder / "memory" / name / f"rank{rank}"


def default_name(dataset: Dataset, recipe: Recipe) -> str:
    """`<dataset>-<method>-<backbone>-s<seed>-<recipe hash 6>`."""
    return f"{dataset.name}-{recipe.method}-{recipe.backbone}-s{recipe.seed}-{recipe.hash()[:6]}"


def describe(dataset: Dataset, recipe: Recipe) -> dict[str, Any]:
    """What a run depends on, as its `run.json` keeps it."""
    return {
        "dataset": dataset.name,
        "identities": dataset.identities,
        "recipe_hash": recipe.hash(),
        "versions": {"python": platform.python_version(), **{name: version(name) for name in _VERSIONS}},
        "command": sys.argv,
    }


class Logged:
    """Passes progress on, and keeps the lines in a file with the time of day."""

    def __init__(self, progress: Progress, path: Path) -> None:
        self._progress, self._path = progress, path

    def bar(self, title: str, total: int | None, unit: str = "") -> Bar:
        """Bars are for the screen only."""
        return self._progress.bar(title, total, unit)

    def say(self, text: str) -> None:
        """Show a line and keep it."""
        with self._path.open("a", encoding="utf-8") as file:
            file.write(f"{datetime.now(UTC):%Y-%m-%d %H:%M:%S}Z {text}\n")
        self._progress.say(text)


class BadImages:
    """Counts distinct bad images of a run.

    Args:
        path: one line for each; a resumed run goes on with the list.
        limit: so many are put up with.
        progress: told about each new one.
    """

    def __init__(self, path: Path, limit: int, progress: Progress) -> None:
        self._path, self._limit, self._progress = path, limit, progress
        known = path.read_text(encoding="utf-8").splitlines() if path.is_file() else []
        self._names = {line.partition("\t")[0] for line in known}

    def __call__(self, error: ImageError) -> None:
        """An image could not be decoded and is missing from its batch."""
        if error.image in self._names:
            return
        self._names.add(error.image)
        with self._path.open("a", encoding="utf-8") as file:
            file.write(f"{error.image}\t{error.problem}\n")
        self._progress.say(f"left out: {error}")
        if len(self._names) > self._limit:
            raise RunError(
                f"{len(self._names)} images cannot be decoded, more than the {self._limit} that max_bad_images allows; "
                f"{self._path} lists them. Mend or drop them, or check with 'tagfill inspect --decode'."
            )


class Events:
    """Writes scalars, or does nothing where TensorBoard is not installed."""

    def __init__(self, folder: Path) -> None:
        self._writer: Any = None
        if find_spec("tensorboard") is not None:
            from torch.utils.tensorboard import SummaryWriter

            self._writer = SummaryWriter(str(folder))

    def write(self, epoch: int, values: Mapping[str, float]) -> None:
        """The scalars of an epoch, counted over all stages."""
        if self._writer is not None:
            for name, value in values.items():
                self._writer.add_scalar(name, value, epoch)
            self._writer.flush()

    def close(self) -> None:
        """No more are coming."""
        if self._writer is not None:
            self._writer.close()
