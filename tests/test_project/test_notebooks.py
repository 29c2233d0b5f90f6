"""The notebooks of the documentation run, and show what their stored outputs show."""

from __future__ import annotations

import json
import re
import runpy
import sys
from pathlib import Path
from typing import Any

import pytest

FOLDER = Path(__file__).parents[2] / "docs" / "notebooks"
NOTEBOOKS = sorted(FOLDER.glob("*.ipynb"))
MOST_PROGRESS = 4000  # characters


SMALLER = {  # of a notebook that is run by the test: fewer and smaller photos, less training
    "train=160, val=20, test=40": "train=60, val=10, test=10",
    'keep="precision=0.8"': 'keep="probability=0.1"',  # so few photos prove no precision
    "image_size=128": "image_size=64",
    "folds=2": "folds=2, epochs=4",
    'method="ll-r"': 'method="ll-r", epochs=4',
}


def smaller(path: Path, folder: Path) -> Path:
    """A copy of a notebook that runs in seconds."""
    text = path.read_text(encoding="utf-8")
    for usual, quick in SMALLER.items():
        found = json.dumps(usual)[1:-1]
        assert found in text, usual
        text = text.replace(found, json.dumps(quick)[1:-1])
    (folder / path.name).write_text(text, encoding="utf-8")
    return folder / path.name


def outputs(notebook: dict[str, Any]) -> list[tuple[str, list[list[str]]]]:
    """The source of each code cell, and the types of what it shows."""
    found = []
    for cell in notebook["cells"]:
        if cell["cell_type"] == "code":
            kinds = [sorted(output.get("data", {output["output_type"]: ""})) for output in cell["outputs"]]
            found.append(("".join(cell["source"]), kinds))
    return found


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
@pytest.mark.filterwarnings("default")  # of the libraries that run the kernel
def test_a_notebook_runs_and_shows_what_is_stored(path, tmp_path, monkeypatch):
    monkeypatch.setenv("TAGFILL_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("JUPYTER_PLATFORM_DIRS", "1")
    quick = smaller(path, tmp_path)
    executed = runpy.run_path(str(FOLDER / "execute.py"))["execute"](quick, tmp_path)
    stored = json.loads(quick.read_text(encoding="utf-8"))
    assert outputs(executed) == outputs(stored), "the outputs are stale; run `make notebooks`"
    shown = [output for cell in executed["cells"] for output in cell.get("outputs", [])]
    assert not any(output["output_type"] in ("stream", "error") for output in shown)
    results = [output["data"] for output in shown if output["output_type"] == "execute_result"]
    assert sum("data:image/jpeg" in str(data.get("text/html")) for data in results) >= 4  # fill, dataset, image, scores
    # one place per cell for progress, with no bar left behind
    for cell in executed["cells"]:
        progress = [o["data"]["text/html"] for o in cell.get("outputs", []) if is_progress(o)]
        assert len(progress) <= 1
        assert all(len(html) < MOST_PROGRESS and "<progress" not in html for html in progress)
    assert path.stat().st_size < 1_000_000


def is_progress(output: dict[str, Any]) -> bool:
    """Whether an output was made by `tagfill.progress`."""
    return output["output_type"] == "display_data" and "text/html" in output["data"]


def test_stored_notebooks_name_no_folder_of_a_machine():
    for path in NOTEBOOKS:
        text = re.sub(r"base64,[\w+/=]+", "", path.read_text(encoding="utf-8"))
        assert not re.search(r"/(home|root|tmp|work|Users)/", text)
        assert sys.prefix not in text
