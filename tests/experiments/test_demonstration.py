"""A small demonstration: the same numbers each time, and a report with the same scores."""

from __future__ import annotations

from pathlib import Path

import pytest

from tagfill.dataset import Dataset
from tagfill.experiments import Leaderboard, demo

SIZES = (16, 6, 8)


@pytest.fixture(scope="module")
def shown(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Leaderboard]:
    folder = tmp_path_factory.mktemp("demo")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TAGFILL_CACHE", str(folder / "cache"))
        return folder, demo(folder / "first", epochs=1, sizes=SIZES, jobs=1)


def numbers(board: Leaderboard) -> list[tuple[str, float]]:
    return [(score.name, score.mean) for score in board.scores]


def test_every_method_has_a_score(shown: tuple[Path, Leaderboard]) -> None:
    board = shown[1]

    assert {score.name for score in board.scores} == {
        *("full", "full:boost=5", "an", "an:boost=5", "role", "ll-r:boost=5", "en+scl", "se", "patchml")
    }
    assert [score.error for score in board.scores] == [None] * 9
    shares = {score.name: score.gap_closed for score in board.scores}
    assert shares["an"] == 0
    assert max(shares["full"], shares["full:boost=5"]) == 1


def test_the_cost_of_other_labels_is_reported(shown: tuple[Path, Leaderboard]) -> None:
    folder, board = shown
    costs = {score.name: score.annotation_seconds for score in board.scores}
    assert costs == {
        **dict.fromkeys(["an", "an:boost=5", "role", "ll-r:boost=5", "en+scl"], SIZES[0]),
        "se": pytest.approx(5 * SIZES[0]),
        "patchml": pytest.approx(2.4 * SIZES[0]),
        **dict.fromkeys(["full", "full:boost=5"], 20 * SIZES[0]),
    }
    text = (folder / "first" / "report.md").read_text()
    for score in board.scores:
        assert f"| {score.name} | {score.mean:.2f} |" in text
        assert score.note in text
    points = Dataset.open(folder / "first" / "data" / "single-points")
    single = Dataset.open(folder / "first" / "data" / "single-positive")
    assert (points.labels("train").dense() == single.labels("train").dense()).all()


@pytest.mark.long
def test_numbers_are_the_same_in_another_folder(
    shown: tuple[Path, Leaderboard], monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, board = shown
    monkeypatch.setenv("TAGFILL_CACHE", str(folder / "cache"))

    assert numbers(demo(folder / "second", epochs=1, sizes=SIZES, jobs=1, report=False)) == numbers(board)


def test_finished_runs_are_not_trained_again(shown: tuple[Path, Leaderboard], monkeypatch: pytest.MonkeyPatch) -> None:
    folder, board = shown
    monkeypatch.setenv("TAGFILL_CACHE", str(folder / "cache"))
    before = {path: path.stat().st_mtime_ns for path in (folder / "first" / "runs").rglob("*")}
    page = (folder / "first" / "report.html").read_bytes()

    again = demo(folder / "first", epochs=1, sizes=SIZES, jobs=1)

    assert numbers(again) == numbers(board)
    assert before == {path: path.stat().st_mtime_ns for path in (folder / "first" / "runs").rglob("*")}
    assert (folder / "first" / "report.html").read_bytes() == page
