"""The errors that a user can act on.

Every message is one sentence that says what was found, where, and what to do about it. The command line
shows it without a traceback and exits with code 2; anything else that escapes is our own fault (code 1).
"""

from __future__ import annotations

import difflib
import re
import reprlib
from collections.abc import Iterable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pydantic import ValidationError

_ENDLESS = re.compile(r"\S{400,}")
_LINES = re.compile(r"\s*[\r\n]\s*")
_SHOWN = 150  # characters at either end


class TagfillError(Exception):
    """A mistake in what was given to Tagfill: data, options, or the state of a folder.

    What a damaged file has in place of a name can be endless or have several lines; the message shows its two ends,
    and is one line.
    """

    def __init__(self, message: str) -> None:
        message = _LINES.sub(" ", message)
        super().__init__(_ENDLESS.sub(lambda word: f"{word[0][:_SHOWN]}…{word[0][-_SHOWN:]}", message))


class DatasetError(TagfillError):
    """A dataset folder, table or annotation that cannot be read as it stands."""


class ImageError(TagfillError):
    """An image that cannot be decoded; `image` is its identity in the dataset."""

    def __init__(self, image: str, problem: str) -> None:
        super().__init__(f"Image {image}: {problem}.")
        self.image = image
        self.problem = problem

    def __reduce__(self) -> tuple[type[ImageError], tuple[str, str]]:
        """Worker processes send the error back whole."""
        return type(self), (self.image, self.problem)


class RunError(TagfillError):
    """A run folder that cannot be created, resumed or read."""


def unknown_name(what: str, name: str, known: Iterable[str], *, of: str = "") -> TagfillError:
    """The error for a name that is not in a table, with the nearest one that is.

    >>> str(unknown_name("method", "rol", ["an", "role"]))
    "There is no method 'rol'; did you mean 'role'? Known: an, role."
    >>> str(unknown_name("option", "warmup", ["rate"], of="method 'll-r'"))
    "There is no option 'warmup' of method 'll-r'. Known: rate."
    """
    names = sorted(known)
    near = difflib.get_close_matches(name, names, n=1)
    hint = f"; did you mean '{near[0]}'?" if near else "."
    owner = f" of {of}" if of else ""
    return TagfillError(f"There is no {what} '{name}'{owner}{hint} Known: {', '.join(names)}.")


def one_of(option: str, value: str, known: Iterable[str]) -> None:
    """Refuse a word that is not among those that an option can be.

    >>> one_of("images", "some", ["annotated", "all"])
    Traceback (most recent call last):
    tagfill.errors.TagfillError: images is 'some'; give one of annotated, all.
    """
    words = list(known)
    if value not in words:
        raise TagfillError(f"{option} is '{value}'; give one of {', '.join(words)}.")


def first_problem(error: ValidationError) -> str:
    """Describe the first problem of a file that pydantic refused, as part of a sentence.

    >>> from pydantic import BaseModel, ValidationError
    >>> class Size(BaseModel):
    ...     height: int
    >>> for text in ('{"height": "a"}', "{}", "", "7"):
    ...     try:
    ...         Size.model_validate_json(text)
    ...     except ValidationError as error:
    ...         print(first_problem(error))
    'height' is 'a' (Input should be a valid integer, unable to parse string as an integer)
    'height' is missing
    it is not valid JSON
    it is 7 (Input should be an object)
    """
    first = error.errors(include_url=False)[0]
    place = f"'{'.'.join(map(str, first['loc']))}'" if first["loc"] else "it"
    if first["type"] == "json_invalid":
        return "it is not valid JSON"
    if first["type"] == "value_error":  # raised by a validator of ours
        return str(first["ctx"]["error"])
    if first["type"] == "missing":
        return f"{place} is missing"
    return f"{place} is {reprlib.repr(first['input'])} ({first['msg']})"
