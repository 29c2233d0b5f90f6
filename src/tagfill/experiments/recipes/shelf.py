"""Finding recipes: by the name of one that is installed with Tagfill, or by the path of a file."""

from __future__ import annotations

import copy
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from tagfill.errors import TagfillError, unknown_name
from tagfill.experiments.recipes.published import Published, Row
from tagfill.training import make_recipe, override
from tagfill.training.recipe import read_content

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
