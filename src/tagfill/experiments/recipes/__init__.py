"""Recipes of published tables: one YAML file per table, and versions of some that run on two CPU cores.

A file holds the settings of a run and a block `published:`, which says where the numbers come from and how to get the
data. The rows of a table differ in a few settings, which each row lists by their paths, as `--set` would give them.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from tagfill.deprecation import renamed, warn_renamed
from tagfill.errors import TagfillError, unknown_name
from tagfill.training import make_recipe
from tagfill.training.recipe import read_content, with_overrides

FOLDER = Path(__file__).parent
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
    """

    reported: float | dict[str, float] | None = None
    set: dict[str, Any] = {}
    note: str = ""


class Published(_Part):
    """Where a recipe comes from.

    Attributes:
        about: what is compared, in one sentence.
        paper: authors, title, venue; None for our own comparisons.
        table: of the paper.
        hardware: needed for a run, by our estimate unless the paper says so.
        metric: how the paper scored.
        data: commands that make the datasets, run in the folder where the original release was unpacked.
        evaluate: commands that score a run.
        grid: settings that the paper searched, with their values; the recipe has the chosen value if it is known.
        seeds: number of runs that a reported number is the mean of.
        rows: of the table, by name.
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
    rows: dict[str, PublishedRow] = Field(min_length=1)

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
        if name not in rows:
            raise unknown_name("row", name, rows, of=self.name)
        return name, rows[name]

    def settings(self, row: str | None = None) -> dict[str, Any]:
        """The settings of one row as plain values, for `tagfill.training.make_recipe`."""
        found = self.row(row)
        return with_overrides(self.content, (found[1].set if found else {}).items())


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


def settings(name: str | Path, row: str | None = None) -> dict[str, Any]:
    """The settings of a row of a recipe as plain values.

    >>> settings("spml-voc12", "ll-r+boost")["head_options"]
    {'boost': 5.0}
    """
    return open_recipe(name).settings(row)


__getattr__ = renamed(__name__, {"Row": "PublishedRow"})
