"""A sidecar belongs to one ONNX file, and says so when it does not."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from inference.colors import write_model
from tagfill.errors import TagfillError
from tagfill.inference import open_predictor
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


def test_a_file_that_is_no_model_is_named(tmp_path: Path) -> None:
    from tagfill.io import sha256

    path = write_model(tmp_path / "m.onnx")
    sidecar = Sidecar.read(path)
    path.write_bytes(b"not a model")
    hashes = sidecar.hashes.model_copy(update={"onnx": sha256(path)})
    sidecar.model_copy(update={"hashes": hashes}).write(path)

    with pytest.raises(TagfillError, match="onnxruntime cannot open the model"):
        open_predictor(path)
