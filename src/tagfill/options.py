"""Options that are given by name: reading KEY=VALUE texts, and checking values against a function's signature.

    parse_assignment   "K=1.5,2.5"  →  ("K", "1.5,2.5")
    parse_settings     ["optimizer.lr=1e-3"]  →  (("optimizer.lr", 0.001),)
    check_options      values of keyword arguments, converted to the types that the function declares
    parse_options      the same from NAME=VALUE texts, as the command line's `--option` takes them

The options of a function are its keyword-only parameters, without `seed` and `progress`, which callers pass themselves.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, get_type_hints

from tagfill.errors import TagfillError, unknown_name

if TYPE_CHECKING:  # pydantic and yaml take most of the time of `tagfill --help`, which needs neither
    from pydantic import TypeAdapter, ValidationError

_NOT_OPTIONS = ("progress", "seed")


def parse_assignment(text: str, example: str) -> tuple[str, str]:
    """Split a text at its first equals sign.

    Args:
        text: KEY=VALUE.
        example: a correct one, for the error.

    >>> parse_assignment("memory.storage=disk", example="--set memory.storage=ram")
    ('memory.storage', 'disk')
    >>> parse_assignment("memory.storage", example="--set memory.storage=disk")
    Traceback (most recent call last):
    tagfill.errors.TagfillError: 'memory.storage' has no value; write it as in --set memory.storage=disk.
    """
    key, equals, value = text.partition("=")
    if not equals:
        raise TagfillError(f"'{text}' has no value; write it as in {example}.")
    return key, value


def parse_value(text: str) -> Any:
    """Read a value as YAML does, except that 1e-3 is a number, not a word.

    >>> parse_value("1e-3"), parse_value("true"), parse_value("disk")
    (0.001, True, 'disk')
    """
    import yaml

    try:
        return _number_or_text(yaml.safe_load(text))
    except yaml.YAMLError:
        raise TagfillError(f"'{text}' is not a valid value; quote it as in YAML.") from None


def parse_values(text: str, example: str) -> list[Any]:
    """Read values that are separated by commas; a value may be a list in brackets.

    Args:
        text: the values.
        example: a correct KEY=VALUES, for the error.

    >>> parse_values("1e-3,[0.25,1.0]", example="--set crop_scale=[0.25,1.0]")
    [0.001, [0.25, 1.0]]
    """
    import yaml

    try:
        values = yaml.safe_load(f"[{text}]")
    except yaml.YAMLError:
        raise TagfillError(f"'{text}' is not a list of values; write it as in {example}.") from None
    if not values:
        raise TagfillError(f"There is no value; write it as in {example}.")
    return [_number_or_text(value) for value in values]


def parse_settings(texts: Sequence[str]) -> tuple[tuple[str, Any], ...]:
    """Settings of a recipe with their values, as `--set KEY=VALUE` gives them.

    >>> parse_settings(["memory.storage=disk"])
    (('memory.storage', 'disk'),)
    """
    pairs = (parse_assignment(text, example="--set memory.storage=disk") for text in texts)
    return tuple((key, parse_value(value)) for key, value in pairs)


def option_parameters(function: Callable[..., Any]) -> dict[str, inspect.Parameter]:
    """The options of a function or class, in their order.

    >>> list(option_parameters(sorted))
    ['key', 'reverse']
    """
    parameters = inspect.signature(function).parameters.values()
    return {p.name: p for p in parameters if p.kind is p.KEYWORD_ONLY and p.name not in _NOT_OPTIONS}


def check_options(function: Callable[..., Any], options: Mapping[str, Any], what: str) -> dict[str, Any]:
    """Convert options to the types that a function declares.

    Args:
        function: the function or class that takes them.
        options: values by name.
        what: the function as the user knows it, such as "head 'cam'", for errors.

    Raises:
        TagfillError: for an option that does not exist, or a value of another type.
    """
    from pydantic import ValidationError

    types = _option_types(function, options, what)
    values = {}
    for name, value in options.items():
        try:
            values[name] = types[name].validate_python(value)
        except ValidationError as error:
            raise _wrong_value(f"{name}={value!r}", what, error) from None
    return values


def parse_options(
    function: Callable[..., Any],
    texts: Sequence[str],
    what: str,
    *,
    readers: Mapping[str, Callable[[str], Any]] | None = None,
) -> dict[str, Any]:
    """Convert NAME=VALUE texts to options of a function.

    Args:
        function: the function or class that takes them.
        texts: NAME=VALUE; dashes in names are the same as underscores.
        what: the function as the user knows it, such as "format 'voc'", for errors.
        readers: functions that read the text of an option instead of the type that the function declares.

    Raises:
        TagfillError: for an option that does not exist, or a text that is no value of its type.
    """
    from pydantic import ValidationError

    pairs = (parse_assignment(text, example="--option NAME=VALUE") for text in texts)
    given = {name.replace("-", "_"): text for name, text in pairs}
    types = _option_types(function, given, what)
    values = {}
    for name, text in given.items():
        if readers and name in readers:
            values[name] = readers[name](text)
            continue
        try:
            values[name] = types[name].validate_strings(text)
        except ValidationError:
            try:
                values[name] = types[name].validate_json(text)
            except ValidationError as error:
                raise _wrong_value(f"{name}={text}", what, error) from None
    return values


def require_options(function: Callable[..., Any], options: Mapping[str, Any], what: str) -> None:
    """Raise if an option without a default is missing."""
    missing = [name for name, p in option_parameters(function).items() if p.default is p.empty and name not in options]
    if missing:
        raise TagfillError(f"The {what} needs --option {missing[0]}=…; see `tagfill list` for its meaning.")


def _option_types(function: Callable[..., Any], names: Mapping[str, Any], what: str) -> dict[str, TypeAdapter[Any]]:
    from pydantic import TypeAdapter

    known = option_parameters(function)
    for name in names:
        if name not in known:
            raise unknown_name("option", name, known or ["none"], of=what)
    hints = get_type_hints(function.__init__ if inspect.isclass(function) else function)
    return {name: TypeAdapter(hints[name]) for name in names}


def _wrong_value(option: str, what: str, error: ValidationError) -> TagfillError:
    return TagfillError(f"Option {option} of {what}: {error.errors()[0]['msg']}.")


def _number_or_text(value: Any) -> Any:
    if not isinstance(value, str):
        return value
    try:
        return float(value)
    except ValueError:
        return value
