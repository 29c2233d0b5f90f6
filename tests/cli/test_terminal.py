from __future__ import annotations

import io
import json

import pytest
from rich.console import Console

from tagfill.cli import terminal

COLUMNS = ["method", "test mAP", "±", "gap closed", "annotation", "recovered P", "recovered R"]
ROWS = [["ll-r:boost=5", "80.12", "1.21", "31%", "1.3 h", "83.1%", "45.0%"]]


@pytest.mark.parametrize("extra", [0, 3])
def test_words_of_short_columns_are_not_split_on_a_narrow_terminal(monkeypatch, capsys, extra):
    monkeypatch.setenv("COLUMNS", "80")
    terminal.show_table("Leaderboard", [*COLUMNS, *["loss"] * extra], [[*row, *["1.25"] * extra] for row in ROWS])
    shown = capsys.readouterr().out
    for text in (*COLUMNS, *ROWS[0]):
        assert all(word in shown.replace("│", " ").replace("┃", " ").split() for word in text.split()), text
    assert max(map(len, shown.splitlines())) <= 80


def test_long_texts_are_wrapped(monkeypatch, capsys):
    monkeypatch.setenv("COLUMNS", "40")
    terminal.show_table("heads", ["name", "about"], [["cam", "class maps by a convolution, logits by their mean"]])
    assert max(map(len, capsys.readouterr().out.splitlines())) <= 40


@pytest.mark.parametrize("name", ["RANK", "SLURM_PROCID", "LOCAL_RANK"])
def test_only_the_first_of_several_processes_prints(monkeypatch, capsys, name):
    monkeypatch.setenv(name, "1")
    terminal.show("text")
    terminal.show_json({})
    terminal.show_table("title", ["column"], [["cell"]])
    terminal.warn("text")
    assert capsys.readouterr() == ("", "")


HOSTILE = ["[/red]", "[bold]b", ":smile:", "\x1b[2J\x07", "a\nb", "\x9b31m", "\u202egpj.exe", "\udc80"]
SHOWN = ["[/red]", "[bold]b", ":smile:", r"\x1b[2J\x07", r"a\nb", r"\x9b31m", r"\u202egpj.exe", r"\udc80"]


def test_names_in_tables_are_shown_as_they_are(capsys):
    terminal.show_table("[/title] \x1b", ["[/class]", "n"], [[name, "1"] for name in HOSTILE])
    shown = capsys.readouterr().out
    for name in (*SHOWN, r"[/title] \x1b", "[/class]"):
        assert name in shown, name
    assert not set(shown) & set("\x1b\x07\x9b\u202e")


def test_names_in_lines_are_shown_as_they_are(capsys):
    for say in (terminal.show, terminal.warn, terminal.progress(False).say):
        say(" ".join(HOSTILE))
    captured = capsys.readouterr()
    assert (captured.out + captured.err).count(" ".join(SHOWN).replace(r"\n", "\n")) == 3


def test_json_has_no_control_characters_and_the_same_names(capsys):
    terminal.show_json({"names": HOSTILE})
    shown = capsys.readouterr().out
    assert not set(shown) & set("\x1b\x07\x9b\u202e\udc80")
    assert json.loads(shown) == {"names": HOSTILE}


def test_names_in_bars_are_no_markup():
    screen = io.StringIO()
    bars = terminal._BarProgress(Console(file=screen, force_terminal=True, width=200))
    with bars.bar("[/red] [bold]x \x1b]0;t", 2) as bar:
        bar.note("[/blue] \x9b")
        bar.advance()
    bars.say("[/green] \x07")
    shown = screen.getvalue()
    for text in ("[/red] [bold]x", r"\x1b]0;t", r"[/blue] \x9b", r"[/green] \x07"):
        assert text in shown
    assert "\x1b]" not in shown
    assert "\x07" not in shown
