"""Progress reports of long tasks.

The library never prints. Functions take a `Progress` and report to it; the command line passes one that draws bars, and
the default is `SILENT`.
"""

from __future__ import annotations

from typing import Protocol


class Bar(Protocol):
    """The progress of one task."""

    def advance(self, steps: int = 1) -> None:
        """Report `steps` more finished steps."""

    def note(self, text: str) -> None:
        """Show a short text beside the bar, such as the current loss."""

    def __enter__(self) -> Bar:
        """Start the task."""
        ...

    def __exit__(self, *error: object) -> None:
        """End the task, with or without an error."""


class Progress(Protocol):
    """Shows bars and lines to the user."""

    def bar(self, title: str, total: int | None, unit: str = "") -> Bar:
        """Create the bar of a task of `total` steps."""
        ...

    def say(self, text: str) -> None:
        """Show a line of text."""


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
