"""A small comparison: floor and ceiling take part, a second call only reads, and validation chooses from a grid."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tagfill
from tagfill.errors import TagfillError
from tagfill.experiments import Leaderboard
from tagfill.experiments.comparison import add_floor_and_ceiling, parse_grid, parse_methods, relevant_choices
from tagfill.experiments.leaderboard import Score
from tagfill.experiments.runs import Outcome, recipe_content, save_complete_dataset
from tagfill.metrics import Recovered
from tagfill.probabilities import probabilities
from tagfill.training.evaluation import LoadedModel


def board_of(material: dict[str, Any], out: Path, methods: str, **more: Any) -> Leaderboard:
    dataset, settings = material["dataset"], {k: v for k, v in material.items() if k != "dataset"}
    return tagfill.compare(dataset, methods, out=out, epochs=2, **{"jobs": 1, "report": False, **settings, **more})


@pytest.fixture(scope="module")
def made(material: dict[str, Any], tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Leaderboard]:
    out = tmp_path_factory.mktemp("comparison")
    return out, board_of(material, out, "role", seeds=2, grid=["optimizer.lr=1e-2,1e-4"])


def test_floor_and_ceiling_take_part(made: tuple[Path, Leaderboard]) -> None:
    assert {score.name for score in made[1].scores} == {"full", "an", "role"}


def test_gap_is_measured_from_floor_to_ceiling_and_the_best_comes_first() -> None:
    values = {"an": (60.0, 62.0), "role": (65.0, 67.0), "full": (70.0, 72.0), "epr": (float("nan"), float("nan"))}
    scores = [
        Score(
            name, seeds, (None, None), (1.0, 1.0), error="needs κ" if name == "epr" else None, complete=name == "full"
        )
        for name, seeds in values.items()
    ]

    board = Leaderboard.rank("photos", "test", scores)

    assert [score.name for score in board.scores] == ["full", "role", "an", "epr"]
    assert [score.gap_closed for score in board.scores[:3]] == [1.0, 0.5, 0.0]
    assert board.to_json()["scores"][3]["test_mAP"] is None

    boosted = Score("full:boost=5", (81.0, 81.0), (None, None), (1.0, 1.0), complete=True)
    board = Leaderboard.rank("photos", "test", [*scores, boosted])
    assert [score.gap_closed for score in board.scores[:4]] == [1.0, 0.5, 0.25, 0.0]


@pytest.mark.parametrize(
    ("text", "added"),
    [
        ("role", ["full", "an"]),
        ("ll-r:boost=5", ["full", "an", "full:boost=5", "an:boost=5"]),
        ("ll-r:boost=5,an:boost=5,full:boost=5", ["full", "an"]),
        ("auto", ["full", "an", "full:auto", "an:boost=5:boost_train=false"]),
    ],
)
def test_entries_that_change_inference_bring_floor_and_ceiling_with_the_same(
    material: dict[str, Any], text: str, added: list[str]
) -> None:
    part = tagfill.Dataset.open(material["dataset"])
    specs = parse_methods(text)
    every = add_floor_and_ceiling(specs, part)
    assert [spec.name for spec in every] == [*added, *(spec.name for spec in specs)]
    again = parse_methods(",".join(spec.name for spec in every))  # names are what a user would write
    assert [(s.method, s.head_options, s.complete) for s in again] == [
        (s.method, s.head_options, s.complete) for s in every
    ]
    alone = [spec for spec in specs if not spec.complete]
    without = add_floor_and_ceiling(alone, part.replace(truth=None))
    assert not any(spec.complete for spec in without)


def test_missing_labels_that_a_run_finds_are_counted(material: dict[str, Any], made: tuple[Path, Leaderboard]) -> None:
    """Counted again with the saved model at its saved thresholds."""
    out, board = made
    run = tagfill.Run.open(out / "runs" / "role-lr=0.01-s0")
    part = tagfill.Dataset.open(material["dataset"])
    assert part.truth is not None
    truth = tagfill.Dataset.open(part.truth).labels("train").dense()
    trained = LoadedModel.open(run, part, features=material["features"])
    logits = np.concatenate([p.logits.numpy() for _, p in trained.predict("train")])
    called = probabilities(logits, trained.model.calibration) >= np.array(trained.model.thresholds)
    unknown = part.labels("train").dense() == -1
    expected = {
        "called": int((called & unknown).sum()),
        "right": int((called & unknown & (truth == 1)).sum()),
        "missing": int((unknown & (truth == 1)).sum()),
    }

    assert json.loads((run.folder / "outcome.json").read_text())["recovered"] == expected
    assert expected["missing"] > 0
    scores = {score.name: score for score in board.scores}
    assert 0 <= scores["role"].recovered_recall <= 1
    full = dict(zip(board.columns(), board.rows()[[s.name for s in board.scores].index("full")], strict=True))
    assert (full["recovered P"], full["recovered R"]) == ("–", "–")  # it was trained on all labels


def test_a_path_into_a_plain_setting_is_refused() -> None:
    with pytest.raises(tagfill.TagfillError, match="'epochs' holds a single value"):
        recipe_content({}, (("epochs.first", 1),), epochs=2, features=None)


def test_recovered_labels_are_means_over_the_seeds() -> None:
    outcomes = [
        Outcome(60.0, recovered=Recovered(called=4, right=1, missing=10)),
        Outcome(62.0, recovered=Recovered(called=4, right=3, missing=10)),
        Outcome(62.0, recovered=Recovered(called=0, right=0, missing=10)),
    ]
    score = Score.from_outcomes("an", outcomes)
    assert (score.recovered_precision, score.recovered_recall) == (0.5, pytest.approx(4 / 30))


def test_a_run_killed_before_its_first_checkpoint_starts_again(material: dict[str, Any], tmp_path: Path) -> None:
    board_of(material, tmp_path / "whole", "an", seeds=1)
    folder = tmp_path / "broken" / "runs" / "an-s0"
    shutil.copytree(tmp_path / "whole" / "runs" / "an-s0", folder)
    for leftover in ("checkpoints", "best"):
        shutil.rmtree(folder / leftover)
    (folder / "outcome.json").unlink()

    board = board_of(material, tmp_path / "broken", "an", seeds=1)

    scores = {score.name: score for score in board.scores}
    assert scores["an"].error is None
    assert (folder / "checkpoints").is_dir()


def test_grid_is_tried_on_the_first_seed_and_chosen_on_validation(made: tuple[Path, Leaderboard]) -> None:
    out, board = made
    folders = sorted(path.name for path in (out / "runs").iterdir() if path.name.startswith("role"))
    chosen = next(score for score in board.scores if score.name == "role").overrides
    value = dict(chosen)["optimizer.lr"]

    tried = {
        lr: json.loads((out / "runs" / f"role-lr={lr}-s0" / "outcome.json").read_text())["validation"]
        for lr in (0.01, 0.0001)
    }
    assert tried[value] == max(tried.values())
    assert folders == sorted(["role-lr=0.01-s0", "role-lr=0.0001-s0", f"role-lr={value}-s1"])


def test_second_call_trains_nothing(material: dict[str, Any], made: tuple[Path, Leaderboard]) -> None:
    out, board = made
    before = {path: path.stat().st_mtime_ns for path in out.glob("runs/*/run.json")}

    again = board_of(material, out, "role", seeds=2, grid=["optimizer.lr=1e-2,1e-4"])

    assert again.to_json() == board.to_json()
    assert {path: path.stat().st_mtime_ns for path in out.glob("runs/*/run.json")} == before


@pytest.mark.long
def test_several_processes_give_the_same_board(
    material: dict[str, Any], made: tuple[Path, Leaderboard], tmp_path: Path
) -> None:
    board = board_of(material, tmp_path, "role", seeds=2, grid=["optimizer.lr=1e-2,1e-4"], jobs=2)

    assert [(s.name, s.values) for s in board.scores] == [(s.name, s.values) for s in made[1].scores]


def test_leaderboard_is_written_beside_the_runs(made: tuple[Path, Leaderboard]) -> None:
    out, board = made

    assert json.loads((out / "leaderboard.json").read_text()) == board.to_json()
    for score in board.scores:
        assert f"| {score.name} | {score.mean:.2f} |" in (out / "leaderboard.md").read_text()


def test_a_method_that_refuses_the_data_has_an_error_and_the_others_have_scores(
    material: dict[str, Any], tmp_path: Path
) -> None:
    """Without a validation split the number of labels per image is unknown, which ROLE needs and AN does not."""
    part = tagfill.Dataset.open(material["dataset"])
    splits = part.split_of_images()
    splits[splits == "val"] = "spare"
    part.with_splits(splits).replace(folder=None, truth=None).save(tmp_path / "part")

    board = board_of({**material, "dataset": tmp_path / "part"}, tmp_path / "out", "role", seeds=1)

    scores = {score.name: score for score in board.scores}
    assert "expected number of positives" in str(scores["role"].error)
    assert scores["an"].error is None
    assert board.rows()[-1][:2] == ["role", "–"]


def test_wrong_settings_are_refused_before_training(material: dict[str, Any], tmp_path: Path) -> None:
    with pytest.raises(TagfillError, match="momentun"):
        board_of(material, tmp_path, "an,en", options={"en": {"momentun": 0.9}})
    assert not (tmp_path / "runs").exists()


def test_the_complete_dataset_has_the_splits_of_the_simulated_one(material: dict[str, Any], tmp_path: Path) -> None:
    part = tagfill.Dataset.open(material["dataset"])

    whole = tagfill.Dataset.open(save_complete_dataset(part, tmp_path / "complete"))

    assert {name: rows.tolist() for name, rows in whole.splits.items()} == {
        name: rows.tolist() for name, rows in part.splits.items()
    }
    assert whole.labels("train").complete()
    assert whole.identities["images"] == part.identities["images"]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "nothing to compare"),
        ("an,rol", "rol"),
        ("an:boost", "'boost' has no value"),
        ("cl", "does not learn from labels"),
    ],
)
def test_bad_entries_are_refused(text: str, message: str) -> None:
    with pytest.raises(TagfillError, match=message):
        parse_methods(text)


def test_grid_drops_options_of_other_methods() -> None:
    choices = parse_grid(["options.scl.weight=0.1,1", "optimizer.lr=1e-3"])
    assert relevant_choices(choices, "an") == [(("optimizer.lr", 0.001),)]
    assert len(relevant_choices(choices, "en+scl")) == 2


def test_grid_without_values_is_refused() -> None:
    with pytest.raises(TagfillError, match="has no value"):
        parse_grid(["optimizer.lr"])
