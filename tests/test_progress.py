"""Progress in a notebook: one output per cell, which is updated in place, with bars that go and lines that stay."""

from __future__ import annotations

import pickle
import sys
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from tagfill import progress
from tagfill.progress import NOTEBOOK, SILENT, in_notebook


class Kernel:
    """Stands for IPython in a Jupyter kernel; keeps what each cell shows, and how often it was drawn."""

    def __init__(self) -> None:
        self.shell = SimpleNamespace(kernel=object(), execution_count=1)
        self.shown: list[str] = []
        self.drawn = 0

    def display(self, content: str, display_id: bool) -> Any:
        self.shown.append(content)
        self.drawn += 1
        at = len(self.shown) - 1

        def update(newer: str) -> None:
            self.shown[at] = newer
            self.drawn += 1

        return SimpleNamespace(update=update)


@pytest.fixture
def kernel(monkeypatch):
    kernel = Kernel()
    package, shown = ModuleType("IPython"), ModuleType("IPython.display")
    package.get_ipython = lambda: kernel.shell
    shown.HTML, shown.display = str, kernel.display
    monkeypatch.setitem(sys.modules, "IPython", package)
    monkeypatch.setitem(sys.modules, "IPython.display", shown)
    monkeypatch.setattr(NOTEBOOK, "_output", None)
    return kernel


def test_thousands_of_steps_and_lines_are_one_short_output(kernel):
    with NOTEBOOK.bar("training", 10_000, "img") as bar:
        for _ in range(10_000):
            bar.advance()
    for number in range(100):
        NOTEBOOK.say(f"epoch {number}")
    assert len(kernel.shown) == 1
    assert kernel.drawn < 200
    assert "<progress" not in kernel.shown[0]
    assert "92 earlier lines" in kernel.shown[0]
    assert "epoch 99" in kernel.shown[0]
    assert "epoch 91" not in kernel.shown[0]


def test_a_bar_says_how_much_is_done_and_left(kernel, monkeypatch):
    now = 0.0
    monkeypatch.setattr(progress.time, "monotonic", lambda: now)
    with NOTEBOOK.bar("reading <a>", 200, "img") as bar:
        now = 10.0
        bar.advance(50)
        assert "reading &lt;a&gt;" in kernel.shown[0]
        assert '<progress value="50" max="200">' in kernel.shown[0]
        assert "50 of 200 · 5 img/s · 0:30 left" in kernel.shown[0]
        now = 11.0
        bar.note("loss 0.5")
        assert "loss 0.5" in kernel.shown[0]
    assert kernel.shown == [""]


def test_the_next_cell_has_an_output_of_its_own(kernel):
    NOTEBOOK.say("first")
    kernel.shell.execution_count = 2
    NOTEBOOK.say("second")
    assert ["first" in html for html in kernel.shown] == [True, False]


@pytest.mark.parametrize("change", ["terminal", "forked", "quiet"])
def test_nothing_is_shown_elsewhere(kernel, monkeypatch, change):
    if change == "terminal":
        kernel.shell.kernel = None
    if change == "forked":
        monkeypatch.setattr(progress, "_PROCESS", -1)
    quiet = SILENT if change == "quiet" else NOTEBOOK
    quiet.say("hello")
    with quiet.bar("task", 3) as bar:
        bar.advance()
    assert kernel.shown == []


def test_workers_get_the_same_object():
    assert pickle.loads(pickle.dumps(NOTEBOOK)) is NOTEBOOK
    assert not in_notebook()
