"""Which images score a comparison: test, validation, or images that each run holds out."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tagfill
from tagfill.dataset import Dataset
from tagfill.errors import TagfillError
from tagfill.experiments import Leaderboard, comparison, runs
from tagfill.experiments.scored_split import FOLDS, HELD_OUT, choose_split, save_fold
from tagfill.progress import Bar


class Recorder:
    """Progress that remembers what it was told."""

    def __init__(self) -> None:
        self.said: list[str] = []
        self.totals: dict[str, int | None] = {}
        self.steps = 0

    def bar(self, title: str, total: int | None, unit: str = "") -> Bar:
        self.totals[title] = total
        return self  # type: ignore[return-value]

    def say(self, text: str) -> None:
        self.said.append(text)

    def advance(self, steps: int = 1) -> None:
        self.steps += steps

    def note(self, text: str) -> None: ...

    def __enter__(self) -> Recorder:
        return self

    def __exit__(self, *error: object) -> None: ...


def only(data: Dataset, folder: Path, *splits: str, truth: bool = False) -> Dataset:
    """The dataset with these splits; images of the others move to `spare`."""
    names = data.split_of_images()
    names[~np.isin(names, splits)] = "spare"
    changes = {} if truth else {"truth": None, "protocol": None}
    return data.with_splits(names).replace(folder=None, **changes).save(folder)


def compare(material: dict[str, Any], data: Dataset, out: Path, methods: str = "an", **more: Any) -> Leaderboard:
    settings = {name: value for name, value in material.items() if name != "dataset"}
    return tagfill.compare(data, methods, out=out, epochs=1, **{"jobs": 1, "report": False, **settings, **more})


@pytest.fixture(scope="module")
def single(material: dict[str, Any]) -> Dataset:
    return Dataset.open(material["dataset"])


def test_test_comes_first_then_validation_then_held_out_images(single: Dataset, tmp_path: Path) -> None:
    assert choose_split(single).name == "test"
    assert choose_split(single).note == ""
    assert choose_split(only(single, tmp_path / "val", "train", "val")).name == "val"
    assert choose_split(only(single, tmp_path / "train", "train")).name == HELD_OUT


def test_a_split_of_tags_alone_is_passed_over_and_refused_on_request(single: Dataset, tmp_path: Path) -> None:
    """Every training image has one tag and no known negative."""
    names = single.split_of_images()
    names[names == "test"], names[names == "val"] = "spare", "spare"
    names[np.flatnonzero(names == "train")[:8]] = "test"
    tags = single.with_splits(names).replace(folder=None, truth=None).save(tmp_path / "tags")

    assert choose_split(tags).name == HELD_OUT
    with pytest.raises(TagfillError, match=r"'test' .* cannot be scored; leave out --split"):
        choose_split(tags, "test")


def test_comparing_without_a_test_split_scores_validation_and_says_so(
    material: dict[str, Any], single: Dataset, tmp_path: Path
) -> None:
    progress = Recorder()

    board = compare(material, only(single, tmp_path / "data", "train", "val"), tmp_path / "out", progress=progress)

    assert board.split == "val"
    assert board.scores[0].values[0] == pytest.approx(board.scores[0].validation[0])
    assert any("scored on 'val'" in text for text in progress.said)
    assert "scored on 'val'" in (tmp_path / "out" / "leaderboard.md").read_text()


def test_comparing_without_either_cross_fits(material: dict[str, Any], single: Dataset, tmp_path: Path) -> None:
    """The score is that of the saved model on its fold, where a tag that was not given counts as absent."""
    data = only(single, tmp_path / "data", "train")

    board = compare(material, data, tmp_path / "out", seeds=2, report=True)

    assert board.split == HELD_OUT
    assert (tmp_path / "out" / "report.html").exists()
    for seed, value in enumerate(board.scores[0].values):
        fold = Dataset.open(tmp_path / "out" / "folds" / str(seed))
        run = tmp_path / "out" / "runs" / f"an-s{seed}-held-out"
        evaluation = tagfill.evaluate(run, fold, split=HELD_OUT, features=material["features"])
        assert value == 100 * evaluation.mean
        assert tagfill.Run(run).recipe.dataset == str(fold.folder)


def test_folds_divide_the_training_images(single: Dataset, tmp_path: Path) -> None:
    data = only(single, tmp_path / "data", "train")

    folds = [save_fold(data, number, tmp_path / str(number)) for number in range(FOLDS)]

    assert np.array_equal(np.sort(np.concatenate([fold.split(HELD_OUT) for fold in folds])), data.split("train"))
    for fold in folds:
        given = data.labels().dense()[fold.split(HELD_OUT)]
        assert np.array_equal(fold.labels(HELD_OUT).dense(), np.where(given == 1, 1, 0))
        assert np.array_equal(fold.labels("train").dense(), data.labels().dense()[fold.split("train")])


def test_held_out_images_of_simulated_data_are_scored_by_the_truth(single: Dataset, tmp_path: Path) -> None:
    data = only(single, tmp_path / "data", "train", truth=True)
    assert data.truth is not None

    fold = save_fold(data, 0, tmp_path / "fold")

    truth = Dataset.open(data.truth).labels().dense()[fold.split(HELD_OUT)]
    assert np.array_equal(fold.labels(HELD_OUT).dense(), truth)


def test_a_comparison_without_any_score_is_an_error_with_the_reasons(
    material: dict[str, Any], single: Dataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(comparison, "add_floor_and_ceiling", lambda specs, data: specs)  # `an` would have a score

    with pytest.raises(TagfillError, match=r"No method has a score\. role: .*expected number of positives"):
        compare(material, only(single, tmp_path / "data", "train"), tmp_path / "out", "role")


def test_the_bar_counts_all_runs(
    material: dict[str, Any], single: Dataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    progress, grid = Recorder(), ["optimizer.lr=1e-2,1e-4"]
    monkeypatch.setattr(runs, "run_group", lambda jobs: [runs.Outcome(50.0, 50.0) for _ in jobs])

    compare(material, single, tmp_path, "en", seeds=3, grid=grid, progress=progress)

    methods = 3  # full, an, en
    assert progress.totals["runs"] == progress.steps == methods * (2 + 2)  # the grid, then two more seeds
