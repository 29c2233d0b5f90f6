"""What takes part in a comparison: a method, with the options of its head where they matter.

ll-r                 a method
en+scl               methods that add up
ll-r:boost=5         a method with an option of the head
full                 complete labels, the ceiling; needs a dataset that was simulated
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from tagfill import methods
from tagfill.errors import TagfillError

FULL, FLOOR = "full", "an"


@dataclass(frozen=True)
class Entry:
    """A line of a leaderboard to be.

    Attributes:
        name: as it was written.
        method: what trains.
        head_options: of its head.
        complete: train on complete labels.
        options: of its method, by the method's name, in place of those of all.
        dataset: a folder with other labels of the same images that it is given instead, such as points.
        note: what is particular about that, for the leaderboard.
    """

    name: str
    method: str
    head_options: dict[str, Any] = field(default_factory=dict)
    complete: bool = False
    options: dict[str, dict[str, Any]] = field(default_factory=dict)
    dataset: Path | None = None
    note: str = ""


def parse(text: str) -> list[Entry]:
    """Entries from a list joined by commas, each once, in that order.

    Raises:
        TagfillError: for a method that does not exist, or an option without a value.

    >>> [(entry.method, entry.head_options) for entry in parse("an,ll-r:boost=5")]
    [('an', {}), ('ll-r', {'boost': 5})]
    """
    names = [part.strip() for part in text.split(",") if part.strip()]
    if not names:
        raise TagfillError("There is nothing to compare; name methods as in --methods an,en+scl,role.")
    return [_entry(name) for name in dict.fromkeys(names)]


def _entry(name: str) -> Entry:
    method, *rest = name.split(":")
    if method == FULL:
        return Entry(name, "bce", _options(name, rest), complete=True)
    methods.create(method)  # says what is wrong with a name
    return Entry(name, method, _options(name, rest))


def _options(name: str, texts: list[str]) -> dict[str, Any]:
    options = {}
    for text in texts:
        key, equals, value = text.partition("=")
        if not equals:
            raise TagfillError(f"'{name}': the head's option '{text}' has no value; write it as in ll-r:boost=5.")
        options[key] = yaml.safe_load(value)
    return options
