"""The numbers of a report, against the same numbers computed in another way."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tagfill
from tagfill.cli import main
from tagfill.errors import TagfillError
from tagfill.experiments import Leaderboard, report_runs
from tagfill.experiments.analyses import analyze
from tagfill.experiments.report import Section, model_scores
from tagfill.experiments.report.model_scores import ImageSample
from tagfill.experiments.runs import complete_dataset
from tagfill.models import Classifier
from tagfill.probabilities import probabilities
from tagfill.progress import SILENT
from tagfill.training.evaluation import LoadedModel

Compared = tuple[Path, Leaderboard]


def rows_of(path: Path) -> list[dict[str, str]]:
    with path.open() as file:
        return list(csv.DictReader(file))


def logits(run: Path, part: tagfill.Dataset, split: str, features: Path) -> np.ndarray:
    trained = LoadedModel.open(run, part, features=features)
    return np.concatenate([prediction.logits.numpy() for _, prediction in trained.predict(split)])


def test_board_of_the_page_is_that_of_the_comparison(compared: Compared) -> None:
    out, board = compared
    shown = rows_of(out / "report-files" / "leaderboard" / "leaderboard.csv")
    assert [row["method"] for row in shown] == [score.name for score in board.scores]
    assert [float(row["test mAP"]) for row in shown] == [score.mean for score in board.scores]
    costs = {row["method"]: 60 * float(row["annotation, min"]) for row in shown}
    assert costs == pytest.approx({"full": 32 * 20, "an": 32, "role": 32})
    text = (out / "report.md").read_text()
    assert all(f"| {score.name} | {score.mean:.2f} | {score.deviation:.2f} |" in text for score in board.scores)


def test_classes_are_those_of_evaluate(compared: Compared, material: dict[str, Any]) -> None:
    part = tagfill.Dataset.open(material["dataset"])
    shown = {row["class"]: row for row in rows_of(compared[0] / "report-files" / "classes" / "classes.csv")}

    result = tagfill.evaluate(compared[0] / "runs" / "role-s0", part, split="test", features=material["features"])

    for name, value in zip(part.classes, result.average_precision, strict=True):
        assert name not in shown if np.isnan(value) else float(shown[name]["role"]) == pytest.approx(100 * value)


def test_histograms_are_of_observed_missed_and_absent_labels(compared: Compared, material: dict[str, Any]) -> None:
    part = tagfill.Dataset.open(material["dataset"])
    observed, truth = part.labels("train").dense(), complete_dataset(part).labels("train").dense()
    run = tagfill.Run.open(compared[0] / "runs" / "full-s0")
    calibration = Classifier.load(run.model_folder).calibration
    probability = probabilities(logits(run.folder, part, "train", material["features"]), calibration)
    page = next(
        path
        for path in (compared[0] / "report-files" / "scores").glob("*.csv")
        if int(path.stem.split("-")[1]) == [score.name for score in compared[1].scores].index("full")
    )
    found = rows_of(page)

    for kind, mask in {
        "observed": observed == 1,
        "missed": (observed < 0) & (truth == 1),
        "absent": truth == 0,
    }.items():
        shares = [0.0] * 40
        for value in probability[mask].tolist():
            shares[min(int(40 * value), 39)] += 1 / int(mask.sum())
        assert [float(row[kind]) for row in found] == pytest.approx(shares)


def test_recovery_and_suspects_are_about_unknown_labels(compared: Compared, material: dict[str, Any]) -> None:
    part = tagfill.Dataset.open(material["dataset"])
    values = logits(compared[0] / "runs" / "role-s0", part, "train", material["features"])
    observed, truth = part.labels("train").dense(), complete_dataset(part).labels("train").dense()
    sample = ImageSample.draw(part, complete_dataset(part), "train")

    found = model_scores.recovery_curve(values, sample, np.arange(len(values)))
    top = model_scores.most_confident(probabilities(values), sample, np.arange(len(values)), sample.observed < 0)

    asked = sorted(((v, t) for v, t in zip(values[observed < 0], truth[observed < 0], strict=True)), reverse=True)
    right, best = 0, {0.5: 0.0, 0.2: 0.0}
    for number, (_, present) in enumerate(asked, start=1):
        right += int(present)
        best = {p: max(r, right / found.missing) if right / number >= p else r for p, r in best.items()}
    assert found.missing == int((truth == 1).sum() - (observed == 1).sum()) == right
    assert found.recall_at(0.2) == pytest.approx(best[0.2], abs=0.02)  # curves keep 120 of their points
    assert len({one.index for one in top}) == len(top) == model_scores.SUSPECTS
    assert all(observed[one.index, one.label] < 0 and truth[one.index, one.label] == one.truth for one in top)
    assert top[0].probability == pytest.approx(1 / (1 + np.exp(-asked[0][0])), rel=1e-5)


def test_examples_are_spread_over_the_classes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ten images show the first class with the highest scores, and three others one class each."""
    monkeypatch.setattr(model_scores, "SUSPECTS", 5)
    logits = np.full((13, 4), -9.0, np.float32)
    logits[np.arange(10), 0] = np.arange(20, 10, -1)
    logits[[10, 11, 12], [1, 2, 3]] = [3, 2, 1]
    unknown = np.full(logits.shape, -1, np.int8)
    sample = ImageSample("train", np.arange(13), 13, unknown, unknown)

    top = model_scores.most_confident(probabilities(logits), sample, np.arange(13), unknown < 0)

    assert [(one.index, one.label) for one in top] == [(0, 0), (1, 0), (10, 1), (11, 2), (12, 3)]


def test_large_splits_are_sampled(material: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    part = tagfill.Dataset.open(material["dataset"])
    monkeypatch.setattr(model_scores, "MAX_SCORES", 10 * len(part.classes))

    sample = ImageSample.draw(part, None, "train")

    assert sample.index.tolist() == [0, 4, 8, 12, 16, 20, 24, 28]
    assert sample.size == 32
    np.testing.assert_array_equal(sample.observed, part.labels("train").dense()[sample.index])


@pytest.fixture(scope="module")
def on_images(material: dict[str, Any], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run on images without known truth, with a head without class maps."""
    folder = tmp_path_factory.mktemp("images")
    part = tagfill.Dataset.open(material["dataset"]).replace(truth=None, protocol=None, folder=None)
    settings = {name: material[name] for name in ("backbone", "pretrained", "image_size")}
    return tagfill.train(
        part.save(folder / "part"), method="an", head="linear", epochs=1, out=folder / "run", **settings
    ).folder


def test_a_run_on_images_without_truth_has_a_report(on_images: Path, tmp_path: Path) -> None:
    page = report_runs([on_images], out=tmp_path / "page.html", title="Alone")

    text = (tmp_path / "page.md").read_text()
    assert page == tmp_path / "page.html"
    assert text.startswith("# Alone\n")
    assert "unknown: not labeled" in text
    assert "The true labels are not known." in text
    assert "## Label recovery" not in text
    assert "## Class maps" not in text
    assert "data:image/jpeg" in page.read_text()


def test_a_report_works_without_the_images(compared: Compared, material: dict[str, Any], tmp_path: Path) -> None:
    part = tagfill.Dataset.open(material["dataset"])
    moved = part.replace(root=tmp_path / "gone", truth=None, folder=None).save(tmp_path / "moved")
    said: list[str] = []

    class Heard:
        bar = staticmethod(SILENT.bar)
        say = staticmethod(said.append)

    report_runs([compared[0] / "runs" / "an-s0"], out=tmp_path / "page.html", dataset=moved.folder, progress=Heard())

    assert "## Classes" in (tmp_path / "page.md").read_text()
    assert "## Class maps" not in (tmp_path / "page.md").read_text()
    assert len(said) == 1
    assert said[0].startswith("The report shows no images. ")


def test_runs_that_differ_only_in_their_seed_are_one_row(compared: Compared, tmp_path: Path) -> None:
    runs = [compared[0] / "runs" / name for name in ("role-s0", "full-s0", "an-s1", "role-s1", "an-s0")]

    report_runs(runs, out=tmp_path / "page.html")

    shown = rows_of(tmp_path / "page-files" / "leaderboard" / "leaderboard.csv")
    whole = rows_of(compared[0] / "report-files" / "leaderboard" / "leaderboard.csv")
    assert {row["method"]: float(row["test mAP"]) for row in shown if row["method"] != "full"} == {
        row["method"]: pytest.approx(float(row["test mAP"])) for row in whole if row["method"] != "full"
    }


def test_analyses_become_sections(compared: Compared, tmp_path: Path) -> None:
    runs = [compared[0] / "runs" / name for name in ("role-s0", "an-s0")]
    analyze("convergence", runs, out=tmp_path / "convergence")

    report_runs(runs[1:], out=tmp_path / "page.html", analyses=[tmp_path / "convergence"])

    headings = [line for line in (tmp_path / "page.md").read_text().splitlines() if line.startswith("## ")]
    title = Section.open(tmp_path / "convergence").title
    assert headings.index(f"## {title}") == len(headings) - 2
    assert title in (tmp_path / "page.html").read_text()


def test_runs_of_other_images_are_refused(compared: Compared, material: dict[str, Any], tmp_path: Path) -> None:
    part = tagfill.Dataset.open(material["dataset"])
    fewer = part.replace(images=part.images.slice(1), truth=None, protocol=None, folder=None, annotations=part.rows())
    names = set(fewer.names())
    rows = fewer.rows()
    fewer = fewer.replace(annotations=rows.filter([name in names for name in rows["image"].to_pylist()]))
    fewer.save(tmp_path / "fewer")

    with pytest.raises(TagfillError, match="a report is about runs on one dataset"):
        report_runs([compared[0] / "runs" / "an-s0"], out=tmp_path / "page.html", dataset=tmp_path / "fewer")


def test_a_run_that_is_not_finished_is_refused(compared: Compared, tmp_path: Path) -> None:
    run = compared[0] / "runs" / "an-s0"
    for name in ("recipe.yaml", "metrics.jsonl"):
        (tmp_path / name).write_bytes((run / name).read_bytes())
    description = json.loads((run / "run.json").read_text())
    (tmp_path / "run.json").write_text(json.dumps({k: v for k, v in description.items() if k != "result"}))

    with pytest.raises(TagfillError, match="not finished"):
        report_runs([tmp_path], out=tmp_path / "page.html")


def test_the_command_does_not_overwrite_the_page(
    compared: Compared, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def call(*arguments: str) -> tuple[int, str, str]:
        monkeypatch.setattr("sys.argv", ["tagfill", "report", str(compared[0] / "runs" / "an-s0"), *arguments])
        with pytest.raises(SystemExit) as ending:
            main()
        return int(ending.value.code or 0), *capsys.readouterr()

    page = tmp_path / "page.html"
    assert call("--out", str(page), "--quiet") == (0, f"{page}\n", "")
    assert page.exists()
    written = json.loads(call("--out", str(page), "--force", "--json")[1])
    assert written == {"page": str(page), "markdown": str(page.with_suffix(".md"))}
    assert "give --force" in call("--out", str(page))[2]
    assert "must end in .html" in call("--out", str(tmp_path / "page"))[2]


def test_a_report_scores_no_image_again(compared: Compared, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    predicted: list[bool] = []
    predict = LoadedModel.predict

    def recorded(model: LoadedModel, split: str, index: Any = None, *, maps: bool = False, **options: Any) -> Any:
        predicted.append(maps)
        return predict(model, split, index, maps=maps, **options)

    monkeypatch.setattr(LoadedModel, "predict", recorded)
    runs = [compared[0] / "runs" / f"{name}-s0" for name in ("full", "an", "role")]
    report_runs(runs, out=tmp_path / "report.html")
    assert predicted == [True, True, True]  # class maps of a few examples, once per method
    chart = "report-files/classes/classes.csv"
    again = {row["class"]: row["role"] for row in rows_of(tmp_path / chart)}
    assert again == {row["class"]: row["role"] for row in rows_of(compared[0] / chart)}
