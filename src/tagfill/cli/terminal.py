"""Output of the command line: progress bars on a terminal, plain lines elsewhere, tables of results.

Names of images, classes and files come from data. Nothing in them is interpreted: not as markup, and not by the
terminal, since control characters are shown as escapes.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from tagfill.cli.running import printable
from tagfill.progress import SILENT, Bar, Progress, duration

if TYPE_CHECKING:
    from rich.console import Console

    from tagfill.experiments.leaderboard import Leaderboard


_SECONDS_BETWEEN_LINES = 10.0
_SHORT = 13  # characters of a column whose words are never split
_WIDE = 110  # columns of a terminal that has room for a column of text


def is_main_process() -> bool:
    """Whether this process prints; with several processes, only the first does."""
    names = ("RANK", "SLURM_PROCID", "LOCAL_RANK")
    return next((os.environ[name] for name in names if name in os.environ), "0") == "0"


def progress(quiet: bool) -> Progress:
    """Bars if standard error is a terminal, lines if not; nothing with `quiet` or in another than the main process."""
    if quiet or not is_main_process():
        return SILENT
    from rich.console import Console  # half as long to import as all the rest of the command line

    console = Console(stderr=True)
    return _BarProgress(console) if console.is_terminal else _LineProgress()


def show_json(content: Any) -> None:
    """Print one JSON document to standard output; control characters are escaped in the way of JSON."""
    if not is_main_process():
        return
    text = json.dumps(content, indent=2, ensure_ascii=False)
    sys.stdout.write(printable(text, escape="\\u{:04x}") + "\n")


def show_table(title: str, columns: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Print a table to standard output, with numbers aligned to the right.

    On a narrow terminal, headers are wrapped between words; if that is not enough, the borders are left out.
    """
    if not is_main_process():
        return
    from rich.box import SIMPLE_HEAD
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    texts = [[printable(text, keep="") for text in column] for column in zip(columns, *rows, strict=True)]
    natural = [max(map(len, column)) for column in texts]
    narrow = [max(len(word) for text in column for word in text.split() or [""]) for column in texts]
    available, borders = Console().width, 3 * len(columns) + 1
    wraps = sum(natural) + borders > available
    least = sum(min(width, _SHORT) for width in narrow)
    table = Table(title=Text(printable(title, keep="")), title_justify="left", title_style="bold")
    if wraps and least + borders > available:
        table.box, table.padding, table.show_edge = SIMPLE_HEAD, (0, 0), False
    for position, (header, *cells) in enumerate(texts):
        numbers = all(cell.strip("-%").replace(",", "").replace(".", "", 1).isdigit() for cell in cells)
        word = max(map(len, header.split()), default=0)  # a header is never broken within a word
        width = narrow[position] if wraps and natural[position] <= _SHORT else None
        table.add_column(
            Text(header), justify="right" if numbers else "left", overflow="fold", width=width, min_width=word
        )
    for row in list(zip(*texts, strict=True))[1:]:
        table.add_row(*map(Text, row))
    Console(width=max(available, least + len(columns))).print(table)


def show_board(board: Leaderboard, title: str) -> None:
    """Print a leaderboard to standard output, without columns that say nothing."""
    from rich.console import Console

    columns, rows = board.columns(), board.rows()
    informative = {column: any(row[at] != "–" for row in rows) for at, column in enumerate(columns)}
    informative["±"] = any(len(score.values) > 1 for score in board.scores)
    narrow = Console().width < _WIDE
    informative["settings"] = informative["seconds"] = not narrow
    shown = [column for column in columns if informative[column]]
    show_table(title, shown, [[row[columns.index(name)] for name in shown] for row in rows])
    for row in rows if narrow else []:  # text in a narrow column would be hard to read
        if (settings := row[columns.index("settings")]) != "defaults":
            show(f"{row[0]}: {settings}")


def show(text: str) -> None:
    """Print a line to standard output."""
    if not is_main_process():
        return
    sys.stdout.write(printable(text) + "\n")


def warn(text: str) -> None:
    """Print a line to standard error, even with --quiet."""
    if not is_main_process():
        return
    sys.stderr.write(printable(text) + "\n")
    sys.stderr.flush()


def next_step(*commands: str, quiet: bool = False) -> None:
    """Print the commands that usually follow to standard error.

    Args:
        commands: to show, most usual first.
        quiet: show nothing, as with --quiet and --json.
    """
    if quiet or not commands:
        return
    warn("\n".join([f"Next: {commands[0]}", *(f"  or: {command}" for command in commands[1:])]))


class _BarProgress:
    """Bars on a terminal, removed when their task ends."""

    def __init__(self, console: Console) -> None:
        self._console = console

    def bar(self, title: str, total: int | None, unit: str = "") -> Bar:
        return _TerminalBar(self._console, title, total, unit)

    def say(self, text: str) -> None:
        self._console.print(printable(text), highlight=False, markup=False, emoji=False)


class _TerminalBar:
    def __init__(self, console: Console, title: str, total: int | None, unit: str) -> None:
        from rich import progress

        self._progress = progress.Progress(
            progress.SpinnerColumn(),
            progress.TextColumn("{task.description}", markup=False),
            progress.BarColumn(),
            progress.MofNCompleteColumn(),
            progress.TextColumn("{task.fields[rate]}"),
            progress.TimeRemainingColumn(),
            progress.TextColumn("{task.fields[note]}", markup=False),
            console=console,
            transient=True,
        )
        self._task = self._progress.add_task(printable(title), total=total, rate="", note="")
        self._unit = unit

    def advance(self, steps: int = 1) -> None:
        self._progress.advance(self._task, steps)
        speed = self._progress.tasks[0].speed
        if speed is not None and speed >= 1 and self._unit:
            self._progress.update(self._task, rate=f"{speed:,.0f} {self._unit}/s")

    def note(self, text: str) -> None:
        self._progress.update(self._task, note=printable(text))

    def __enter__(self) -> Bar:
        self._progress.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._progress.stop()


class _LineProgress:
    """Lines for logs."""

    def bar(self, title: str, total: int | None, unit: str = "") -> Bar:
        return _LineBar(title, total, unit)

    def say(self, text: str) -> None:
        sys.stderr.write(printable(text) + "\n")
        sys.stderr.flush()


class _LineBar:
    """A line every few seconds; short tasks print nothing."""

    def __init__(self, title: str, total: int | None, unit: str) -> None:
        self._title, self._total, self._unit = title, total, unit
        self._done, self._note = 0, ""
        self._begin = self._last = time.monotonic()

    def advance(self, steps: int = 1) -> None:
        self._done += steps
        now = time.monotonic()
        if now - self._last >= _SECONDS_BETWEEN_LINES:
            self._last = now
            of = "" if self._total is None else f"/{self._total}"
            rate = self._done / (now - self._begin)
            left = "" if self._total is None else f" {duration((self._total - self._done) / rate)} left"
            speed = f" {rate:,.0f} {self._unit}/s" if rate >= 1 else ""
            line = f"{self._title} {self._done}{of}{speed}{left} {self._note}"
            sys.stderr.write(printable(line.rstrip()) + "\n")
            sys.stderr.flush()

    def note(self, text: str) -> None:
        self._note = text

    def __enter__(self) -> Bar:
        return self

    def __exit__(self, *error: object) -> None: ...
