"""An ONNX file is enough: prediction with it neither imports nor needs torch."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import venv
from pathlib import Path

import pytest

from inference.colors import write_images, write_model

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


def test_no_import_of_torch_is_tried_in_vain(tmp_path: Path) -> None:
    command = [sys.executable, "-c", FORBIDDING, *arguments(tmp_path)]

    result = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)

    check(result, tmp_path)


def test_a_model_folder_without_torch_is_told_apart(tmp_path: Path) -> None:
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
