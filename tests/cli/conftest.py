"""Run the command line in this process, which is faster than a process per command."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import NamedTuple

import pytest

from tagfill.cli import main


class Outcome(NamedTuple):
    """Exit code, standard output and standard error of a command."""

    code: int
    out: str
    err: str


@pytest.fixture
def call(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Callable[..., Outcome]:
    """Call `tagfill` with arguments, on a terminal with a number of columns."""

    def run_command(*arguments: str, columns: int = 120) -> Outcome:
        monkeypatch.setattr(sys, "argv", ["tagfill", *arguments])
        monkeypatch.setenv("COLUMNS", str(columns))
        with pytest.raises(SystemExit) as ending:
            main()
        return Outcome(int(ending.value.code or 0), *capsys.readouterr())

    return run_command
