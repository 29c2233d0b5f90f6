"""Progress reports of long tasks.

The library never prints. Functions take a `Progress` and report to it. The command line passes one that draws bars.
The default of functions that take long is `NOTEBOOK`, which draws bars in a Jupyter notebook and nothing elsewhere;
`SILENT` is quiet everywhere.
"""

from __future__ import annotations

import html
import os
import sys
import time
from typing import Any, Protocol


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


# Notebooks

_PROCESS = os.getpid()
_SECONDS_BETWEEN_UPDATES = 0.2
_LINES = 8  # that stay below a cell; older ones are only counted


def in_notebook() -> bool:
    """Whether this process is the kernel of a Jupyter notebook: no script or terminal, and not forked from a kernel."""
    if "IPython" not in sys.modules or os.getpid() != _PROCESS:
        return False
    return getattr(sys.modules["IPython"].get_ipython(), "kernel", None) is not None


class _Notebook:
    """Bars and lines of a notebook; all of a cell share one output, which is updated in place."""

    def __init__(self) -> None:
        self._output: _CellOutput | None = None

    def bar(self, title: str, total: int | None, unit: str = "") -> Bar:
        return _NotebookBar(self._of_cell(), title, total, unit) if in_notebook() else _SilentBar()

    def say(self, text: str) -> None:
        if in_notebook():
            self._of_cell().say(text)

    def _of_cell(self) -> _CellOutput:
        cell = sys.modules["IPython"].get_ipython().execution_count
        if self._output is None or self._output.cell != cell:
            self._output = _CellOutput(cell)
        return self._output

    def __reduce__(self) -> str:
        """Pickle as the name of the only instance; workers are silent."""
        return "NOTEBOOK"

    def __repr__(self) -> str:
        return "NOTEBOOK"


NOTEBOOK: Progress = _Notebook()


class _CellOutput:
    """The bars that are running and the last lines, in the output of one cell."""

    def __init__(self, cell: int) -> None:
        self.cell = cell
        self._bars: list[_NotebookBar] = []
        self._lines: list[str] = []
        self._handle: Any = None
        self._drawn = 0.0

    def say(self, text: str) -> None:
        self._lines.append(text)
        self.draw(now=True)

    def start(self, bar: _NotebookBar) -> None:
        self._bars.append(bar)
        self.draw()

    def stop(self, bar: _NotebookBar) -> None:
        if bar in self._bars:
            self._bars.remove(bar)
        self.draw(now=not self._bars)

    def draw(self, *, now: bool = False) -> None:
        """Update the output, unless it was updated a moment ago."""
        if not now and time.monotonic() - self._drawn < _SECONDS_BETWEEN_UPDATES:
            return
        self._drawn = time.monotonic()
        from IPython.display import HTML, display

        content = HTML(self.html())
        if self._handle is None:
            self._handle = display(content, display_id=True)
        else:
            self._handle.update(content)

    def html(self) -> str:
        """The output: the number of older lines, the last lines, the bars."""
        older = len(self._lines) - _LINES
        lines = [f"… {older:,} earlier lines"] if older > 0 else []
        if not self._lines and not self._bars:
            return ""
        texts = [f"<div>{html.escape(line)}</div>" for line in [*lines, *self._lines[-_LINES:]]]
        bars = [bar.html() for bar in self._bars]
        return f'<div style="font-size:13px;white-space:pre-wrap">{"".join([*texts, *bars])}</div>'


class _NotebookBar:
    """A bar with the time that is left; it disappears when its task ends."""

    def __init__(self, output: _CellOutput, title: str, total: int | None, unit: str) -> None:
        self._output, self._title, self._total, self._unit = output, title, total, unit
        self._done, self._note, self._begin = 0, "", time.monotonic()

    def advance(self, steps: int = 1) -> None:
        self._done += steps
        self._output.draw()

    def note(self, text: str) -> None:
        self._note = text
        self._output.draw()

    def __enter__(self) -> Bar:
        self._begin = time.monotonic()
        self._output.start(self)
        return self

    def __exit__(self, *error: object) -> None:
        self._output.stop(self)

    def html(self) -> str:
        """The title, the bar, numbers and the note."""
        rate = self._done / max(time.monotonic() - self._begin, 1e-9)
        texts = [f"{self._done:,}" if self._total is None else f"{self._done:,} of {self._total:,}"]
        if rate >= 1 and self._unit:
            texts.append(f"{rate:,.0f} {self._unit}/s")
        if self._total is not None and self._done:
            texts.append(f"{duration((self._total - self._done) / rate)} left")
        texts.append(self._note)
        value = "" if self._total is None else f' value="{min(self._done, self._total)}" max="{max(self._total, 1)}"'
        state = " · ".join(filter(None, texts))
        return f"<div>{html.escape(self._title)} <progress{value}></progress> {html.escape(state)}</div>"


def duration(seconds: float) -> str:
    """Hours, minutes and seconds.

    >>> duration(3725.4), duration(59)
    ('1:02:05', '0:59')
    """
    minutes, rest = divmod(round(max(seconds, 0.0)), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{rest:02d}" if hours else f"{minutes}:{rest:02d}"
