"""`dataset.yaml`: the name, the image root, the ordered classes and the hierarchy of a dataset.

YAML turns unquoted words into numbers, dates and booleans (`007`, `2024-01-01`, `no`), so everything that must be text
is checked, and the sentence of an error says which entry to put into quotes.
"""

from __future__ import annotations

import difflib
from collections import Counter
from pathlib import Path
from typing import Any

import yaml

from tagfill.errors import DatasetError

FILE = "dataset.yaml"
REQUIRED = ("name", "root", "classes")
OPTIONAL = ("hierarchy", "truth", "protocol", "conflict")

_Loader: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


def read_description(folder: Path) -> dict[str, Any]:
    """The checked content of a folder's `dataset.yaml`."""
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
        raise DatasetError(f"{path} must consist of keys and values ({', '.join(REQUIRED)}).")
    _check_keys(path, content)
    _check_classes(path, content["classes"])
    _check_hierarchy(path, content.get("hierarchy", []))
    _check_kinds(path, content)
    return {**content, "name": str(content["name"])}


def dump_description(content: dict[str, Any]) -> bytes:
    """The text of a `dataset.yaml`; names that YAML would read as something else are quoted."""
    return yaml.safe_dump(content, sort_keys=False, allow_unicode=True).encode()


def _check_keys(path: Path, content: dict[Any, Any]) -> None:
    if missing := [key for key in REQUIRED if key not in content]:
        raise DatasetError(f"{path} lacks {', '.join(missing)}; see the documentation of dataset folders.")
    for key in content:
        near = difflib.get_close_matches(str(key), OPTIONAL, n=1, cutoff=0.8)
        if near and key != near[0]:
            raise DatasetError(f"{path}: there is no key '{key}'; did you mean '{near[0]}'?")


def _check_classes(path: Path, classes: Any) -> None:
    if not isinstance(classes, list):
        raise DatasetError(f"{path}: 'classes' must be a list of names, and is {_described(classes)}.")
    for number, name in enumerate(classes, start=1):
        if not isinstance(name, str):
            raise DatasetError(
                f"{path}: entry {number} of 'classes' was read as {_described(name)}, not as text; "
                "put the name into quotes."
            )
        if not name.strip():
            raise DatasetError(f"{path}: entry {number} of 'classes' is blank; give it a name or remove it.")
    for name, count in Counter(classes).items():
        if count > 1:
            raise DatasetError(f"{path}: class '{name}' is listed {count} times; class names must be distinct.")


def _check_hierarchy(path: Path, edges: Any) -> None:
    if not isinstance(edges, list):
        raise DatasetError(f"{path}: 'hierarchy' must be a list of [child, parent] pairs, and is {_described(edges)}.")
    for number, edge in enumerate(edges, start=1):
        if not (isinstance(edge, list) and len(edge) == 2 and all(isinstance(name, str) for name in edge)):
            raise DatasetError(
                f"{path}: entry {number} of 'hierarchy' must be a pair [child, parent] of class names in quotes, "
                f"and is {_described(edge)}."
            )


def _check_kinds(path: Path, content: dict[str, Any]) -> None:
    if not isinstance(content["name"], str | int | float):
        raise DatasetError(f"{path}: 'name' must be text, and is {_described(content['name'])}.")
    for key in ("root", "truth", "conflict"):
        if key in content and not isinstance(content[key], str):
            raise DatasetError(f"{path}: '{key}' must be text, and is {_described(content[key])}; put it into quotes.")
    protocol = content.get("protocol")
    if protocol is not None and not isinstance(protocol, dict):
        raise DatasetError(f"{path}: 'protocol' must consist of keys and values, and is {_described(protocol)}.")


def _described(value: Any) -> str:
    """A value that YAML gave, in words: `the int 7`."""
    return "empty" if value is None else f"the {type(value).__name__} {value!s:.60}"
