"""Every analysis on tiny runs: its numbers agree with the runs, its files are there, and a report can take it in."""

from __future__ import annotations

import csv
import json
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image
from safetensors.torch import save_file
from typer.testing import CliRunner

import tagfill
from reference.decisions import judged as judged_slowly
from tagfill.cli.app import app
from tagfill.errors import TagfillError
from tagfill.experiments.analyses import ANALYSES, analyze
from tagfill.experiments.analyses.class_maps import compare_maps
from tagfill.experiments.analyses.decisions import count_decisions
from tagfill.experiments.analyses.inputs import open_runs
from tagfill.experiments.report import Section
from tagfill.experiments.runs import save_complete_dataset
from tagfill.models import create_backbone
from tagfill.training import Run, evaluate, records

SETTINGS: dict[str, Any] = {"backbone": "test_efficientnet", "image_size": 128, "batch_size": 8}


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Runs of two epochs on 32 scenes with one label each; the whole module looks at them."""
    folder = tmp_path_factory.mktemp("runs")
    whole = tagfill.scenes.make(folder / "scenes", train=32, val=12, test=12, size=64)
    single = tagfill.protocols.single_positive(whole, seed=1200).save(folder / "single")
    half = tagfill.protocols.random_entries(whole, proportion=0.5, seed=1).save(folder / "half")
    full = tagfill.Dataset.open(save_complete_dataset(single, folder / "full"))
    state = create_backbone("test_efficientnet", image_size=128, seed=5).model.state_dict()
    save_file({name: value.contiguous() for name, value in state.items()}, folder / "weights.safetensors")
    weights = {**SETTINGS, "pretrained": str(folder / "weights.safetensors")}
    cache = tagfill.features(
        single, out=folder / "cache", views="eval,flip", **{k: v for k, v in weights.items() if k != "batch_size"}
    )
    common = {**weights, "features": cache.folder, "epochs": 2, "lr": 0.01}
    everything = {"record": ["decisions", "scores", "heatmaps"]}
    without = {"options": {"scl": {"weight": 0.0}}}
    tagfill.train(full, method="bce", out=folder / "bce", **common)
    tagfill.train(single, method="an", out=folder / "an", **common, **everything)
    tagfill.train(single, method="an", out=folder / "an-1", seed=1, **common)
    tagfill.train(half, method="an", out=folder / "an-half", **common)
    tagfill.train(single, method="role", out=folder / "role", **common, **everything)
    tagfill.train(single, method="ll-r", out=folder / "ll-r", boost=5.0, **common, **everything)
    tagfill.train(single, method="en+scl", out=folder / "en-scl", **common, **everything)
    tagfill.train(single, method="en+scl", out=folder / "en-scl-0", **common, **everything, **without)
    tagfill.train(single, method="an", head="query", head_options={"width": 16}, out=folder / "query", **common)
    return {path.parent.name: str(path.parent) for path in folder.glob("*/run.json")}


def rows_of(folder: Path, name: str) -> list[dict[str, str]]:
    with (folder / f"{name}.csv").open(encoding="utf-8") as file:
        return list(csv.DictReader(file))


def pictures_of(section: Section) -> list[tuple[int, int]]:
    return [Image.open(BytesIO(figure.png)).size for figure in section.figures]


def test_convergence_has_the_scores_of_all_epochs(runs: dict[str, str], tmp_path: Path) -> None:
    section = analyze("convergence", [runs["an"], runs["an-1"], runs["bce"]], out=tmp_path)

    seeds = [[line["val_mAP"] for line in Run.open(runs[name]).metrics()] for name in ("an", "an-1")]
    rows = [row for row in rows_of(tmp_path, "convergence") if row["run"] == "an"]
    assert [float(row["val_mAP"]) for row in rows] == pytest.approx(np.mean(seeds, axis=0), abs=1e-4)
    assert [float(row["deviation"]) for row in rows] == pytest.approx(np.std(seeds, axis=0, ddof=1), abs=1e-4)
    assert set(section.facts) == {"an", "full labels"}
    assert Section.open(tmp_path) == section


def test_groups_of_all_classes_average_to_the_whole(runs: dict[str, str], tmp_path: Path) -> None:
    section = analyze("groups", [runs["an"], runs["role"]], out=tmp_path, classes=1)

    data = tagfill.Dataset.open(Path(runs["an"]).parent / "single")
    features = Path(runs["an"]).parent / "cache"
    score = 100 * evaluate(runs["an"], data, features=features).mean
    for group in ("frequency", "missing"):
        assert list(section.facts[group]["an"].values()) == [pytest.approx(score, abs=0.01)]
    assert len(section.facts["area"]["an"]) == 3
    difference = rows_of(tmp_path, "difference")
    values = [float(row["difference"]) for row in difference if row["difference"]]
    assert values == sorted(values)
    assert float(difference[0]["role"]) - float(difference[0]["an"]) == pytest.approx(values[0], abs=2e-4)


def test_scores_of_missed_positives_are_counted_epoch_by_epoch(runs: dict[str, str], tmp_path: Path) -> None:
    section = analyze("scores", [runs["an"], runs["role"]], out=tmp_path)

    (run,) = open_runs([runs["role"]])
    observed, truth = run.dataset.labels("train").dense(), run.truth().dense()
    rows = rows_of(tmp_path, "unobserved-positives")
    assert {row["run"] for row in rows} == {"an", "role", "role, estimates"}
    *_, last = records.read_records(run.run)
    values = last.column("scores.estimates")
    missed = [
        float(values[row, label])
        for row, image in enumerate(last.column("scores.index"))
        for label in range(truth.shape[1])
        if observed[image, label] == -1 and truth[image, label] == 1
    ]
    upper = [r for r in rows if r["run"] == "role, estimates" and r["epoch"] == "2" and float(r["from"]) == 0.48]
    assert float(upper[0]["share"]) == pytest.approx(np.mean([0.48 <= value < 0.52 for value in missed]), abs=1e-6)
    assert len(section.figures) == 2


def test_scores_say_what_is_missing_where_nothing_was_recorded(runs: dict[str, str], tmp_path: Path) -> None:
    section = analyze("scores", [runs["an-1"]], out=tmp_path, ranks=1)

    assert len(section.figures) == 1
    assert "--set record=scores" in section.text[0]


def test_the_maps_of_a_model_agree_with_themselves(runs: dict[str, str], tmp_path: Path) -> None:
    same = open_runs([runs["an"]])[0]

    found = compare_maps(same, same, "test", images=100)

    assert found.agreement == pytest.approx(np.ones(len(found.agreement)))
    assert (found.attribution["top", "positive", 0] >= found.attribution["bottom", "positive", 0]).all()
    truth = same.dataset.labels("test").dense()
    assert len(found.agreement) == (truth == 1).sum()
    assert len(found.attribution["top", "negative", 1]) == (truth == 0).sum()


def test_cam_agreement_pictures_scores_of_all_columns(runs: dict[str, str], tmp_path: Path) -> None:
    section = analyze("cam-agreement", [runs["bce"], runs["an"], runs["ll-r"]], out=tmp_path, rows=2)

    rows = rows_of(tmp_path, "maps")
    assert list(rows[0])[2:] == ["full labels", "an", "an, boosted", "ll-r + boost 5"]
    assert len(rows) == 2
    assert float(rows[0]["an, boosted"]) >= float(rows[0]["an"])
    assert -1 <= section.facts["median"]["control"] <= section.facts["median"]["agreement"] <= 1


@pytest.mark.parametrize("name", ["ll-r", "en-scl"])
def test_decisions_are_judged_as_plain_loops_do(runs: dict[str, str], name: str) -> None:
    (run,) = open_runs([runs[name]])
    observed, truth = run.dataset.labels("train").dense().tolist(), run.truth().dense().tolist()

    found = {each.epoch: each for each in count_decisions(run)}

    for number, epoch in enumerate(records.read_records(run.run), start=1):
        columns = [epoch.column(f"decisions.{column}").tolist() for column in ("image", "label", "value")]
        expected = judged_slowly(list(zip(*columns, strict=True)), observed, truth, read_as=-1)
        if expected[0]:
            each = found.pop(number)
            assert (each.decided, each.known, each.right, each.total) == expected
    assert not found


def test_decisions_of_two_rates_stand_side_by_side(runs: dict[str, str], tmp_path: Path) -> None:
    section = analyze("decisions", [runs["ll-r"], runs["en-scl"]], out=tmp_path)

    assert list(section.facts) == ["ll-r + boost 5", "en+scl"]
    last = section.facts["ll-r + boost 5"]
    assert last["precision"] == pytest.approx(last["right"] / last["decided"], abs=1e-3)


@pytest.mark.parametrize(
    ("name", "named", "message"),
    [
        ("decisions", ["bce"], "names no truth"),
        ("decisions", ["an-1"], "record=decisions"),
        ("decisions", ["an"], "decide nothing"),
        ("heatmap-progress", ["an"], "record=heatmaps"),
        ("cam-agreement", ["an"], "compares two runs"),
        ("cam-agreement", ["bce", "query"], "has no class maps"),
        ("fractions", ["an", "role"], "the same share"),
        ("attention", ["an"], "has no attention"),
        ("sweep", ["an", "role"], "one run"),
        ("convergence", [], "at least one run"),
    ],
)
def test_unsuitable_runs_are_refused(
    runs: dict[str, str], tmp_path: Path, name: str, named: list[str], message: str
) -> None:
    with pytest.raises(TagfillError, match=message):
        analyze(name, [runs[run] for run in named], out=tmp_path, settings=["K=1,2"])


def test_sweep_trains_every_combination_once(runs: dict[str, str], tmp_path: Path) -> None:
    options = {"out": tmp_path, "settings": ["K=1.5,3"], "seeds": 1, "jobs": 1}
    section = analyze("sweep", [runs["en-scl"]], **options)
    before = {path: path.stat().st_mtime_ns for path in tmp_path.glob("runs/*/run.json")}

    again = analyze("sweep", [runs["en-scl"]], **options)

    assert {path.parent.name for path in before} == {"K=1.5-s0", "K=3-s0"}
    assert {path: path.stat().st_mtime_ns for path in before} == before
    assert again.facts == section.facts
    scores = {row["K"]: float(row["mAP"]) for row in rows_of(tmp_path, "sweep")}
    expected = {name: Run.open(tmp_path / "runs" / f"K={name}-s0").best["val_mAP"] for name in ("1.5", "3")}
    assert scores == pytest.approx(expected, abs=1e-3)
    assert {row["labels"] for row in rows_of(tmp_path, "label-counts")} <= set("1234567")


def test_fractions_place_runs_by_what_they_knew(runs: dict[str, str], tmp_path: Path) -> None:
    section = analyze("fractions", [runs["an"], runs["an-half"]], out=tmp_path)

    few, half = (float(share) for share in section.facts["an"]["mAP"])
    assert few == pytest.approx(100 / 20)
    assert half == pytest.approx(50, abs=2)
    data = tagfill.Dataset.open(Path(runs["an"]).parent / "half")
    score = 100 * evaluate(runs["an-half"], data, features=Path(runs["an"]).parent / "cache").mean
    assert section.facts["an"]["mAP"][f"{half:g}"] == pytest.approx(score, abs=1e-3)


def test_heatmaps_of_both_runs_stand_side_by_side(runs: dict[str, str], tmp_path: Path) -> None:
    section = analyze("heatmap-progress", [runs["en-scl"], runs["en-scl-0"]], out=tmp_path, images=1)

    assert len(section.figures) == 3
    rows = rows_of(tmp_path, "heatmaps-side-by-side")
    assert [row["kind"] for row in rows[::2]] == ["annotated", "present, not annotated", "absent"]
    (run,) = open_runs([runs["en-scl"]])
    names = run.dataset.names(run.dataset.split("train"))
    image, label = names.index(rows[0]["image"]), run.dataset.classes.index(rows[0]["class"])
    *_, last = records.read_records(run.run)
    values = last.column("heatmaps.values")[last.column("heatmaps.index").tolist().index(image), label] / 255
    assert float(rows[0]["mean"]) == pytest.approx(values.mean(), abs=1e-4)


def test_attention_of_queries_is_shown_over_images(runs: dict[str, str], tmp_path: Path) -> None:
    section = analyze("attention", [runs["query"]], out=tmp_path, images=2)

    assert len(section.figures[0].data.rows) == 2  # type: ignore[union-attr]
    assert min(pictures_of(section)[0]) > 192


def test_runs_of_one_method_are_named_by_their_settings(runs: dict[str, str]) -> None:
    named = [runs["an"], runs["en-scl"], runs["en-scl-0"], f"mine={runs['role']}", runs["query"]]

    labels = [run.label for run in open_runs(named)]

    assert labels[1:4] == ["en+scl", "en+scl, weight 0.0", "mine"]
    assert len(set(labels)) == 5


def test_one_method_on_two_datasets_is_named_by_the_dataset(runs: dict[str, str]) -> None:
    opened = open_runs([runs["an"], runs["an-half"]])

    assert [run.title for run in opened] == ["an", "an"]
    assert [run.label for run in opened] == ["an on single", "an on half"]


def test_command_line_writes_files_and_prints_one_document(runs: dict[str, str], tmp_path: Path) -> None:
    out = tmp_path / "out"
    arguments = ["analyse", "scores", runs["an-1"], "--option", "ranks=2", "--out", str(out), "--json", "--quiet"]

    result = CliRunner().invoke(app, arguments, catch_exceptions=False)

    facts = json.loads(result.stdout)
    assert list(facts["an"]) == ["top-1 median", "top-2 median"]
    assert {path.name for path in out.iterdir()} == {"highest-scores.png", "highest-scores.csv", "section.json"}
    again = CliRunner().invoke(app, arguments, catch_exceptions=False)
    assert again.stdout == result.stdout


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["convergance", "RUN"], "did you mean 'convergence'"),
        (["groups", "RUN", "--option", "splt=val"], "did you mean 'split'"),
        (["groups", "RUN", "--set", "K=1"], "does not train"),
        (["groups", "nowhere"], "nowhere is not a run folder"),
    ],
)
def test_command_line_mistakes_are_explained(
    runs: dict[str, str], tmp_path: Path, arguments: list[str], message: str
) -> None:
    given = [runs["an"] if word == "RUN" else word for word in arguments]

    with pytest.raises(TagfillError, match=message):
        CliRunner().invoke(app, ["analyse", *given, "--out", str(tmp_path / "out")], catch_exceptions=False)


def test_every_analysis_is_listed() -> None:
    result = CliRunner().invoke(app, ["list", "analyses", "--json"], catch_exceptions=False)

    listed = json.loads(result.stdout)
    assert [row["name"] for row in listed] == list(ANALYSES)
    assert all(row["about"].endswith(".") for row in listed)
