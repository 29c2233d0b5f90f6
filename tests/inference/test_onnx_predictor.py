"""ONNX files and their sidecars: damage is named, and torch is neither imported nor needed."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import venv
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from inference.colors import write_images, write_model
from tagfill.errors import TagfillError
from tagfill.inference import open_predictor, predict
from tagfill.inference.onnx_predictor import Sidecar, sidecar_path


def test_what_is_written_is_read(tmp_path: Path) -> None:
    path = write_model(tmp_path / "m.onnx", thresholds=(0.1, 0.2, 0.3))
    first = Sidecar.read(path)

    first.write(path)

    assert Sidecar.read(path) == first
    assert (first.classes, first.thresholds, first.preprocessing.size) == (
        ("red", "green", "blue"),
        (0.1, 0.2, 0.3),
        (32, 32),
    )


def without(key: str) -> Callable[[dict[str, Any]], None]:
    return lambda content: content.pop(key)


def put(key: str, value: object) -> Callable[[dict[str, Any]], None]:
    return lambda content: content.update({key: value})


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (without("hashes"), "hashes"),
        (put("format", "other"), "'format' is 'other'"),
        (put("classes", ["red", "green", "violet"]), "classes were edited"),
        (put("thresholds", [0.5]), "one threshold per class"),
        (put("thresholds", [0.5, 2, 0.5]), "less than or equal to 1"),
        (put("preprocessing", {"size": "large"}), "'preprocessing.size' is 'large'"),
        (put("hashes", {"onnx": "0", "model": "0"}), "its hash differs"),
    ],
)
def test_damage_is_named(tmp_path: Path, change: Callable[[dict[str, Any]], None], words: str) -> None:
    path = write_model(tmp_path / "m.onnx")
    content = json.loads(sidecar_path(path).read_text())
    change(content)
    sidecar_path(path).write_text(json.dumps(content))

    with pytest.raises(TagfillError, match=words):
        open_predictor(path)


def test_a_missing_sidecar_a_missing_file_and_no_json_are_named(tmp_path: Path) -> None:
    path = write_model(tmp_path / "m.onnx")
    sidecar_path(path).write_text("{")
    with pytest.raises(TagfillError, match="not valid JSON"):
        open_predictor(path)
    sidecar_path(path).unlink()
    with pytest.raises(TagfillError, match=r"no sidecar m\.onnx\.json"):
        open_predictor(path)
    with pytest.raises(TagfillError, match="There is no file"):
        open_predictor(tmp_path / "other.onnx")


@pytest.mark.parametrize("classes", [("red", "green"), ("red", "green", "blue", "white")])
def test_another_number_of_outputs_than_classes_is_an_error_at_once(tmp_path: Path, classes: tuple[str, ...]) -> None:
    path = write_model(tmp_path / "m.onnx", classes=classes)
    with pytest.raises(TagfillError, match=rf"output 'logits' of .* shape \(1, 3\) .* {len(classes)} classes"):
        open_predictor(path)


def test_scores_that_are_no_numbers_are_an_error_at_once(tmp_path: Path) -> None:
    path = write_model(tmp_path / "m.onnx", scale=0)  # 0 / 0 for gray
    with pytest.raises(TagfillError, match="scores that are not finite numbers"):
        open_predictor(path)


def test_scores_that_are_no_numbers_for_some_images_are_an_error_for_these(tmp_path: Path) -> None:
    path = write_model(tmp_path / "m.onnx", scale=1e-40)  # overflows for all colors but gray
    write_images(tmp_path / "photos", 2)
    with pytest.raises(TagfillError, match="scores that are not finite numbers"):
        list(predict(path, tmp_path / "photos"))


def test_inputs_of_another_size_are_an_error_at_once(tmp_path: Path) -> None:
    path = write_model(tmp_path / "m.onnx")
    content = json.loads(sidecar_path(path).read_text())
    for size, words in [([64, 64], "cannot score images"), ([10**6, 10**6], "names inputs of"), ([0, 32], "0 × 32")]:
        content["preprocessing"]["size"] = size
        sidecar_path(path).write_text(json.dumps(content))
        with pytest.raises(TagfillError, match=words):
            open_predictor(path)


def test_a_file_that_is_not_a_model_is_named(tmp_path: Path) -> None:
    from tagfill.io import sha256

    path = write_model(tmp_path / "m.onnx")
    sidecar = Sidecar.read(path)
    path.write_bytes(b"not a model")
    hashes = sidecar.hashes.model_copy(update={"onnx": sha256(path)})
    sidecar.model_copy(update={"hashes": hashes}).write(path)

    with pytest.raises(TagfillError, match="onnxruntime cannot open the model"):
        open_predictor(path)


# Prediction without torch


ROOT = Path(__file__).parents[2]

# All that prediction with an ONNX file and pictures of its maps take; see docs/predicting.md.
NEEDED = ("matplotlib", "numpy", "onnxruntime", "pillow", "pyarrow", "pydantic", "pyyaml", "rich", "typer")

FORBIDDING = """
import runpy, sys

unused = {"torch", "torchvision", "timm", "safetensors", "lightning_fabric", "onnx", "joblib", "fsspec"}

class Forbidden:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in unused:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

sys.meta_path.insert(0, Forbidden())
sys.argv[0] = "tagfill"
runpy.run_module("tagfill", run_name="__main__")
"""


def arguments(folder: Path) -> list[str]:
    model = write_model(folder / "colors.onnx")
    photos = write_images(folder / "photos", 20)
    (photos / "bad.png").write_bytes(b"bad")
    maps = ["--heatmaps", str(folder / "maps"), "--workers", "2"]
    return ["predict", str(model), str(photos), "--out", str(folder / "out.parquet"), *maps, "--json"]


def check(result: subprocess.CompletedProcess[str], folder: Path) -> None:
    assert result.returncode == 0, result.stderr
    told = json.loads(result.stdout)
    assert (told["predicted"], told["bad"], told["finished"]) == (20, 1, True)
    assert "1 images could not be decoded" in result.stderr
    assert len(list((folder / "maps").rglob("red.jpg"))) == 4  # of channels 128, 136, 144 and 152


def test_prediction_imports_no_torch(tmp_path: Path) -> None:
    command = [sys.executable, "-c", FORBIDDING, *arguments(tmp_path)]

    result = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)

    check(result, tmp_path)


def test_a_model_folder_without_torch_is_an_error_that_says_so(tmp_path: Path) -> None:
    (tmp_path / "model").mkdir()
    command = [sys.executable, "-c", FORBIDDING, "predict", str(tmp_path / "model"), str(tmp_path)]

    result = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)

    assert result.returncode == 2
    assert "needs the package" in result.stderr
    assert "predict with an ONNX file" in result.stderr


@pytest.mark.long
def test_an_environment_without_torch_is_enough(tmp_path: Path) -> None:
    environment = tmp_path / "venv"
    venv.create(environment, with_pip=True)
    python = str(environment / "bin" / "python")
    install = [python, "-m", "pip", "install", "-qq", "--disable-pip-version-check"]
    constraints = ["--constraint", str(ROOT / "constraints.txt")]
    subprocess.run([*install, *constraints, *NEEDED], check=True, timeout=600)
    subprocess.run([*install, "--no-deps", str(ROOT)], check=True, timeout=600)
    found = subprocess.run([python, "-c", "import torch"], capture_output=True, text=True, check=False)
    assert "No module named 'torch'" in found.stderr

    clean = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    result = subprocess.run(
        [python, "-m", "tagfill", *arguments(tmp_path)],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
        env=clean,
        cwd=tmp_path,
    )

    check(result, tmp_path)
