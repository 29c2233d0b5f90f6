"""Prediction files: their content, what a rerun does, what is refused, and pictures of class maps."""

from __future__ import annotations

import csv
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest
from PIL import Image

from inference.colors import CLASSES, probability, write_image, write_images, write_model
from tagfill.errors import ImageError, TagfillError
from tagfill.inference import predict, predict_to_file, prediction_parts, read_predicted_tags
from tagfill.inference.files import picture_path
from tagfill.inference.prediction_parts import PartsFolder
from tagfill.probabilities import Calibration


@pytest.fixture
def model(tmp_path: Path) -> Path:
    return write_model(tmp_path / "colors.onnx")


@pytest.fixture
def photos(tmp_path: Path) -> Path:
    return write_images(tmp_path / "photos", 25)


@pytest.fixture(autouse=True)
def small_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Parts of ten images."""
    monkeypatch.setattr(prediction_parts, "_PART_IMAGES", 10)


def rows_of(path: Path) -> list[tuple[str, str, float, bool]]:
    if path.suffix == ".csv":
        with path.open(encoding="utf-8", newline="") as file:
            return [
                (row["image"], row["label"], float(row["probability"]), row["present"] == "true")
                for row in csv.DictReader(file)
            ]
    return [tuple(row.values()) for row in pq.read_table(path).to_pylist()]


def test_rows_are_what_the_model_says(model: Path, photos: Path, tmp_path: Path) -> None:
    filled = predict_to_file(model, photos, tmp_path / "out.parquet", batch_size=4)

    rows = rows_of(filled.out)
    assert (filled.images, filled.predicted, filled.bad, filled.made, filled.finished) == (25, 25, 0, 25, True)
    assert [row[:2] for row in rows[:4]] == [
        *((f"{photos}/000.png", label) for label in CLASSES),
        (f"{photos}/001.png", "red"),
    ]
    assert len(rows) == 25 * 3
    assert [row[2] for row in rows[::3]] == pytest.approx([probability(8 * n) for n in range(25)], abs=1e-6)
    assert [row[3] for row in rows[::3]] == [8 * n >= 128 for n in range(25)]


def test_csv_and_json_lines_say_the_same_as_parquet(model: Path, photos: Path, tmp_path: Path) -> None:
    write_image(photos / 'a "comma", and ü.png', (255, 255, 0))
    files = [tmp_path / f"out.{ending}" for ending in ("parquet", "csv", "jsonl")]
    for file in files:
        predict_to_file(model, photos, file, top_k=2)

    rows = rows_of(files[0])
    lines = [json.loads(line) for line in files[2].read_text(encoding="utf-8").splitlines()]

    assert rows_of(files[1]) == [(*row[:2], pytest.approx(row[2], rel=1e-6), row[3]) for row in rows]
    assert [(line["image"], label, score) for line in lines for label, score in line["scores"].items()] == [
        row[:3] for row in rows
    ]
    assert [line["present"] for line in lines] == [
        [row[1] for row in pair if row[3]] for pair in zip(rows[::2], rows[1::2], strict=True)
    ]
    assert lines[-1]["present"] == ["red", "green"]


def test_names_that_a_spreadsheet_would_run_can_be_written_as_text(
    model: Path, photos: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(photos)
    for number, name in enumerate(("=1+1.png", "@b.png", "'=c.png", "d.png")):
        Path(f"{number:03d}.png").rename(name)
    images = ["=1+1.png", "@b.png", "'=c.png", "d.png"]
    plain = predict_to_file(model, images, tmp_path / "plain.csv")
    safe = predict_to_file(model, images, tmp_path / "safe.csv", spreadsheet=True)
    assert [row[0] for row in rows_of(plain.out)[::3]] == images
    assert [row[0] for row in rows_of(safe.out)[::3]] == ["'=1+1.png", "'@b.png", "''=c.png", "d.png"]
    assert [row[1:] for row in rows_of(safe.out)] == [row[1:] for row in rows_of(plain.out)]
    assert read_predicted_tags(safe.out) == read_predicted_tags(plain.out)
    with pytest.raises(TagfillError, match="another choice of --spreadsheet"):
        predict_to_file(model, images, plain.out, spreadsheet=True)
    with pytest.raises(TagfillError, match="--spreadsheet is for CSV files"):
        predict_to_file(model, images, tmp_path / "safe.parquet", spreadsheet=True)


def test_in_memory_predictions_are_those_of_the_file(model: Path, photos: Path, tmp_path: Path) -> None:
    predict_to_file(model, photos, tmp_path / "out.jsonl", top_k=2, threshold={"blue": 0.51})

    lines = [json.loads(line) for line in (tmp_path / "out.jsonl").read_text().splitlines()]
    found = list(predict(model, photos, top_k=2, threshold={"blue": 0.51}))

    assert [(each.image, list(each.present), each.scores) for each in found] == [
        (line["image"], line["present"], line["scores"]) for line in lines
    ]


def test_thresholds_of_the_model_decide_unless_others_are_given(tmp_path: Path, photos: Path) -> None:
    chosen = write_model(tmp_path / "chosen.onnx", thresholds=(0.0, 0.9, 0.9))

    def present(**options: float) -> set[str]:
        return {label for found in predict(chosen, photos / "000.png", **options) for label in found.present}

    assert present() == {"red"}
    assert present(threshold=0.5) == {"blue"}


def test_probabilities_are_calibrated_unless_raw_scores_are_wanted(tmp_path: Path, photos: Path) -> None:
    """Halved logits, red less likely by 1: the channel from which it is present, 160, is the same for raw scores."""
    calibration = Calibration(slope=0.5, offset=(-1.0, 0.0, 0.0), source="measured")
    model = write_model(tmp_path / "calibrated.onnx", thresholds=(0.5, 0.5, 0.5), calibration=calibration)
    out = tmp_path / "out.parquet"

    found = rows_of(predict_to_file(model, photos, out).out)[::3]
    with pytest.raises(TagfillError, match="another choice of --raw-scores"):
        predict_to_file(model, photos, out, raw_scores=True)
    raw = rows_of(predict_to_file(model, photos, out, raw_scores=True, force=True).out)[::3]

    expected = [1 / (1 + np.exp(1 - (8 * n - 128) / 32)) for n in range(25)]
    assert [row[2] for row in found] == pytest.approx(expected, abs=1e-6)
    assert [row[2] for row in raw] == pytest.approx([probability(8 * n) for n in range(25)], abs=1e-6)
    assert [row[3] for row in found] == [row[3] for row in raw] == [8 * n >= 160 for n in range(25)]
    assert [each.scores["red"] for each in predict(model, photos)] == [row[2] for row in found]
    assert [each.scores["red"] for each in predict(model, photos, raw_scores=True)] == [row[2] for row in raw]


def test_bad_images_are_listed_and_left_out(model: Path, photos: Path, tmp_path: Path) -> None:
    (photos / "003.png").write_bytes(b"")
    (photos / "021.png").write_bytes(b"\x89PNG\r\n\x1a\n, and then nothing")

    filled = predict_to_file(model, photos, tmp_path / "out.csv", workers=2)

    listed = filled.bad_list.read_text().splitlines()
    assert (filled.predicted, filled.bad) == (23, 2)
    assert [line.partition("\t")[0] for line in listed] == [f"{photos}/003.png", f"{photos}/021.png"]
    assert "the file is empty" in listed[0]
    assert {row[0] for row in rows_of(filled.out)}.isdisjoint({f"{photos}/003.png", f"{photos}/021.png"})
    with pytest.raises(ImageError, match=r"003\.png: the file is empty"):
        list(predict(model, photos))


def test_a_part_without_any_good_image_is_no_problem(model: Path, photos: Path, tmp_path: Path) -> None:
    for number in range(10, 20):
        (photos / f"{number:03d}.png").write_bytes(b"bad")

    filled = predict_to_file(model, photos, tmp_path / "out.parquet")

    assert (filled.predicted, filled.bad) == (15, 10)
    assert len(rows_of(filled.out)) == 15 * 3


def test_after_an_interruption_only_what_is_missing_is_made(
    model: Path, photos: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = predict_to_file(model, photos, tmp_path / "whole.parquet")
    out, write, count = tmp_path / "out.parquet", PartsFolder.write, 0

    def failing(parts: PartsFolder, *arguments: object) -> None:
        nonlocal count
        count += 1
        if count == 2:
            raise KeyboardInterrupt
        write(parts, *arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(PartsFolder, "write", failing)
    with pytest.raises(KeyboardInterrupt):
        predict_to_file(model, photos, out)
    assert not out.exists()

    filled = predict_to_file(model, photos, out)

    assert filled.made == 15
    assert out.read_bytes() == whole.out.read_bytes()
    assert not (tmp_path / "out.parquet.parts").exists()


def test_a_file_that_is_complete_is_left_alone(model: Path, photos: Path, tmp_path: Path) -> None:
    first = predict_to_file(model, photos, tmp_path / "out.csv")
    before = first.out.stat().st_mtime_ns

    again = predict_to_file(model, photos, tmp_path / "out.csv")

    assert (again.made, again.predicted, again.finished) == (0, 25, True)
    assert first.out.stat().st_mtime_ns == before


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ("model", "another model"),
        ("images", "another list of images"),
        ("threshold", "other thresholds"),
        ("top_k", "another --top-k"),
    ],
)
@pytest.mark.parametrize("begun", [False, True], ids=["finished", "begun"])
def test_other_models_images_and_settings_are_refused(
    model: Path, photos: Path, tmp_path: Path, change: str, words: str, begun: bool
) -> None:
    out = tmp_path / "out.csv"
    predict_to_file(model, photos, out)
    if begun:
        out.unlink()
        (tmp_path / "out.csv.parts").mkdir()
        (tmp_path / "out.csv.json").rename(tmp_path / "out.csv.parts" / "plan.json")
    options: dict[str, object] = {}
    if change == "model":
        write_model(model, maps=False)
    elif change == "images":
        write_image(photos / "new.png", (0, 0, 0))
    else:
        options = {"threshold": 0.4} if change == "threshold" else {"top_k": 1}

    with pytest.raises(TagfillError, match=f"made with {words}"):
        predict_to_file(model, photos, out, **options)  # type: ignore[arg-type]

    assert predict_to_file(model, photos, out, force=True, **options).made == len(list(photos.iterdir()))  # type: ignore[arg-type]


@pytest.mark.parametrize(("content", "problem"), [("{", "it is not valid JSON"), ("{}", "'model' is missing")])
def test_a_damaged_manifest_is_named(model: Path, photos: Path, tmp_path: Path, content: str, problem: str) -> None:
    out = tmp_path / "out.csv"
    predict_to_file(model, photos, out)
    (tmp_path / "out.csv.json").write_text(content)

    with pytest.raises(TagfillError, match=rf"out\.csv\.json is damaged: {problem}; give --force"):
        predict_to_file(model, photos, out)

    assert predict_to_file(model, photos, out, force=True).made == 25


def test_an_unrelated_file_is_not_overwritten(model: Path, photos: Path, tmp_path: Path) -> None:
    (tmp_path / "out.csv").write_text("precious")

    with pytest.raises(TagfillError, match="exists already"):
        predict_to_file(model, photos, tmp_path / "out.csv")

    assert (tmp_path / "out.csv").read_text() == "precious"


def test_processes_make_their_own_parts_and_the_last_one_joins_them(
    model: Path, photos: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    alone = predict_to_file(model, photos, tmp_path / "alone.parquet")
    out = tmp_path / "out.parquet"
    monkeypatch.setenv("WORLD_SIZE", "2")

    monkeypatch.setenv("RANK", "1")
    first = predict_to_file(model, photos, out)
    assert (first.made, first.predicted, first.finished, out.exists()) == (10, 10, False, False)

    monkeypatch.setenv("RANK", "0")
    last = predict_to_file(model, photos, out)
    assert (last.made, last.predicted, last.finished) == (15, 25, True)
    assert out.read_bytes() == alone.out.read_bytes()
    with pytest.raises(TagfillError, match="--force does not work with several processes"):
        predict_to_file(model, photos, out, force=True)


def test_processes_that_work_at_the_same_time_end_with_one_file(model: Path, photos: Path, tmp_path: Path) -> None:
    alone = predict_to_file(model, photos, tmp_path / "alone.parquet")
    code = (
        "import sys; from tagfill.inference import predict_to_file, prediction_parts; "
        "prediction_parts._PART_IMAGES = 10; predict_to_file(*sys.argv[1:4])"
    )
    command = [sys.executable, "-c", code, str(model), str(photos), str(tmp_path / "out.parquet")]
    ranks = [subprocess.Popen(command, env={**os.environ, "RANK": str(rank), "WORLD_SIZE": "3"}) for rank in range(3)]

    assert [process.wait(timeout=60) for process in ranks] == [0, 0, 0]
    assert (tmp_path / "out.parquet").read_bytes() == alone.out.read_bytes()
    assert sorted(path.name for path in tmp_path.glob("out.*")) == ["out.parquet", "out.parquet.json"]


def test_engines_make_the_same_file(model: Path, photos: Path, tmp_path: Path) -> None:
    (photos / "012.png").write_bytes(b"bad")
    alone = predict_to_file(model, photos, tmp_path / "alone.parquet")

    shared = predict_to_file(model, photos, tmp_path / "out.parquet", engine="joblib", jobs=1)

    assert (shared.made, shared.bad, shared.finished) == (25, 1, True)
    assert shared.out.read_bytes() == alone.out.read_bytes()


@pytest.mark.long
@pytest.mark.parametrize("engine", ["joblib", "ray"])
def test_two_processes_of_an_engine_make_the_same_file(model: Path, photos: Path, tmp_path: Path, engine: str) -> None:
    alone = predict_to_file(model, photos, tmp_path / "alone.parquet")

    shared = predict_to_file(model, photos, tmp_path / "out.parquet", engine=engine, jobs=2)

    assert shared.finished
    assert shared.out.read_bytes() == alone.out.read_bytes()


def test_memory_does_not_grow_with_the_number_of_images(model: Path, tmp_path: Path) -> None:
    """Rows are written away part by part: what is alive at once does not depend on how many parts there are."""
    import tracemalloc

    def peak(count: int) -> int:
        folder = tmp_path / f"photos{count}"
        folder.mkdir()
        source = write_image(tmp_path / "one.png", (200, 0, 0), size=(4, 4))
        for number in range(count):
            (folder / f"{number:05d}.png").hardlink_to(source)
        predict_to_file(model, folder, tmp_path / f"warm{count}.csv")
        tracemalloc.start()
        predict_to_file(model, folder, tmp_path / f"out{count}.csv")
        most = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        return most

    few, many = peak(40), peak(400)

    assert many - few < 360 * 1000  # a name, a path and a place in lists for each image, and no results


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"out": "out.txt"}, "ends in none of .parquet, .csv, .jsonl"),
        ({"top_k": 0}, "would keep no label"),
        ({"engine": "rai"}, "There is no engine 'rai'"),
        ({"classes": ["red"]}, "give a folder for --heatmaps"),
        ({"heatmaps": "maps", "classes": ["rot"]}, "There is no class 'rot'"),
        ({"device": "abacus"}, "no device 'abacus'"),
    ],
)
def test_mistakes_are_named_before_anything_is_written(
    model: Path, photos: Path, tmp_path: Path, options: dict[str, object], sentence: str
) -> None:
    out = tmp_path / str(options.pop("out", "out.csv"))

    with pytest.raises(TagfillError) as raised:
        predict_to_file(model, photos, out, **options)  # type: ignore[arg-type]

    assert sentence in str(raised.value)
    assert not list(tmp_path.glob("out*"))


# Pictures of class maps


@pytest.fixture
def photo(tmp_path: Path) -> Path:
    """Red in the upper left quarter, blue elsewhere; twice as wide as high."""
    pixels = np.zeros((60, 120, 3), np.uint8)
    pixels[:, :, 2] = 255
    pixels[:30, :60] = (255, 0, 0)
    path = tmp_path / "photo.png"
    Image.fromarray(pixels).save(path)
    return path


def read(path: Path) -> Image.Image:
    with Image.open(path) as image:
        return image.copy()


def drawn(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.rglob("*.jpg"))


def test_present_labels_are_drawn_over_the_image_as_it_was_taken(photo: Path, tmp_path: Path) -> None:
    model = write_model(tmp_path / "colors.onnx")

    predict_to_file(model, photo, tmp_path / "out.csv", heatmaps=tmp_path / "maps")

    assert drawn(tmp_path / "maps") == ["blue.jpg"]
    (path,) = (tmp_path / "maps").rglob("blue.jpg")
    picture = np.array(read(path), dtype=int)
    assert picture.shape == (60, 120, 3)
    yellow, violet = picture[50, 100], picture[3, 3]  # the ends of viridis, over blue and over red
    assert yellow[0] > 180
    assert yellow[1] > 150
    assert violet[1] < 40


def test_classes_may_be_chosen_whether_present_or_not(photo: Path, tmp_path: Path) -> None:
    model = write_model(tmp_path / "colors.onnx")

    predict_to_file(model, photo, tmp_path / "out.csv", heatmaps=tmp_path / "maps", classes=["red", "green"], top_k=1)

    assert drawn(tmp_path / "maps") == ["green.jpg", "red.jpg"]


def test_models_without_maps_are_refused_before_any_work(photo: Path, tmp_path: Path) -> None:
    model = write_model(tmp_path / "colors.onnx", maps=False)

    with pytest.raises(TagfillError, match="exported without class maps; export the model again with --maps"):
        predict_to_file(model, photo, tmp_path / "out.csv", heatmaps=tmp_path / "maps")

    assert not list(tmp_path.glob("out*"))


def test_no_name_leads_out_of_the_folder() -> None:
    hostile = ["../../etc/x.jpg", "/etc/x.jpg", "a/./../b.jpg", "c:\\x\\..\\y.jpg", "https://host/a?b.jpg"]

    for name in hostile:
        path = picture_path(name, "../up")
        assert not path.is_absolute()
        assert ".." not in path.parts
        assert re.fullmatch(r"_up-\w{10}\.jpg", path.name)


def test_parts_of_a_killed_process_are_removed_when_the_file_is_complete(tmp_path: Path) -> None:
    model, photos = write_model(tmp_path / "colors.onnx"), write_images(tmp_path / "photos", 2)
    predict_to_file(model, photos, tmp_path / "out.csv")
    (tmp_path / "out.csv.parts").mkdir()
    (tmp_path / "out.csv.parts" / "000000.parquet").touch()
    assert predict_to_file(model, photos, tmp_path / "out.csv").finished
    assert not (tmp_path / "out.csv.parts").exists()


def test_paths_of_pictures_are_distinct_and_short() -> None:
    names = [
        "a/b.jpg",
        "a:b.jpg",
        "a_b.jpg",
        "../a/b.jpg",
        "a//b.jpg",
        "a/../b.jpg",
        "x" * 255,
        "x" * 254,
        "ü" * 127,
        "_",
    ]
    labels = ["cat/dog", "cat:dog", "cat_dog", "cat?dog", "cat", "cat ", ".cat", "c" * 300, "c" * 301, "ä" * 200, "..."]
    paths = [picture_path(name, label) for name in names for label in labels]
    assert len(set(paths)) == len(names) * len(labels)
    assert max(len(part.encode()) for path in paths for part in path.parts) <= 220
    assert picture_path("/data/photos/1.jpg", "red cup").as_posix() == "data/photos/1.jpg/red cup.jpg"


def test_large_images_are_drawn_small(tmp_path: Path) -> None:
    model = write_model(tmp_path / "colors.onnx")
    photo = write_image(tmp_path / "large.png", (255, 0, 0), size=(1600, 800))

    predict_to_file(model, photo, tmp_path / "out.csv", heatmaps=tmp_path / "maps")

    (path,) = (tmp_path / "maps").rglob("red.jpg")
    assert read(path).size == (640, 320)
