"""Options of functions that are chosen by name: `--option NAME=VALUE`, checked against the function's own signature."""

from __future__ import annotations

import inspect
import json
from collections.abc import Callable, Sequence
from typing import Annotated, Any, get_type_hints

import typer
from pydantic import TypeAdapter, ValidationError

from tagfill.errors import TagfillError, unknown_name

Options = Annotated[
    list[str] | None,
    typer.Option("--option", "-o", metavar="NAME=VALUE", help="An option of what was chosen; see `tagfill list`."),
]

_OURS = ("progress", "seed")  # keywords that have flags of their own


def keywords(function: Callable[..., Any]) -> dict[str, inspect.Parameter]:
    """The options of a function: its keyword-only parameters, but for those with flags of their own."""
    parameters = inspect.signature(function).parameters.values()
    return {p.name: p for p in parameters if p.kind is p.KEYWORD_ONLY and p.name not in _OURS}


def parse(function: Callable[..., Any], texts: Sequence[str], what: str) -> dict[str, Any]:
    """Values for a function's options, converted to the types that it declares.

    Args:
        function: whose options they are.
        texts: of the form NAME=VALUE; dashes in names stand for underscores. An `image_size` is a side or HxW, as it is
            everywhere.
        what: is being called, for errors, as in "format 'voc'".
    """
    known, hints = keywords(function), get_type_hints(function)
    values = {}
    for text in texts:
        name, equals, value = text.partition("=")
        name = name.replace("-", "_")
        if not equals:
            raise TagfillError(f"--option {text} has no value; write it as NAME=VALUE.")
        if name not in known:
            raise unknown_name("option", name, known or ["none"], of=what)
        values[name] = _convert(hints[name], _as_written(name, value), f"--option {text} of {what}")
    return values


def require(function: Callable[..., Any], given: dict[str, Any], what: str) -> None:
    """Refuse to call a function without the options that have no default."""
    lacking = [name for name, p in keywords(function).items() if p.default is p.empty and name not in given]
    if lacking:
        raise TagfillError(f"The {what} needs --option {lacking[0]}=…; see `tagfill list` for its meaning.")


def _as_written(name: str, text: str) -> str:
    if name != "image_size":
        return text
    from tagfill.images import input_size

    return json.dumps(input_size(text))


def _convert(hint: Any, text: str, where: str) -> Any:
    adapter: TypeAdapter[Any] = TypeAdapter(hint)
    for attempt in (adapter.validate_strings, adapter.validate_json):
        try:
            return attempt(text)
        except ValidationError as error:
            problem = error.errors()[0]["msg"]
    raise TagfillError(f"{where}: {problem}.")
