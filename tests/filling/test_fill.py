"""Filling in: one result of colored squares, from a table to the report, again after a review, and what is refused."""

from __future__ import annotations

import csv
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from PIL import Image
from typer.testing import CliRunner

import tagfill
from tagfill.cli.app import app
from tagfill.curation import Suggestions
from tagfill.curation.review import Decision, open_session
from tagfill.dataset import Dataset
from tagfill.dataset.tables import from_records
from tagfill.errors import TagfillError
from tagfill.filling import Fill, report
from tagfill.filling.candidates import Candidates, Scored
from tagfill.filling.outputs import write_formats
from tagfill.filling.phases import UNTAGGED
from tagfill.filling.source import absolute_options
from tagfill.filling.summary import FillSummary
from tagfill.filling.table import TableLayout, read_filled, write_filled

COLORS = {"red": (220, 30, 30), "green": (30, 200, 40), "blue": (40, 60, 220), "white": (245, 245, 245)}
QUICK = {"image_size": 64, "epochs": 4, "folds": 2, "jobs": 1}


def make_photos(folder: Path, count: int = 200, tagged: int = 180) -> dict[str, set[str]]:
    """Photos of one to three colored squares on gray, and a table with one tag for most of them; returns the truth."""
    rng = np.random.default_rng(0)
    (folder / "photos").mkdir(parents=True)
    truth, rows = {}, []
    for number in range(count):
        pixels = rng.integers(90, 120, (64, 64, 3), dtype=np.uint8)
        shown = rng.choice(list(COLORS), size=rng.integers(1, 4), replace=False)
        for place, color in zip(rng.permutation(4), shown, strict=False):
            top, left = 32 * (place // 2), 32 * (place % 2)
            pixels[top + 2 : top + 30, left + 2 : left + 30] = COLORS[color]
        name = f"{number:03d}.png"
        Image.fromarray(pixels).save(folder / "photos" / name)
        truth[name] = set(shown.tolist())
        if number < tagged:
            rows.append((name, rng.choice(shown)))
    with (folder / "tags.csv").open("w", newline="", encoding="utf-8") as file:
        csv.writer(file).writerows([("image", "tag"), *rows])
    return truth


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    return tmp_path_factory.mktemp("fill")


@pytest.fixture(scope="module")
def truth(place):
    return make_photos(place)


@pytest.fixture(scope="module")
def first(place, truth):
    """The first result; tests that change it work on a copy."""
    return tagfill.fill(place / "tags.csv", photos=place / "photos", out=place / "filled", **QUICK)


def test_every_photo_is_in_the_table_with_its_tags_and_what_was_added(place, truth, first):
    with (place / "tags.csv").open(encoding="utf-8") as file:
        given = {row["image"]: [row["tag"]] for row in csv.DictReader(file)}
    table = first.table.to_pylist()
    assert {row["image"]: row["tags"] for row in table} == {name: given.get(name, []) for name in truth}
    assert sum(len(row["added"]) for row in table) == first.summary.added > 0
    assert all(len(row["added"]) == len(row["probability"]) for row in table)
    assert not any(set(row["added"]) & set(row["tags"]) for row in table)
    added = [(row["image"], tag) for row in table for tag in row["added"]]
    assert np.mean([tag in truth[image] for image, tag in added]) > 0.5


def test_added_tags_are_rows_of_their_own_and_never_trained_on(first):
    rows = first.dataset.rows()
    mine = rows.filter(pc.equal(rows["source"], "fill"))
    pairs = set(zip(mine["image"].to_pylist(), mine["label"].to_pylist(), strict=True))
    assert pairs == {(row["image"], tag) for row in first.table.to_pylist() for tag in row["added"]}
    (work,) = (path for path in (first.folder / "work").iterdir() if not path.name.startswith("features"))
    trained = Dataset.open(work / "data")
    assert "fill" not in trained.rows()["source"].to_pylist()
    assert len(trained.split(UNTAGGED)) == 20  # nothing is known about them, so nothing is assumed
    assert len(first.dataset.splits["train"]) == 200


def test_what_is_uncertain_is_neither_given_nor_added(first):
    questions = Suggestions.read(first.folder / "to-review.csv")
    pairs = set(zip(*(questions.table[name].to_pylist() for name in ("image", "label")), strict=True))
    known = {(row["image"], tag) for row in first.table.to_pylist() for tag in [*row["tags"], *row["added"]]}
    assert pairs
    assert not pairs & known
    probabilities = questions.table["probability"].to_pylist()
    assert probabilities == sorted(probabilities, reverse=True)
    assert max(probabilities) < first.summary.threshold


def test_the_report_names_the_numbers_and_shows_photos(first):
    page = first.report.read_text(encoding="utf-8")
    assert f"{first.summary.added:,}" in page
    assert page.count("data:image/jpeg") >= len(COLORS)
    assert "estimated from the tags alone" in page


def test_the_model_predicts_with_chosen_thresholds(first, place):
    assert len(first.model.thresholds) == len(COLORS)
    assert len(set(first.model.thresholds)) == 1  # probabilities of all classes mean the same
    out = place / "predictions.csv"
    tagfill.predict_to_file(first.model_folder, place / "photos", out)
    assert out.stat().st_size


def copy_of(first: Fill, place: Path, name: str) -> Path:
    """A copy of the result, whose settings still name the same table."""
    return Path(shutil.copytree(first.folder, place / name))


def decide(folder: Path, truth: dict[str, set[str]], count: int) -> None:
    """Answer the first questions of the review truthfully."""
    with open_session(Dataset.open(folder / "known"), Suggestions.read(folder / "to-review.csv")) as session:
        answers = [
            Decision(f"id{one.place}", one.image, one.label, one.label in truth[one.image], place=one.place)
            for one in session.suggestions[:count]
        ]
        session.decide(answers, "tester")


class Said:
    """Remembers what was said."""

    def __init__(self) -> None:
        self.lines: list[str] = []

    def say(self, text: str) -> None:
        self.lines.append(text)

    def bar(self, *args, **options):
        from tagfill.progress import SILENT

        return SILENT.bar("", 1)


def test_without_a_change_nothing_is_computed_again(first, place):
    folder, said = copy_of(first, place, "same"), Said()
    again = tagfill.fill(folder, progress=said)
    assert again.summary == first.summary
    assert any("Nothing has changed" in line for line in said.lines)
    assert not any("Training" in line for line in said.lines)


def test_another_rule_needs_no_training(first, place):
    folder, said = copy_of(first, place, "other-rule"), Said()
    again = tagfill.fill(folder, keep="probability=0.999", progress=said)
    assert again.summary.added < first.summary.added
    assert not any("Scoring" in line for line in said.lines)


def test_decisions_of_a_review_are_used_and_kept(first, place, truth):
    folder = copy_of(first, place, "reviewed")
    asked = min(20, first.summary.to_review)
    decide(folder, truth, asked)
    again = tagfill.fill(folder, jobs=1)
    assert again.summary.decisions == asked
    assert again.summary.past[-1].added == first.summary.added
    assert any("Since the last run" in line for line in again.summary.sentences())
    rows = again.dataset.rows()
    assert rows.filter(pc.equal(rows["source"], "review")).num_rows == asked
    decided = Suggestions.read(first.folder / "to-review.csv").table.slice(0, asked)
    left = Suggestions.read(folder / "to-review.csv").table
    pairs = [set(zip(t["image"].to_pylist(), t["label"].to_pylist(), strict=True)) for t in (decided, left)]
    assert not pairs[0] & pairs[1]  # nobody is asked twice
    added = [(row["image"], tag) for row in again.table.to_pylist() for tag in row["added"]]
    assert len(added) == again.summary.added > 0
    assert np.mean([tag in truth[image] for image, tag in added]) > 0.5
    third = tagfill.fill(folder, jobs=1)
    assert third.summary == again.summary


def test_an_audit_is_part_of_the_result(first, place):
    folder = copy_of(first, place, "audited")
    statement = ["Precision 94 %, between 89 and 97, from 120 decisions"]
    result = Fill.open(folder).add_audit({"statement": statement})
    assert statement[0] in result.report.read_text(encoding="utf-8")
    assert statement[0] + "." in result.summary.sentences()


def test_filled_json_comes_last(first, place, monkeypatch):
    """Killed before the report is there, the next call must not believe that nothing has changed."""
    folder = copy_of(first, place, "half")

    def killed(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(report, "write", killed)
    with pytest.raises(KeyboardInterrupt):
        tagfill.fill(folder, keep="probability=0.999")
    with pytest.raises(KeyboardInterrupt):
        first.add_audit({"statement": ["Precision 94 %"]})
    assert FillSummary.read(folder) == first.summary == FillSummary.read(first.folder)
    monkeypatch.undo()
    again = tagfill.fill(folder, keep="probability=0.999")
    assert "No tag was added" in again.report.read_text(encoding="utf-8")
    assert again.summary.added == 0


def test_a_result_can_be_filled_again_from_another_folder(place, truth, first, monkeypatch, tmp_path):
    monkeypatch.chdir(place)
    shutil.copytree(first.folder, place / "moved")
    tagfill.fill("tags.csv", photos="photos", out="moved", keep="probability=0.999", **QUICK)
    monkeypatch.chdir(tmp_path)
    again = tagfill.fill(place / "moved", keep="probability=0.99")
    assert again.summary.settings.photos == str(place / "photos")
    assert again.summary.added <= first.summary.added
    found = absolute_options("coco", {"root": "photos", "images": "train"})
    assert found == {"root": str(tmp_path / "photos"), "images": "train"}


def test_a_report_of_nothing_shows_the_surest_suggestions(first, place):
    folder = copy_of(first, place, "nothing")
    again = tagfill.fill(folder, keep="probability=1")
    page = again.report.read_text(encoding="utf-8")
    assert again.summary.added == 0
    assert page.count("data:image/jpeg") >= len(COLORS)
    assert "audit" not in page
    assert f"tagfill fill {folder} --keep {again.summary.lower_keep()}" in page
    assert page.index("What to do next") < page.index("How far it can be trusted")


@pytest.mark.parametrize(
    ("like", "line"),
    [
        ({"image_column": "file", "separator": ";", "delimiter": ","}, "file,tags,added,probability\na.jpg,cat;dog,"),
        ({"image_column": "file", "separator": ",|", "delimiter": ";"}, "file;tags;added;probability\na.jpg;cat,dog;"),
        (
            {"image_column": "tags", "separator": "none", "delimiter": "\t"},
            "image,tags,added,probability\na.jpg,cat|dog,",
        ),
        ({"image_column": "i", "separator": "json"}, 'i,tags,added,probability\na.jpg,"[""cat"", ""dog""]",'),
    ],
)
def test_filled_csv_looks_like_the_table_that_was_given(tmp_path, like, line):
    rows = [{"image": "a.jpg", "label": tag, "present": True} for tag in ("cat", "dog")]
    images = [{"image": name, "split": "train"} for name in ("a.jpg", "b.jpg")]
    known = Dataset.from_records("mine", "photos", ["cat", "dog", "red car", "über"], images, rows)
    added = pa.table({"image": ["a.jpg", "a.jpg"], "label": ["red car", "über"], "probability": [0.97, 0.9]})
    layout, path = TableLayout.choose(known.classes, like), tmp_path / "filled.csv"
    write_filled(path, known, added, layout)
    assert path.read_text(encoding="utf-8").startswith(line)
    assert read_filled(path, layout).to_pylist() == [
        {"image": "a.jpg", "tags": ["cat", "dog"], "added": ["red car", "über"], "probability": [0.97, 0.9]},
        {"image": "b.jpg", "tags": [], "added": [], "probability": []},
    ]
    again = tagfill.formats.get("tags").parse(path)  # it can be a source itself
    assert [(photo.image, set(photo.states)) for photo in again.photos] == [("a.jpg", {"cat", "dog"}), ("b.jpg", set())]


def test_a_review_without_the_libraries_of_the_server_says_what_to_install(first, monkeypatch):
    monkeypatch.setitem(sys.modules, "tagfill.curation.server", None)
    monkeypatch.delattr("tagfill.curation.server", raising=False)
    with pytest.raises(TagfillError, match=r"pip install 'tagfill\[serve\]'"):
        first.review(browser=False)


def test_a_result_is_written_in_other_formats(first, place):
    folder = copy_of(first, place, "formats")
    written = write_formats(first.dataset, folder, ["coco", "cvat", "label-studio", "wide-csv", "tags", "yolo"])
    assert all(path.exists() for path in written)
    content = json.loads((folder / "coco/annotations/instances_train.json").read_text(encoding="utf-8"))
    assert len(content["annotations"]) == first.summary.given + first.summary.added
    assert content["annotations"][0]["bbox"] == [0, 0, 64, 64]


def test_tables_can_be_written_so_that_a_spreadsheet_runs_no_name(first, place):
    """The tags of the result are renamed, because a second one would take longer."""
    data, names = first.dataset, {"red": "=red", "blue": "-blue"}
    rows = [row | {"label": names.get(row["label"], row["label"])} for row in data.rows().to_pylist()]
    classes = tuple(names.get(one, one) for one in data.classes)
    renamed = data.replace(classes=classes, annotations=from_records(rows), folder=None)
    added = pa.table({"image": ["149.png"] * 2, "label": ["-blue", "=red"], "probability": [0.9, 0.8]})
    layout = TableLayout(image_column="@photo", spreadsheet=True)
    write_filled(place / "safe.csv", renamed, added, layout)
    lines = (place / "safe.csv").read_text(encoding="utf-8").splitlines()
    begins = {cell[:2] for row in csv.reader(lines) for cell in row}
    assert {"'=", "'-", "'@"} <= begins
    assert not any(begin.startswith(("=", "-", "+", "@")) for begin in begins)
    table = read_filled(place / "safe.csv", layout).to_pylist()
    assert {tag for row in table for tag in row["tags"]} == set(classes)
    assert table[149]["added"] == ["-blue", "=red"]
    (wide,) = write_formats(renamed, place, ["wide-csv"], spreadsheet=True)
    header = next(csv.reader(wide.read_text(encoding="utf-8").splitlines()))
    assert header[2:] == [f"'{name}" if name[0] in "=-" else name for name in classes]


def test_killed_it_goes_on_to_the_same_result(place, truth, first):
    table, photos, out = place / "tags.csv", place / "photos", place / "killed"
    settings = [word for name, value in QUICK.items() for word in (f"--{name.replace('_', '-')}", str(value))]
    command = [sys.executable, "-m", "tagfill", "fill", table, "--photos", photos, "--out", out, *settings]
    started = subprocess.Popen(command, stderr=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
    deadline = time.monotonic() + 120
    while not list(out.glob("work/*/run/members/*/checkpoints/*")) and time.monotonic() < deadline:
        assert started.poll() is None
        time.sleep(0.02)
    os.kill(started.pid, signal.SIGKILL)
    started.wait()
    assert not (out / "filled.csv").exists()
    tagfill.fill(table, photos=photos, out=out, **QUICK)
    assert (out / "filled.csv").read_bytes() == (first.folder / "filled.csv").read_bytes()


def test_the_command_line_shows_what_it_understood_and_what_comes_next(first, place):
    folder = copy_of(first, place, "shown")
    shown = CliRunner().invoke(app, ["fill", str(folder)])
    assert shown.exit_code == 0, shown.output
    assert "180 photos, " in shown.stderr
    for command in (f"tagfill review {folder}", f"tagfill audit {folder}", f"tagfill predict {folder / 'model'}"):
        assert command in shown.stderr
    as_json = CliRunner().invoke(app, ["fill", str(folder), "--json", "--quiet"])
    assert json.loads(as_json.stdout)["added"] == first.summary.added


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["--keep", "precision=2"], "--keep precision=2 is not understood"),
        (["--format", "imagenet"], "can only be read"),
        (["--method", "rol"], "no method 'rol'"),
        (["--photos", "nowhere"], "There are no photos at"),
        (["--photos", "empty"], "There is no photo below"),
    ],
)
def test_bad_input_gets_one_sentence_and_leaves_nothing(place, truth, arguments, sentence, monkeypatch):
    monkeypatch.chdir(place)
    (place / "empty").mkdir(exist_ok=True)
    command = ["fill", "tags.csv", "--photos", "photos", "--out", "refused", *arguments]
    shown = CliRunner().invoke(app, command)
    assert isinstance(shown.exception, TagfillError), shown.output
    assert sentence in str(shown.exception)
    assert not (place / "refused").exists()


def test_too_few_tags_are_refused(place, truth):
    table = {"image": ["000.png", "001.png"], "tag": ["red", "blue"]}
    with pytest.raises(TagfillError, match="only 2 tags"):
        tagfill.fill(table, photos=place / "photos", out=place / "few")


def test_a_folder_with_something_else_in_it_is_refused(place, truth, tmp_path):
    (tmp_path / "thesis.txt").write_text("mine", encoding="utf-8")
    with pytest.raises(TagfillError, match="not empty"):
        tagfill.fill(place / "tags.csv", photos=place / "photos", out=tmp_path)


def test_evidence_about_what_is_known_adds_more_right_tags(place, truth, first, tmp_path):
    again = tmp_path / "filled"
    shutil.copytree(place / "filled", again)
    known = Dataset.open(again / "known")
    rng = np.random.default_rng(4)
    shown = np.array([[color in truth[name] for color in known.classes] for name in known.names()])
    scores = 0.2 + 0.03 * shown + 0.005 * rng.normal(size=shown.shape)
    table = pa.table({"image": known.names(), **dict(zip(known.classes, scores.T, strict=True))})
    tagfill.evidence.import_scores(table, known, name="clip", scale="cosines")

    def right(result: Fill) -> tuple[int, int]:
        pairs = [(row["image"], tag) for row in result.table.to_pylist() for tag in row["added"]]
        return sum(tag in truth[image] for image, tag in pairs), len(pairs)

    second = tagfill.fill(again)

    assert right(second)[0] > right(first)[0]
    assert right(second)[0] >= 0.9 * right(second)[1]
    assert "Nothing has changed" in CliRunner().invoke(app, ["fill", str(again)]).output
    assert set(second.summary.weights) == {"model", "clip"}
    assert "from the evidence clip" in (again / "report.html").read_text(encoding="utf-8")
    assert tagfill.fill(again, evidence=False).summary.weights == {}


def test_the_names_of_tags_are_evidence(first):
    assert set(first.summary.weights) == {"model", "prior"}
    assert sum(first.summary.weights.values()) == pytest.approx(1)


def test_what_the_model_calls_present_has_the_precision_that_was_asked_for():
    from tagfill.curation.estimates import uncorrected
    from tagfill.probabilities import Calibration

    rng = np.random.default_rng(1)
    p = rng.choice([0.0555, 0.2055, 0.4555, 0.7055, 0.9855], size=(400, 3), p=[0.5, 0.2, 0.1, 0.1, 0.1])
    images = [{"image": f"{row}.jpg", "split": "train"} for row in range(400)]
    data = Dataset.from_records("p", "photos", ["a", "b", "c"], images, [])
    candidates = Candidates(data)
    unknown = np.full(p.shape, -1, dtype=np.int8)
    logits, estimates = np.log(p / (1 - p)), uncorrected(Calibration.identity(3), unknown)
    candidates.add(np.arange(400), logits, estimates)
    candidates.sample(logits, estimates)
    scored = Scored.model_construct(precision=candidates.precision().tolist())
    for precision, lowest in ((0.98, 0.9855), (0.8, 0.7055), (0.6, 0.4555), (0.05, 0.0555)):
        said = p >= scored.threshold(precision)
        assert p[said].min() == lowest
        assert p[said].mean() >= precision
    assert scored.threshold(0.999) == 0.5  # what is likelier than not, if nothing is that sure
    np.testing.assert_allclose(candidates.expected, p.sum(0))
