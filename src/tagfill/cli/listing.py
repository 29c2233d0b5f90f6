"""List what can be named: methods, heads, protocols, formats.

Example: `tagfill list methods`
"""

from __future__ import annotations

import inspect
from typing import Annotated, Any

import typer

from tagfill.cli import keywords, options, terminal
from tagfill.errors import unknown_name


def list_(
    what: Annotated[str, typer.Argument(help="`methods`, `heads`, `protocols` or `formats`.")],
    as_json: options.Json = False,
) -> None:
    """List."""
    tables = {"methods": _methods, "heads": _heads, "protocols": _protocols, "formats": _formats}
    if what not in tables:
        raise unknown_name("list", what, tables)
    rows = tables[what]()
    if as_json:
        terminal.show_json(rows)
        return
    columns = [column for column in ("name", "about", "paper", "needs", "options") if column in rows[0]]
    terminal.show_table(what, columns, [[_cell(row[column]) for column in columns] for row in rows])


def _methods() -> list[dict[str, Any]]:
    from tagfill.methods import ALIASES, METHODS

    rows = [_describe_method(name, make) for name, make in METHODS.items()]
    return rows + [
        {**row, "name": alias, "about": f"Another name of {name}.", "alias_of": name}
        for alias, name in ALIASES.items()
        for row in rows
        if row["name"] == name
    ]


def _describe_method(name: str, make: Any) -> dict[str, Any]:
    """Besides the rest, where a method was published and what it asks of model and data."""
    method, row = make(), _describe(name, make)
    options = row.pop("options")
    return {**row, "paper": method.paper, "needs": sorted(method.needs), "options": options}


def _heads() -> list[dict[str, Any]]:
    from tagfill.models import HEADS

    return [_describe(name, make) for name, make in HEADS.items()]


def _protocols() -> list[dict[str, Any]]:
    from tagfill.protocols import PROTOCOLS

    return [_describe(name, make) for name, make in PROTOCOLS.items()]


def _formats() -> list[dict[str, Any]]:
    from tagfill import formats, scenes

    rows = [{**_describe(name, formats.get(name).read), "about": formats.get(name).TITLE} for name in formats.FORMATS]
    return [*rows, {**_describe("scenes", scenes.make), "about": "the embedded dataset, rendered"}]


def _describe(name: str, make: Any) -> dict[str, Any]:
    """Name, first line of the documentation, and options with their defaults."""
    defaults = {
        option: None if parameter.default is parameter.empty else parameter.default
        for option, parameter in keywords.keywords(make).items()
    }
    return {"name": name, "about": (inspect.getdoc(make) or "").partition("\n")[0], "options": defaults}


def _cell(value: Any) -> str:
    """What a table shows: text as it is, lists and options one after the other."""
    if isinstance(value, dict):
        return ", ".join(_option(*item) for item in value.items())
    return ", ".join(value) if isinstance(value, list) else str(value)


def _option(name: str, default: Any) -> str:
    return name if default is None else f"{name}={default}"
