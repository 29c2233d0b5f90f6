"""What a recipe of a published table says besides its settings: where the numbers are from, and how to get there.

The block `published:` stands in the same file as the settings. Rows of the table differ in a few settings, which each
row lists by their paths, as `--set` would give them; nothing else is inherited from anywhere.


Finding recipes: by the name of one that is installed with Tagfill, or by the path of a file.

Recipes of the rows that papers report, one flat file for each family of rows, and the same scaled to two cores.
"""

from __future__ import annotations

import copy
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from tagfill.errors import TagfillError, unknown_name
from tagfill.training import make_recipe, override
from tagfill.training.recipe import read_content


class _Part(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Metric(_Part):
    """How the paper scored: numbers of different definitions must not be compared."""

    split: str = "test"
    average_precision: Literal["step", "rank", "voc12", "voc07"] = "step"
    empty: Literal["skip", "zero"] = "skip"  # a class without a positive


class Row(_Part):
    """A row of the table.

    Attributes:
        reported: the paper's number in percent, or several by their names; None where it gives none.
        set: settings of this row by their paths.
        note: what is particular about it.
    """

    reported: float | dict[str, float] | None = None
    set: dict[str, Any] = {}
    note: str = ""


class Published(_Part):
    """Where a recipe comes from.

    Attributes:
        about: what is compared, in a sentence.
        paper: authors, title, venue; None for comparisons of our own.
        table: of the paper.
        hardware: that a run takes, by our estimate unless the paper says so.
        metric: how the paper scored.
        data: commands that make the datasets, from the folder that the original release was unpacked in.
        evaluate: commands that score a run.
        grid: settings that the paper searched, and their values; the recipe has the value that was chosen, if known.
        seeds: runs that a number is the mean of.
        rows: of the table.
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
    rows: dict[str, Row] = Field(min_length=1)

    def best(self) -> tuple[str, float] | None:
        """The row with the largest number, of those with a single kind of it the first kind; None without numbers."""
        numbers = {name: _first(row.reported) for name, row in self.rows.items()}
        known = {name: number for name, number in numbers.items() if number is not None}
        return max(known.items(), key=lambda item: item[1]) if known else None


def _first(reported: float | dict[str, float] | None) -> float | None:
    return next(iter(reported.values())) if isinstance(reported, dict) else reported


FOLDER = Path(__file__).parent


@dataclass(frozen=True)
class RecipeFile:
    """A recipe as it is on disk.

    Attributes:
        name: that it is known by, or its path.
        path: of the file.
        content: all settings but those of rows.
        published: what the file says about a paper's table; None for a plain recipe.
    """

    name: str
    path: Path
    content: dict[str, Any]
    published: Published | None

    def row(self, name: str | None) -> tuple[str, Row] | None:
        """A row by its name, or the only one; None for a recipe without rows."""
        if self.published is None:
            if name is not None:
                raise TagfillError(f"The recipe {self.name} has no rows; leave out --row.")
            return None
        rows = self.published.rows
        if name is None:
            if len(rows) > 1:
                raise TagfillError(
                    f"The recipe {self.name} holds several rows; choose one by --row: {', '.join(rows)}."
                )
            name = next(iter(rows))
        if name not in rows:
            raise unknown_name("row", name, rows, of=self.name)
        return name, rows[name]

    def settings(self, row: str | None = None) -> dict[str, Any]:
        """The settings of one row as plain values, for `tagfill.training.make_recipe`."""
        content, found = copy.deepcopy(self.content), self.row(row)
        for path, value in (found[1].set if found else {}).items():
            override(content, path, copy.deepcopy(value))
        return content


def names() -> list[str]:
    """The recipes that are installed with Tagfill; those scaled to two cores begin with `cpu/`."""
    return sorted(path.relative_to(FOLDER).with_suffix("").as_posix() for path in FOLDER.rglob("*.yaml"))


def open_recipe(name: str | Path) -> RecipeFile:
    """A recipe by its name, or the file at a path.

    Raises:
        TagfillError: if there is no such recipe, or it is not valid.

    >>> open_recipe("spml-voc12").published.rows["ll-r+boost"].reported
    89.29
    """
    text, installed = str(name), names()
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
        return RecipeFile(text, path, content, Published(**block))
    except (ValidationError, TypeError) as error:
        first = error.errors()[0] if isinstance(error, ValidationError) else {"loc": (), "msg": "a block of names"}
        place = ".".join(["published", *map(str, first["loc"])])
        raise TagfillError(f"In {path}, {place}: {first['msg']}.") from None


def settings(name: str | Path, row: str | None = None) -> dict[str, Any]:
    """The settings of a row of a recipe as plain values.

    >>> settings("spml-voc12", "ll-r+boost")["head_options"]
    {'boost': 5.0}
    """
    return open_recipe(name).settings(row)
