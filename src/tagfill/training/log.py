"""Everything worth knowing about a run also goes into its `log.txt`."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

from tagfill.progress import Bar, Progress


class Logged:
    """Passes progress on, and keeps the lines in a file with the time of day."""

    def __init__(self, progress: Progress, path: Path) -> None:
        self._progress, self._path = progress, path

    def bar(self, title: str, total: int | None, unit: str = "") -> Bar:
        """Bars are for the screen only."""
        return self._progress.bar(title, total, unit)

    def say(self, text: str) -> None:
        """Show a line and keep it."""
        with self._path.open("a", encoding="utf-8") as file:
            file.write(f"{datetime.now(UTC):%Y-%m-%d %H:%M:%S}Z {text}\n")
        self._progress.say(text)
