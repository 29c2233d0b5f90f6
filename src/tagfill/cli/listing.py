"""List what can be named: methods, heads, protocols.

Example: `tagfill list methods`
"""

from __future__ import annotations

import inspect
from typing import Annotated, Any

import typer

from tagfill.cli import options, terminal
from tagfill.errors import unknown_name


def list_(
    what: Annotated[str, typer.Argument(help="`methods`, `heads` or `protocols`.")], as_json: options.Json = False
) -> None:
    """List."""
    tables = {"methods": _methods, "heads": _heads, "protocols": _protocols}
    if what not in tables:
        raise unknown_name("list", what, tables)
    rows = [_describe(name, make) for name, make in tables[what]().items()]
    if as_json:
        terminal.show_json(rows)
        return
    shown = [[row["name"], row["about"], ", ".join(f"{k}={v}" for k, v in row["options"].items())] for row in rows]
    terminal.show_table(what, ["name", "about", "options"], shown)


def _methods() -> dict[str, Any]:
    from tagfill.methods import METHODS

    return METHODS


def _heads() -> dict[str, Any]:
    from tagfill.models import HEADS

    return HEADS


def _protocols() -> dict[str, Any]:
    from tagfill.protocols import PROTOCOLS

    return PROTOCOLS


def _describe(name: str, make: Any) -> dict[str, Any]:
    """Name, first line of the documentation, and options with their defaults."""
    parameters = inspect.signature(make).parameters.values()
    options_ = {p.name: p.default for p in parameters if p.kind is p.KEYWORD_ONLY}
    return {"name": name, "about": (inspect.getdoc(make) or "").partition("\n")[0], "options": options_}
