from __future__ import annotations

import pytest

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
