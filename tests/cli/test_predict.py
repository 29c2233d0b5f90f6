"""`tagfill predict` and `tagfill export`."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pyarrow.parquet as pq
import pytest

import tagfill
from inference.colors import write_images, write_model

Call = Callable[..., tuple[int, str, str]]


@pytest.fixture(autouse=True)
def working_folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def photos(tmp_path: Path) -> Path:
    write_model(tmp_path / "colors.onnx")
    write_images(tmp_path / "photos", 18)
    (tmp_path / "photos" / "bad.png").write_bytes(b"bad")
    return tmp_path / "photos"


def test_without_a_file_json_lines_go_to_a_pipe(call: Call, photos: Path) -> None:
    code, out, err = call("predict", "colors.onnx", "photos", "--top-k", "1", "--quiet")

    lines = [json.loads(line) for line in out.splitlines()]
    assert code == 0
    assert (lines[0]["image"], lines[0]["present"], list(lines[0]["scores"])) == ("photos/000.png", ["blue"], ["blue"])
    assert (len(lines), lines[17]["present"]) == (18, ["red"])
    assert "left out: photos/bad.png: this is not an image" in err
    assert "1 images could not be decoded" in err


def test_one_document_holds_predictions_and_bad_images(call: Call, photos: Path) -> None:
    code, out, _ = call("predict", "colors.onnx", "photos", "--threshold", "red=0.1", "--threshold", "blue=1", "--json")

    document = json.loads(out)
    assert code == 0
    assert [each["present"] for each in document["predictions"]] == [[]] * 12 + [["red"]] * 6
    assert document["bad"][0][0] == "photos/bad.png"


def test_a_file_is_written_once_and_a_second_call_reports_the_same(call: Call, photos: Path) -> None:
    arguments = ("predict", "colors.onnx", "photos/*.png", "--out", "out.parquet", "--json")

    first, second = (json.loads(call(*arguments)[1]) for _ in range(2))

    assert (first["made"], first["predicted"], first["bad"], first["bad_list"]) == (19, 18, 1, "out.parquet.bad.tsv")
    assert second == {**first, "made": 0}
    assert call(*arguments[:-1])[2].endswith("Next: tagfill write out.parquet --out predicted-tags.csv\n")
    assert pq.read_table("out.parquet").num_rows == 18 * 3


def test_an_exported_model_predicts_the_same_as_its_run(call: Call, tmp_path: Path) -> None:
    tagfill.scenes.make(tmp_path / "scenes", train=12, val=4, test=6, size=64)
    small = ["--backbone", "test_efficientnet", "--pretrained", "none", "--set", "image_size=64", "--head", "cam"]
    assert call("train", "scenes", *small, "--epochs", "1", "--out", "run")[0] == 0

    code, out, err = call("export", "run", "--onnx", "scenes.onnx", "--maps", "--json")
    assert code == 0, err
    assert json.loads(out)["real_images"] == 8  # from the dataset of the run

    for model, name in (("run", "torch"), ("scenes.onnx", "onnx")):
        arguments = ["predict", model, "scenes", "--split", "test", "--heatmaps", f"maps-{name}", "--classes", "anchor"]
        code, out, err = call(*arguments, "--out", f"{name}.parquet", "--json")
        assert code == 0, err
        assert json.loads(out)["predicted"] == 6
        assert len(list(Path(f"maps-{name}").rglob("anchor.jpg"))) == 6
    ours, theirs = (pq.read_table(f"{name}.parquet") for name in ("torch", "onnx"))
    assert ours["image"].to_pylist() == theirs["image"].to_pylist()
    assert theirs["probability"].to_pylist() == pytest.approx(ours["probability"].to_pylist(), abs=1e-4)
    data = tagfill.Dataset.open("scenes")
    assert ours["image"].unique().to_pylist() == data.names(data.split("test"))


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["predict", "colors.onnx", "nowhere"], "nowhere does not exist"),
        (["predict", "nowhere", "photos"], "nowhere is not a model folder"),
        (["predict", "colors.onnx", "photos", "--heatmaps", "maps"], "give --out too"),
        (["predict", "colors.onnx", "photos", "--threshold", "high"], "--threshold high is not a number"),
        (["predict", "colors.onnx", "photos", "--threshold", "rot=0.5"], "There is no class 'rot'"),
        (["predict", "colors.onnx", "photos", "--split", "test"], "Only a dataset has a split"),
        (["predict", "colors.onnx", "photos", "--out", "out.xlsx"], "ends in none of .parquet"),
        (["export", "colors.onnx", "--onnx", "other.onnx"], "A run or model folder is exported"),
    ],
)
def test_user_errors_print_one_sentence_and_exit_with_2(
    call: Call, photos: Path, arguments: list[str], sentence: str
) -> None:
    code, out, err = call(*arguments)

    assert (code, out) == (2, "")
    assert sentence in err
    assert "Traceback" not in err
