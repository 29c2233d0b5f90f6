"""How long work reports its progress without knowing whether anybody watches.

Libraries below the command line never print. They take a `Progress` and tell it how far they are; the
command line passes one that draws bars, everybody else gets `SILENT`.
"""

from __future__ import annotations

from typing import Protocol


class Bar(Protocol):
    """One job under way."""

    def advance(self, steps: int = 1) -> None:
        """So many more steps are done."""

    def note(self, text: str) -> None:
        """A few words about the current state, such as the loss, shown beside the bar."""

    def __enter__(self) -> Bar:
        """The job begins."""
        ...

    def __exit__(self, *error: object) -> None:
        """The job has ended, well or not."""


class Progress(Protocol):
    """Whoever shows bars and lines to a person."""

    def bar(self, title: str, total: int | None, unit: str = "") -> Bar:
        """Begin a job of `total` steps."""
        ...

    def say(self, text: str) -> None:
        """One line worth knowing."""


class _SilentBar:
    def advance(self, steps: int = 1) -> None: ...
    def note(self, text: str) -> None: ...
    def __enter__(self) -> Bar:
        return self

    def __exit__(self, *error: object) -> None: ...


class _Silent:
    def bar(self, title: str, total: int | None, unit: str = "") -> Bar:
        return _SilentBar()

    def say(self, text: str) -> None: ...


SILENT: Progress = _Silent()
