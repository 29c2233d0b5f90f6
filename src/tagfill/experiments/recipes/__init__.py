"""Recipes of published tables: one YAML file per table, and versions of some that run on two CPU cores.

A file holds the settings of a run and a block `published:`, which says where the numbers come from and how to get the
data. The rows of a table differ in a few settings, which each row lists by their paths, as `--set` would give them.

`sources` says where each setting comes from: a section of the paper, released code, another paper, or `ours`. The
comment at the top ends with a list of differences from the paper, which names every setting that is ours in backticks.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from tagfill.deprecation import renamed, warn_renamed
from tagfill.errors import TagfillError, unknown_name
from tagfill.training import make_recipe
from tagfill.training.recipe import read_content, with_overrides
from tagfill.training.resolved import resolved_settings

FOLDER = Path(__file__).parent
OURS = "ours"  # the source of a setting that no publication gives
UNUSED: dict[str, Any] = {  # what a paper that does not mention these does not do
    "accumulate": 1,
    "average": None,
    "clip_norm": None,
    "crop_scale": None,
    "epoch_over": "all",
    "flip": False,
    "freeze": [],
    "head_options.boost": 1.0,
    "input": "images",
    "labeled_share": None,
    "optimizer.head_multiplier": 1.0,
    "optimizer.weight_decay": 0.0,
    "options.se.evidence": False,
    "precision": "float32",
    "schedule.name": "constant",
    "schedule.warmup_epochs": 0.0,
    "start.backbone": "pretrained",
    "start.head": "new",
    "start.memory": "new",
    "stopping.drop": None,
    "stopping.patience": None,
    "strong": False,
    "val_labels": "clean",
    "vertical_flip": False,
}
SEED = "$SEED"  # in commands and in names of datasets: the seed of the run
_DIFFERENCES = "# Differences from the paper, and our choices:"
_RENAMED = {"patchml-coco14-unlabelled": "patchml-coco14-unlabeled"}


class _Part(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Metric(_Part):
    """How the paper scored; numbers of different definitions must not be compared."""

    split: str = "test"
    average_precision: Literal["step", "rank", "voc12", "voc07"] = "step"
    empty: Literal["skip", "zero"] = "skip"  # a class without a positive


class PublishedRow(_Part):
    """A row of a published table.

    Attributes:
        reported: the paper's number in percent, or several by name; None if the paper has none.
        set: settings of this row by their paths.
        note: what is special about it.
        sources: of settings that come from elsewhere than in the other rows.
    """

    reported: float | dict[str, float] | None = None
    set: dict[str, Any] = {}
    note: str = ""
    sources: dict[str, list[str]] = {}


class UntrainedRow(_Part):
    """A row of a published table whose model exists already, and is only scored.

    Attributes:
        reported: the paper's number in percent, or several by name; None if the paper has none.
        commands: that make the model and score it.
    """

    reported: float | dict[str, float] | None = None
    commands: list[str] = Field(min_length=1)


class Published(_Part):
    """Where a recipe comes from.

    Attributes:
        about: what is compared, in one sentence.
        paper: authors, title, venue; None for our own comparisons.
        table: of the paper.
        hardware: needed for a run, by our estimate unless the paper says so.
        metric: how the paper scored.
        data: commands that make the datasets, run in the folder where the original release was unpacked; those with
            `$SEED` once for each seed, if the labels of the runs are drawn independently.
        evaluate: commands that score a run.
        grid: settings that the paper searched, with their values; the recipe has the chosen value if it is known.
        seeds: number of runs that a reported number is the mean of.
        sources: where settings come from, each source with paths of settings; `options.role` stands for all options of
            `role`.
        rows: of the table, by name.
        untrained: rows of models that are not trained, by name.
    """

    about: str
    paper: str | None
    table: str | None
    hardware: str
    metric: Metric = Metric()
    data: list[str]
    evaluate: list[str]
    grid: dict[str, list[Any]] = {}
    seeds: int = Field(1, ge=1)
    sources: dict[str, list[str]] = {}
    rows: dict[str, PublishedRow] = Field(min_length=1)
    untrained: dict[str, UntrainedRow] = {}

    def best(self) -> tuple[str, float] | None:
        """Name and number of the row with the largest number, the first if a row has several; None without numbers."""
        numbers = {}
        for name, row in self.rows.items():
            reported = next(iter(row.reported.values())) if isinstance(row.reported, dict) else row.reported
            if reported is not None:
                numbers[name] = reported
        return max(numbers.items(), key=lambda item: item[1]) if numbers else None


@dataclass(frozen=True)
class RecipeFile:
    """A recipe file.

    Attributes:
        name: of an installed recipe, or the path of the file.
        path: of the file.
        content: all settings without those of rows.
        published: what the file says about a paper's table; None for a plain recipe.
    """

    name: str
    path: Path
    content: dict[str, Any]
    published: Published | None

    def row(self, name: str | None) -> tuple[str, PublishedRow] | None:
        """The row of a name, or the only row; None for a recipe without rows."""
        if self.published is None:
            if name is not None:
                raise TagfillError(f"The recipe {self.name} has no rows; leave out --row.")
            return None
        rows = self.published.rows
        if name is None:
            if len(rows) > 1:
                raise TagfillError(f"The recipe {self.name} has several rows; choose one by --row: {', '.join(rows)}.")
            name = next(iter(rows))
        if name in self.published.untrained:
            commands = " && ".join(self.published.untrained[name].commands)
            raise TagfillError(f"The row '{name}' of {self.name} is not trained; run: {commands}")
        if name not in rows:
            raise unknown_name("row", name, rows, of=self.name)
        return name, rows[name]

    def settings(self, row: str | None = None, *, seed: int = 0) -> dict[str, Any]:
        """The settings of one row as plain values, for `tagfill.training.make_recipe`.

        Args:
            row: its name; may be left out if there is only one.
            seed: of the run; `$SEED` in the name of the dataset stands for it.
        """
        found = self.row(row)
        content = with_overrides(self.content, (found[1].set if found else {}).items())
        if isinstance(content.get("dataset"), str):
            content["dataset"] = content["dataset"].replace(SEED, str(seed))
        return content

    def departures(self) -> list[str]:
        """The differences from the paper that the comment at the top lists, one sentence or more each."""
        lines = self.path.read_text(encoding="utf-8").splitlines()
        if _DIFFERENCES not in lines:
            return []
        found: list[str] = []
        for line in lines[lines.index(_DIFFERENCES) + 1 :]:
            if line.startswith("# - "):
                found.append(line.removeprefix("# - "))
            elif line.startswith("#   ") and found:
                found[-1] += line.removeprefix("#  ")
            else:
                break
        return found

    def used_settings(self, row: str | None = None) -> dict[str, Any]:
        """The resolved settings of a row, without those that are unused or follow from the data."""
        resolved = resolved_settings(make_recipe(self.settings(row)))
        return {path: value for path, value in resolved.items() if not _is_unused(path, value)}

    def sources(self, row: str) -> dict[str, str]:
        """Where each used setting of a row comes from; settings without a source are left out."""
        found = {path: self.source(row, path) for path in self.used_settings(row)}
        return {path: source for path, source in found.items() if source is not None}

    def source(self, row: str, path: str) -> str | None:
        """Where a setting of a row comes from: the source that lists its path or the longest part of it."""
        if self.published is None:
            return None
        for sources in (self.published.rows[row].sources, self.published.sources):
            found = {part: source for source, parts in sources.items() for part in parts}
            fitting = [part for part in found if path == part or path.startswith(f"{part}.")]
            if fitting:
                return found[max(fitting, key=len)]
        return None


def shared(rows: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    """What all rows have in common: entries with the same value in each of them.

    >>> shared({"an": {"epochs": 10, "method": "an"}, "ll-r": {"epochs": 10, "method": "ll-r"}})
    {'epochs': 10}
    """
    first, *others = rows.values()
    return {name: value for name, value in first.items() if all(name in row and row[name] == value for row in others)}


def _is_unused(path: str, value: Any) -> bool:
    """Whether a setting does nothing; an option that is None is chosen from the data, and one of 0 for `eps` is off."""
    if path in UNUSED:
        return bool(value == UNUSED[path])
    return path.startswith("options.") and (value is None or (path.endswith(".eps") and value == 0))


def names() -> list[str]:
    """The recipes installed with Tagfill; those for two CPU cores start with `cpu/`."""
    return sorted(path.relative_to(FOLDER).with_suffix("").as_posix() for path in FOLDER.rglob("*.yaml"))


def open_recipe(name: str | Path) -> RecipeFile:
    """Open an installed recipe by its name, or the file at a path.

    Raises:
        TagfillError: if there is no such recipe, or it is not valid.

    >>> open_recipe("spml-voc12").published.rows["ll-r+boost"].reported
    89.29
    """
    text, installed = str(name), names()
    if text in _RENAMED:
        warn_renamed(f"The recipe {text}", _RENAMED[text])
        text = _RENAMED[text]
    if text in installed:
        path = FOLDER / f"{text}.yaml"
    elif Path(name).is_file() or Path(name).suffix in (".yaml", ".yml"):
        path = Path(name)
    else:
        raise unknown_name("recipe", text, installed)
    content = read_content(path)
    block = content.pop("published", None)
    if block is None:
        return RecipeFile(text, path, make_recipe(content, str(path)).model_dump(mode="json"), None)
    try:
        return RecipeFile(text, path, content, Published.model_validate(block))
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join(["published", *map(str, first["loc"])])
        raise TagfillError(f"In {path}, {place}: {first['msg']}.") from None


def settings(name: str | Path, row: str | None = None, *, seed: int = 0) -> dict[str, Any]:
    """The settings of a row of a recipe as plain values; see `RecipeFile.settings`.

    >>> settings("spml-voc12", "ll-r+boost")["head_options"]
    {'boost': 5.0}
    >>> settings("patchml-coco14-kinds", "sp-1", seed=2)["dataset"]
    'coco14-sp-1-s2'
    """
    return open_recipe(name).settings(row, seed=seed)


__getattr__ = renamed(__name__, {"Row": "PublishedRow"})
