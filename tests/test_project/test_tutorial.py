"""The tutorial does what it says: its commands run, in its order, on scenes in the place of photos."""

from __future__ import annotations

import csv
import json
import re
import shutil
import sys
from pathlib import Path

import httpx
import numpy as np
import pytest

from servers import Server
from tagfill import scenes
from tagfill.cli import main
from tagfill.dataset import Dataset

TUTORIAL = Path(__file__).parents[2] / "docs" / "tutorial.md"
SMALLER = {  # flags that make a command quick
    "tagfill fill tags.csv": "--image-size 96 --folds 2 --epochs 4 --jobs 1",
    "tagfill fill filled": "--jobs 1",
    "tagfill features": "--image-size 96",
    "tagfill suggest": "--jobs 1",
}


def commands() -> list[str]:
    """The commands of the page, in order."""
    return re.findall(r"^\$ (.+)$", TUTORIAL.read_text(encoding="utf-8"), flags=re.MULTILINE)


@pytest.fixture(scope="module")
def place(tmp_path_factory) -> Path:
    """A folder as the tutorial begins with: photos, and a table of one tag each."""
    place = tmp_path_factory.mktemp("tutorial")
    data = scenes.make(place / "scenes", train=60, val=1, test=1, size=96)
    (place / "photos").mkdir()
    rng = np.random.default_rng(0)
    with (place / "tags.csv").open("w", newline="", encoding="utf-8") as file:
        table = csv.writer(file)
        table.writerow(["image", "tag"])
        for number, (row, labels) in enumerate(zip(data.split("train"), data.labels("train").dense(), strict=True)):
            name = f"{number + 1:04d}.png"
            shutil.copy(Path(data.root) / data.names(np.array([row]))[0], place / "photos" / name)
            there = np.flatnonzero(labels == 1)
            if len(there) and number < 50:
                table.writerow([name, data.classes[rng.choice(there)]])
    return place


def run(command: str, place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A command that ends by itself, in this process, which has torch loaded already."""
    monkeypatch.chdir(place)
    monkeypatch.setattr(sys, "argv", command.split())
    with pytest.raises(SystemExit) as ended:
        main()
    assert not ended.value.code, command


def served(command: str, place: Path) -> Server:
    """A server of the tutorial, on a port that is free."""
    words = command.removeprefix("tagfill ").split()
    return Server(*words, *(["--no-browser"] if "review" in words else []), folder=place)


def review(address: str) -> int:
    """Decide the first suggestions, as the page would."""
    items = httpx.get(f"{address}api/suggestions?limit=20", timeout=30).json()["items"]
    decisions = [
        {"id": str(n), "place": i["place"], "image": i["image"], "label": i["label"], "present": n % 2 == 0, "seen": 0}
        for n, i in enumerate(items)
    ]
    answer = httpx.post(f"{address}api/decisions", json={"who": "me", "decisions": decisions}, timeout=30)
    assert answer.status_code == 200
    heatmap = httpx.get(f"{address}heatmap/{items[0]['row']}/{items[0]['class']}?side=160", timeout=60)
    assert heatmap.status_code == 200, heatmap.text
    return len(items)


def test_the_tutorial_runs_from_a_table_to_a_served_model(place, monkeypatch):
    reviewed = answered = 0
    for command in commands():
        if command.startswith("tagfill review"):
            server = served(command, place)
            reviewed = review(server.address)
            server.end()
        elif command.startswith("tagfill serve"):
            server = served(command, place)
        elif command.startswith("curl"):
            file = re.search(r"images=@(\S+)", command)
            assert file
            answer = httpx.post(
                f"{server.address}predict", files={"images": (place / file[1]).read_bytes()}, timeout=60
            )
            answered = len(answer.json()["predictions"])
            server.end()
        else:
            smaller = next((flags for start, flags in SMALLER.items() if command.startswith(start)), "")
            run(f"{command} {smaller}", place, monkeypatch)
    rows = Dataset.open(place / "filled" / "dataset").rows().to_pylist()
    assert sum(row["source"] == "review" for row in rows) == reviewed == 20
    assert answered == 1
    with (place / "tagged.csv").open(encoding="utf-8") as file:
        assert len(list(csv.DictReader(file))) == 3 * 60
    assert json.loads((place / "filled" / "filled.json").read_text(encoding="utf-8"))["decisions"] == 20
    assert json.loads((place / "runs" / "first" / "run.json").read_text(encoding="utf-8"))["result"]
    assert (place / "model.onnx").stat().st_size > 10**6
