"""Errors that a user can act on.

Every message is one sentence: what is wrong, where, and what to do about it. The command line prints it without a
traceback and exits with code 2. Any other exception is an internal error (code 1).
"""

from __future__ import annotations

import difflib
import re
import reprlib
from collections.abc import Iterable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pydantic import ValidationError

_LONG_WORD = re.compile(r"\S{400,}")
_LINE_BREAKS = re.compile(r"\s*[\r\n]\s*")
_SHOWN = 150  # characters at each end of a long word


class TagfillError(Exception):
    """A user error: in data, in options, or in the state of a folder.

    The message is put on one line, and very long words, as damaged files have them, are shortened.
    """

    def __init__(self, message: str) -> None:
        message = _LINE_BREAKS.sub(" ", message)
        super().__init__(_LONG_WORD.sub(lambda word: f"{word[0][:_SHOWN]}…{word[0][-_SHOWN:]}", message))


class TagfillWarning(UserWarning):
    """Something that may be wrong, in data that can be used; the message is one sentence."""


class LockedError(TagfillError):
    """A folder that another process works in."""


class DatasetError(TagfillError):
    """A dataset folder, table or annotation that cannot be read."""


class ImageError(TagfillError):
    """An image that cannot be decoded; `image` is its identity in the dataset."""

    def __init__(self, image: str, problem: str) -> None:
        super().__init__(f"Image {image}: {problem}.")
        self.image = image
        self.problem = problem

    def __reduce__(self) -> tuple[type[ImageError], tuple[str, str]]:
        """Pickle with both arguments, for errors of worker processes."""
        return type(self), (self.image, self.problem)


class ImageLimitError(ImageError):
    """An image beyond a limit: too many pixels, scans or segments, or too slow to decode."""


class RunError(TagfillError):
    """A run folder that cannot be created, resumed or read."""


def unknown_name(what: str, name: str, known: Iterable[str], *, of: str = "") -> TagfillError:
    """The error for an unknown name, with the most similar known one.

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
    """Raise if the value of an option is not one of the known ones.

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
