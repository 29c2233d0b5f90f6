"""The command line in real processes: exit codes, standard output and standard error."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import typer

import tagfill
from tagfill.cli import flags
from tagfill.cli.app import app
from tagfill.errors import TagfillError
from tagfill.experiments.leaderboard import Leaderboard, Score
from tagfill.models import Classifier


def run(*arguments: str, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "COLUMNS": "120"}
    command = [sys.executable, "-m", "tagfill", *arguments]
    return subprocess.run(command, capture_output=True, text=True, cwd=cwd, env=environment, timeout=240, check=False)


Call = Callable[..., Any]


@pytest.fixture(scope="module")
def scenes(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("cli") / "scenes"
    tagfill.scenes.make(folder, train=30, val=10, test=10, size=64)
    return folder


def test_version(call: Call) -> None:
    outcome = call("--version")
    assert (outcome.code, outcome.out) == (0, f"tagfill {tagfill.__version__}\n")
    assert re.fullmatch(r"\d+\.\d+\.\d+", tagfill.__version__)


def test_from_scenes_to_a_score(scenes: Path, tmp_path: Path, call: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    simulated = run("simulate", "single-positive", str(scenes), "--out", "single", "--json", cwd=tmp_path)
    assert simulated.returncode == 0, simulated.stderr
    assert json.loads(simulated.stdout)["name"] == "single-positive"

    small = ["--backbone", "test_efficientnet", "--pretrained", "none"]
    cached = call("features", "single", *small, "--image-size", "64", "--out", "cache")
    assert cached.code == 0, cached.err
    assert cached.out.strip() == "cache"

    trained = call(
        *("train", "single", *small, "--set", "image_size=64", "--features", "cache", "--method", "en+scl"),
        *("--epochs", "2", "--set", "options.scl.weight=0.1", "--out", "run", "--json"),
    )
    assert trained.code == 0, trained.err
    result = json.loads(trained.out)
    assert result["run"] == "run"
    assert "main epoch 2/2" in trained.err
    assert tagfill.Run.open(tmp_path / "run").recipe.options == {"scl": {"weight": 0.1}}

    scored = call("evaluate", "run", "single", "--split", "val", "--json")
    assert scored.code == 0, scored.err
    assert json.loads(scored.out)["mAP"] == pytest.approx(result["val_mAP"], abs=0.5)

    shown = call(*("evaluate", "run", "single", "--features", "cache", "--ceiling", "run", "--csv", "out/classes.csv"))
    assert shown.code == 0, shown.err
    for part in ("ceiling AP", "mAP", "(95%: ", "thresholds saved with the model", "P@3", "calibration error"):
        assert part in shown.out
    assert (tmp_path / "out" / "classes.csv").read_text().startswith("class,AP,ceiling AP,loss,F1,")


def test_inputs_need_not_be_square(scenes: Path, tmp_path: Path, call: Call) -> None:
    small = ["--backbone", "test_efficientnet", "--pretrained", "none"]
    cache, trained = str(tmp_path / "cache"), str(tmp_path / "run")

    assert call("features", str(scenes), *small, "--image-size", "64x96", "--views", "eval", "--out", cache).code == 0
    assert call("train", str(scenes), *small, "--features", cache, "--epochs", "1", "--out", trained).code == 0
    size = ["--set", "image_size=[64, 96]", "--set", "crop_scale=[0.5, 1.0]"]
    assert call("train", str(scenes), *small, *size, "--epochs", "1", "--out", f"{trained}-images").code == 0

    manifest = json.loads((tmp_path / "cache" / "manifest.json").read_text())
    assert (manifest["preprocessing"]["size"], manifest["grid"]) == ([64, 96], [2, 3])
    for folder in (trained, f"{trained}-images"):
        model = Classifier.load(Path(folder) / "best")
        assert model.backbone is not None
        assert (model.backbone.preprocessing.size, model.backbone.grid) == ((64, 96), (2, 3))
        assert call("evaluate", folder, str(scenes), "--split", "val", "--json").code == 0
    assert tagfill.Run.open(Path(f"{trained}-images")).recipe.image_size == (64, 96)


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["train", "no-such-folder"], "no-such-folder"),
        (["train"], "There is no dataset to train on"),
        (["train", "{scenes}", "--method", "rolle"], "did you mean 'role'?"),
        (["train", "{scenes}", "--method", "scl"], "does not learn from labels"),
        (
            ["train", "{scenes}", "--set", "image_size=64x"],
            "--image-size: An image size cannot be '64x'; give a side of 32",
        ),
        (
            ["features", "{scenes}", "--image-size", "8"],
            "cannot be '8'; give a side of 32 or more, or height and width",
        ),
        (["train", "{scenes}", "--set", "optimizer.lr=fast"], "stages.0.optimizer.lr"),
        (["train", "{scenes}", "--set", "colour=red"], "there is no setting 'colour'; known are"),
        (["train", "{scenes}", "--set", "learning_rate=0.1"], "did you mean 'optimizer.lr'?"),
        (["train", "{scenes}", "--set", "batchsize=4"], "did you mean '--batch-size'?"),
        (["train", "{scenes}", "--backbone", "resnet50"], "give --pretrained timm"),
        (["train", "{scenes}", "--device", "gpu"], "--device is 'gpu'; give one of auto, cpu, cuda, mps"),
        (["suggest", "{scenes}", "--run", "x", "--order", "odd", "--out", "x.csv"], "--order is 'odd'"),
        (["train", "{scenes}", "--memory-budget", "-1"], "memory.budget_gb"),
        (["train", "{scenes}", "--backbone", "resnet5000"], "There is no backbone 'resnet5000'"),
        (["train", "--resume", "no-such-run"], "no-such-run is not a run folder"),
        (["evaluate", "no-such-run", "{scenes}"], "is not a model folder"),
        (["simulate", "single-positiv", "{scenes}", "--out", "x"], "did you mean 'single-positive'?"),
        (["features", "{scenes}", "--views", "eval,crop:2"], "'crop:2' is not a view"),
        (["budget", "{scenes}", "--kinds", "I,SX", "--out", "x"], "There is no kind of annotation 'SX'"),
        (["budget", "{scenes}", "--budgets", "1,lots", "--out", "x"], "The budget 'lots' is not a number"),
        (["budget", "{scenes}", "--seconds", "image=0", "--out", "x"], "seconds are invalid"),
        (["list", "metods"], "did you mean 'methods'?"),
    ],
)
def test_user_errors_print_one_sentence_and_exit_with_2(
    call: Call, scenes: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arguments: list[str], sentence: str
) -> None:
    monkeypatch.chdir(tmp_path)

    outcome = call(*(argument.format(scenes=scenes) for argument in arguments))

    assert outcome.code == 2
    assert sentence in outcome.err
    assert "Traceback" not in outcome.err
    assert outcome.out == ""


@pytest.mark.parametrize("arguments", [["trian"], ["train", "x", "--epochs", "many"], ["train", "--no-such-flag"]])
def test_wrong_usage_exits_with_2(call: Call, arguments: list[str]) -> None:
    outcome = call(*arguments)

    assert outcome.code == 2
    assert "Usage: tagfill" in outcome.err


def test_an_interruption_exits_with_130(call: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("tagfill.experiments.demo", interrupted)

    assert call("demo").code == 130


def test_internal_errors_are_not_hidden(call: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object, **__: object) -> None:
        raise ZeroDivisionError

    monkeypatch.setattr("tagfill.experiments.demo", broken)

    with pytest.raises(ZeroDivisionError):
        call("demo")


def test_list_names_every_method(call: Call) -> None:
    listed = call("list", "methods", "--json")

    rows = {row["name"]: row for row in json.loads(listed.out)}
    assert set(rows) == {"auto", *tagfill.methods.METHODS, *tagfill.methods.ALIASES}
    assert next(iter(rows)) == "auto"
    assert rows["ne"]["alias_of"] == "ignore"
    assert rows["role"]["paper"] == "Cole et al., CVPR 2021"
    assert rows["role"]["needs"] == ["expected_positives", "memory"]
    assert rows["an-ls"]["options"] == {"smoothing": 0.1, "eps": 0.0}
    assert all(row["about"].endswith(".") and row["paper"] for row in rows.values())


def test_the_list_of_methods_is_a_table(call: Call) -> None:
    shown = call("list", "methods").out

    assert "Cole et al., CVPR" in shown
    assert "truth" in shown
    assert "Alias of ignore." in " ".join(shown.split())


def test_recipes_are_listed_with_the_seeds_that_their_numbers_are_means_of(call: Call) -> None:
    seeds = {row["name"]: row["seeds"] for row in json.loads(call("list", "recipes", "--json").out)}
    assert (seeds["patchml-coco14-kinds"], seeds["patchml-coco14-networks"]) == (3, 1)
    assert "seeds" in call("list", "recipes").out
    shown = " ".join(call("list", "recipes", "patchml-coco14-kinds").out.split())
    assert "means over 3 seeds; labels are drawn again for each, $SEED = 0, 1, 2." in shown
    assert "--row sb-4 --out RUN --seed $SEED" in shown


def test_heads_are_listed_with_their_options(call: Call) -> None:
    heads = {row["name"]: row for row in json.loads(call("list", "heads", "--json").out)}
    assert list(heads) == ["linear", "cam", "tscam", "query", "dual", "ensemble"]
    assert heads["linear"]["options"]["pool"] == "gap"
    assert heads["cam"]["options"]["boost"] == 1.0
    assert heads["query"]["about"].startswith("Query2Label")


@pytest.mark.parametrize(
    "command",
    sorted(set(typer.main.get_command(app).commands) - {"analyse"}),  # type: ignore[attr-defined]
)
def test_help_has_an_example(call: Call, command: str) -> None:
    shown = call(command, "--help")

    assert shown.code == 0
    assert f"Example: tagfill {command}" in shown.out


def test_commands_and_their_summaries_fit_into_80_columns(call: Call) -> None:
    shown = call("--help", columns=80).out
    assert all(len(line) <= 80 for line in shown.splitlines())
    commands = shown.partition("Commands:")[2].splitlines()
    assert [line.split()[0] for line in commands if line.startswith("  ") and line[2] != " "] == [
        name
        for name in typer.main.get_command(app).commands
        if name != "analyse"  # type: ignore[attr-defined]
    ]


def test_the_old_spelling_of_analyze_is_a_hidden_command(call: Call) -> None:
    assert "analyse " not in call("--help").out
    assert call("analyse", "--help").code == 0


def test_features_are_verified(call: Call, scenes: Path, tmp_path: Path) -> None:
    small = ["--backbone", "test_efficientnet", "--pretrained", "none", "--image-size", "64", "--threads", "1"]
    command = ["features", str(scenes), *small, "--views", "eval", "--out", str(tmp_path / "cache"), "--verify"]
    outcome = call(*command, "--json")
    assert outcome.code == 0, outcome.err
    assert json.loads(outcome.out) == {"folder": str(tmp_path / "cache"), "at": "features", "views": ["eval"]}
    assert "verified" in outcome.err

    shard = tmp_path / "cache" / "views" / "eval" / "00000.npy"
    content = bytearray(shard.read_bytes())
    content[-1] ^= 1
    shard.write_bytes(content)
    outcome = call(*command)
    assert outcome.code == 2
    assert "00000.npy of the feature cache does not contain the bytes that were written" in " ".join(
        outcome.err.split()
    )


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["review", "{scenes}", "--suggestions", "s.csv"], "The review page needs fastapi; install it with: pip"),
        (["serve", "run"], "Serving needs fastapi; install it with: pip install 'tagfill[serve]'"),
    ],
)
def test_a_missing_extra_is_named(scenes: Path, arguments: list[str], sentence: str) -> None:
    words = ["tagfill", *(argument.format(scenes=scenes) for argument in arguments)]
    code = f"import sys; sys.modules['fastapi'] = None; sys.argv = {words!r}; from tagfill.cli import main; main()"
    outcome = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert outcome.returncode == 2
    assert sentence in outcome.stderr


def test_decisions_of_an_interrupted_review_are_saved_without_the_server(scenes: Path) -> None:
    words = ["tagfill", "review", str(scenes), "--apply", "--json"]
    code = f"import sys; sys.modules['fastapi'] = None; sys.argv = {words!r}; from tagfill.cli import main; main()"
    outcome = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert json.loads(outcome.stdout)["changes"] == 0


def test_the_dataset_comes_first_and_the_old_order_warns(tmp_path, capsys):
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "dataset.yaml").touch()
    data, run = tmp_path / "data", tmp_path / "run"
    assert flags.dataset_and_run("suggest", data, run, None) == (data, run)
    assert flags.dataset_and_run("suggest", data, None, run) == (data, run)
    assert capsys.readouterr().err == ""
    assert flags.dataset_and_run("suggest", run, data, None) == (data, run)
    assert f"the dataset comes first now: tagfill suggest {data} --run {run}" in capsys.readouterr().err
    for argument in (None, run):
        with pytest.raises(TagfillError, match=r"write it as: tagfill suggest DATASET --run RUN\."):
            flags.dataset_and_run("suggest", data, argument, argument)


@pytest.mark.parametrize("command", ["train", "compare", "review", "evaluate", "predict"])
def test_help_fits_80_columns_and_switches_have_no_type(call: Call, command: str) -> None:
    shown = call(command, "--help", columns=80).out

    assert max(map(len, shown.splitlines())) <= 80
    assert "<bool>" not in shown


def test_train_shows_its_defaults_and_takes_an_image_size(call: Call) -> None:
    shown = " ".join(call("train", "--help", columns=80).out.split())

    assert "--image-size SIZE" in shown
    for default in ("(10)", "(0.001, of top 0.0001)", "(16)", "(cam)", "(tf_efficientnet_lite0)", "[default: auto]"):
        assert default in shown.replace("[default: (", "(").replace(")]", ")")


def test_compare_recommends_a_model_of_the_given_labels(call: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    scores = [
        Score(name, (value,), (None,), (1.0,), complete=name.startswith("full"))
        for name, value in (("an", 50.0), ("full:boost=5", 70.0), ("full", 60.0), ("ll-r:boost=5", 55.0))
    ]
    monkeypatch.setattr("tagfill.experiments.compare", lambda *_, **__: Leaderboard.rank("scenes", "test", scores))
    shown = call("compare", "scenes", "--methods", "ll-r:boost=5", "--out", "board")
    assert "Next: tagfill predict board/runs/ll-r-boost=5-s0 PHOTOS" in shown.out + shown.err


def test_a_mistake_is_named_at_once_and_leaves_nothing_behind(
    call: Call, scenes: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)

    assert call("train", str(scenes), "--method", "rolle").code == 2
    assert call("train", str(scenes), "--method", "rolle", "--out", "here").code == 2
    assert call("compare", str(scenes), "--methods", "rolle", "--out", "there").code == 2
    assert "no head 'camm'" in call("train", str(scenes), "--head", "camm", "--out", "here").err
    for command in ("train", "fill"):
        assert "give --pretrained timm" in call(command, str(scenes), "--backbone", "resnet50", "--out", "here").err
    planned = ["plan", str(scenes), "--run", "nowhere", "--hours", "1", "--out", "plan"]
    assert "--kind is 'Q'; give one of I, SP" in call(*planned, "--kind", "Q").err
    assert "s.xls is neither" in call("suggest", str(scenes), "--run", "nowhere", "--out", "s.xls").err

    assert list(tmp_path.iterdir()) == []


def test_a_command_ends_with_the_next_step(call: Call, scenes: Path, tmp_path: Path) -> None:
    out = tmp_path / "part"

    assert f"Next: tagfill train {out}" in call("simulate", "single-positive", str(scenes), "--out", str(out)).err
    again = ["simulate", "single-positive", str(scenes), "--out", str(out), "--force", "--json"]
    assert "Next:" not in call(*again).err
    assert f"Next: tagfill train {scenes}" in call("inspect", str(scenes)).err
    assert f"Next: tagfill fill {out} --out filled" in call("inspect", str(out)).err
    assert "Next:" not in call("inspect", str(out), "--json").err
    table = tmp_path / "tags.csv"
    assert f"Next: tagfill fill {table} --photos {scenes}" in call("write", str(out), "--out", str(table)).err
    assert "Next: tagfill train DATASET --method NAME" in call("list", "methods").err


def test_every_command_has_a_next_step() -> None:
    """Except `serve`, which runs until it is stopped."""
    commands = [
        path for path in Path(tagfill.cli.__file__).parent.glob("*.py") if "    as_json: flags.Json" in path.read_text()
    ]

    assert len(commands) > 15
    assert [path.name for path in commands if "terminal.next_step(" not in path.read_text()] == []
