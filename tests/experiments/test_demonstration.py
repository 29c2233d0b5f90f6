"""The demonstration, small: same numbers each time, and a report that says what the terminal says."""

from __future__ import annotations

from pathlib import Path

import pytest

from tagfill.experiments import Row, demo

SIZES = (24, 8, 12)


@pytest.fixture(scope="module")
def shown(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[Row]]:
    folder = tmp_path_factory.mktemp("demo")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TAGFILL_CACHE", str(folder / "cache"))
        return folder, demo(folder / "first", epochs=3, sizes=SIZES)


def numbers(rows: list[Row]) -> list[tuple[str, float]]:
    return [(row.method, row.mean) for row in rows]


def test_board_is_sorted_and_measured_against_floor_and_ceiling(shown: tuple[Path, list[Row]]) -> None:
    rows = shown[1]

    assert [row.mean for row in rows] == sorted((row.mean for row in rows), reverse=True)
    shares = {row.method: row.gap_closed for row in rows}
    assert set(shares) == {"full labels", "an", "role", "en+scl"}
    assert shares["an"] == 0
    assert shares["full labels"] == 1


def test_report_holds_the_board(shown: tuple[Path, list[Row]]) -> None:
    folder, rows = shown

    text = (folder / "first" / "report.md").read_text()
    for row in rows:
        assert f"| {row.method} | {row.mean:.2f} |" in text


def test_numbers_are_the_same_in_another_folder(shown: tuple[Path, list[Row]], monkeypatch: pytest.MonkeyPatch) -> None:
    folder, rows = shown
    monkeypatch.setenv("TAGFILL_CACHE", str(folder / "cache"))

    assert numbers(demo(folder / "second", epochs=3, sizes=SIZES)) == numbers(rows)


def test_finished_runs_are_not_made_again(shown: tuple[Path, list[Row]], monkeypatch: pytest.MonkeyPatch) -> None:
    folder, rows = shown
    monkeypatch.setenv("TAGFILL_CACHE", str(folder / "cache"))
    before = {path: path.stat().st_mtime_ns for path in (folder / "first" / "runs").rglob("*")}

    again = demo(folder / "first", epochs=3, sizes=SIZES)

    assert numbers(again) == numbers(rows)
    assert before == {path: path.stat().st_mtime_ns for path in (folder / "first" / "runs").rglob("*")}
