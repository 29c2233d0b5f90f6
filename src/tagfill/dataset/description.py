"""`dataset.yaml`: name, image root, ordered classes and hierarchy of a dataset.

YAML turns unquoted words into numbers, dates and booleans (`007`, `2024-01-01`, `no`). What must be text is therefore
never converted; the error says which entry to put into quotes.
"""

from __future__ import annotations

import difflib
from collections import Counter
from pathlib import Path
from typing import Annotated, Any

import yaml
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError, field_validator, model_validator

from tagfill.errors import DatasetError

FILE = "dataset.yaml"

_Loader: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)

Edge = Annotated[list[str], Field(min_length=2, max_length=2)]


class Description(BaseModel):
    """The content of a `dataset.yaml`.

    Attributes:
        name: a short name; a number is read as text.
        root: folder or URL of the images, relative to the folder of the dataset.
        classes: distinct names, in the order of the labels.
        hierarchy: [child, parent] pairs of classes.
        truth: folder of the fully labeled dataset that this one was simulated from.
        protocol: how it was simulated.
        conflict: how contradictory rows are resolved, see `tagfill.dataset.Dataset`.
        checksums: SHA-256 of Parquet files, by file name.
    """

    model_config = ConfigDict(strict=True, extra="allow")  # users may add keys of their own

    name: Annotated[str, BeforeValidator(lambda name: str(name) if isinstance(name, int | float) else name)]
    root: str
    classes: list[str]
    hierarchy: list[Edge] = []
    truth: str | None = None
    protocol: dict[Any, Any] | None = None
    conflict: str = "error"
    checksums: dict[str, str] = {}

    @field_validator("classes")
    @classmethod
    def _distinct(cls, classes: list[str]) -> list[str]:
        for number, name in enumerate(classes, start=1):
            if not name.strip():
                raise ValueError(f"entry {number} of 'classes' is blank; give it a name or remove it.")
        for name, count in Counter(classes).items():
            if count > 1:
                raise ValueError(f"class '{name}' is listed {count} times; class names must be distinct.")
        return classes

    @model_validator(mode="after")
    def _no_misspelled_key(self) -> Description:
        optional = [name for name, field in type(self).model_fields.items() if not field.is_required()]
        for key in self.model_extra or {}:
            if near := difflib.get_close_matches(key, optional, n=1, cutoff=0.8):
                raise ValueError(f"there is no key '{key}'; did you mean '{near[0]}'?")
        return self


_EXPECTED = {
    "classes": "a list of names",
    "hierarchy": "a list of [child, parent] pairs",
    "protocol": "a mapping of keys to values",
    "checksums": "a mapping of file names to SHA-256",
}


def read_description(folder: Path) -> Description:
    """Read and check the `dataset.yaml` of a folder.

    Raises:
        DatasetError: naming the file and the first wrong entry.
    """
    if not folder.exists():
        raise DatasetError(f"There is no folder {folder}; give the folder of a dataset.")
    if not folder.is_dir():
        raise DatasetError(f"{folder} is a file, not a dataset folder; give the folder that holds {FILE}.")
    path = folder / FILE
    if not path.is_file():
        raise DatasetError(f"{folder} is not a dataset folder: it has no {FILE}. Make one with 'tagfill import'.")
    try:
        with path.open("rb") as file:
            content: Any = yaml.load(file, Loader=_Loader)  # a safe loader
    except (yaml.YAMLError, UnicodeDecodeError, ValueError) as error:
        raise DatasetError(f"{path} is not valid YAML: {' '.join(str(error).split())}.") from None
    if not isinstance(content, dict):
        raise DatasetError(f"{path} must be a mapping of keys to values (name, root, classes).")
    try:
        return Description.model_validate({str(key): value for key, value in content.items()})
    except ValidationError as error:
        raise DatasetError(_sentence(path, content, error)) from None


def with_checksums(folder: Path, checksums: dict[str, str]) -> bytes:
    """The text of the `dataset.yaml` of a folder with some checksums changed."""
    with (folder / FILE).open("rb") as file:
        content = yaml.load(file, Loader=_Loader)  # a safe loader
    content["checksums"] = {**content.get("checksums", {}), **checksums}
    return dump_description(content)


def dump_description(content: dict[str, Any]) -> bytes:
    """The text of a `dataset.yaml`; names that YAML would read as something else are quoted."""
    return yaml.safe_dump(content, sort_keys=False, allow_unicode=True).encode()


def _sentence(path: Path, content: dict[str, Any], error: ValidationError) -> str:
    """What is wrong with the content of a file, in one sentence."""
    problems = error.errors(include_url=False)
    if missing := [str(problem["loc"][0]) for problem in problems if problem["type"] == "missing"]:
        return f"{path} lacks {', '.join(missing)}; see the documentation of dataset folders."
    problem = problems[0]
    if problem["type"] == "value_error":  # raised by a validator above
        return f"{path}: {problem['ctx']['error']}"
    key, *entry = str(problem["loc"][0]), *problem["loc"][1:]
    if not entry or key in ("protocol", "checksums"):
        quotes = "" if key in _EXPECTED else "; put it into quotes"
        return f"{path}: '{key}' must be {_EXPECTED.get(key, 'text')}, and is {_shown(content[key])}{quotes}."
    where, value = f"entry {int(entry[0]) + 1} of '{key}'", content[key][int(entry[0])]
    if key == "classes":
        return f"{path}: {where} was read as {_shown(value)}, not as text; put the name into quotes."
    return f"{path}: {where} must be a pair [child, parent] of class names in quotes, and is {_shown(value)}."


def _shown(value: Any) -> str:
    """A value that YAML returned, in words: `the int 7`."""
    return "empty" if value is None else f"the {type(value).__name__} {value!s:.60}"
