"""The real Label Studio, which this test installs, starts and stops: predictions, annotations and exports.

Label Studio is installed into a virtual environment of its own: the project does not need it.
"""

from __future__ import annotations

import json
import os
import socket
import subprocess
import time
import venv
from collections.abc import Iterator
from contextlib import suppress
from datetime import datetime
from pathlib import Path
from typing import Any

import httpx
import pytest
from typer.testing import CliRunner

from curation.cases import CLASSES, photos
from servers import Server
from tagfill import predict, train
from tagfill.cli.app import app as commands
from tagfill.curation.submissions import SOURCE
from tagfill.dataset import Dataset
from tagfill.formats import label_studio
from tagfill.formats.label_studio_config import CONTROLS

pytestmark = pytest.mark.long

VERSION = "1.23.2"
TOKEN = "0123456789abcdef0123456789abcdef01234567"
NOTHING = dict.fromkeys(CLASSES, False)
ANSWERS: dict[str, dict[str, bool | None]] = {
    "00000.jpg": {**NOTHING, "cup": True},
    "00001.jpg": NOTHING,  # looked and found nothing
    "00002.jpg": {},  # not looked at
    "00003.jpg": {"cup": True, "tree": None},
    "uploaded": {**NOTHING, "tree": True},  # a photo that the dataset does not have
}
SKIPPED, DELETED = "00004.jpg", "00005.jpg"


class LabelStudio:
    """A running server with one user.

    Args:
        address: of the server.
        root: folder whose photos it serves.
    """

    def __init__(self, address: str, root: Path) -> None:
        self.address, self.root = address, root
        headers = {"authorization": f"Token {TOKEN}"}
        self.client = httpx.Client(base_url=address, headers=headers, timeout=120, trust_env=False)

    def ask(self, method: str, path: str, **options: Any) -> Any:
        """The answer to a request, which has to succeed."""
        answer = self.client.request(method, f"/api/{path}", **options)
        assert answer.is_success, answer.text
        return answer.json() if answer.content else None

    def create_project(self, config: str, folder: Path) -> tuple[int, dict[str, int]]:
        """A project with the photos of a folder and one that is uploaded; its number, and that of the task of each."""
        project = self.ask("POST", "projects", json={"title": folder.name, "label_config": config})["id"]
        self.ask("POST", "storages/localfiles", json={"project": project, "path": str(folder), "use_blob_urls": True})
        within = folder.relative_to(self.root)
        names = sorted(path.name for path in folder.iterdir())
        tasks = [{"data": {"image": f"/data/local-files/?d={within}/{name}"}} for name in names]
        self.ask("POST", f"projects/{project}/import", json=tasks)
        upload = {"file": ("another photo.jpg", (folder / names[0]).read_bytes(), "image/jpeg")}
        self.ask("POST", f"projects/{project}/import", files=upload)
        found = self.ask("GET", "tasks", params={"project": project, "fields": "all"})["tasks"]
        return project, dict(zip([*names, "uploaded"], sorted(task["id"] for task in found), strict=True))

    def predictions(self, project: int, tasks: dict[str, int]) -> dict[str, dict[str, Any]]:
        """The only prediction of each task, after the Data Manager has asked for them."""
        everything = {"project": project, "selectedItems": {"all": True, "excluded": []}}
        self.ask("POST", f"dm/actions?id=retrieve_tasks_predictions&project={project}", json=everything)
        found = {}
        for name, task in tasks.items():
            (found[name],) = self.ask("GET", f"tasks/{task}")["predictions"]
        return found

    def annotate(self, task: int, **content: Any) -> dict[str, Any]:
        """Submit an annotation."""
        made: dict[str, Any] = self.ask("POST", f"tasks/{task}/annotations/", json=content)
        return made


@pytest.fixture(scope="module")
def studio(tmp_path_factory) -> Iterator[LabelStudio]:
    """Label Studio with a fresh database."""
    place = tmp_path_factory.mktemp("label-studio")
    venv.create(place / "venv", with_pip=True)
    pip = [place / "venv" / "bin" / "python", "-m", "pip", "install", "--quiet", f"label-studio=={VERSION}"]
    subprocess.run(pip, check=True)
    for folder in ("photos", "data", "home"):
        (place / folder).mkdir()
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    command = [place / "venv" / "bin" / "label-studio", "start", "--no-browser", "--internal-host", "127.0.0.1"]
    command += ["--port", str(port), "--data-dir", str(place / "data")]
    command += ["--username", "ann@example.org", "--password", "any-secret", "--user-token", TOKEN]
    with (place / "log").open("wb") as log:
        server = subprocess.Popen([*command, "--enable-legacy-api-token"], env=settings(place), stdout=log, stderr=log)
    found = LabelStudio(f"http://127.0.0.1:{port}", place / "photos")
    try:
        wait_for(found, server, place / "log")
        yield found
    finally:
        found.client.close()
        server.terminate()
        server.wait(timeout=60)


def settings(place: Path) -> dict[str, str]:
    """The environment of Label Studio: photos from a folder, no telemetry, and models on this machine as documented."""
    kept = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "DJANGO_SETTINGS_MODULE")}
    page = (Path(__file__).parents[2] / "docs" / "label-studio.md").read_text(encoding="utf-8")
    (documented,) = [line for line in page.splitlines() if line.startswith("$ export USE_DEFAULT_BANNED_SUBNETS")]
    return (
        kept
        | dict(word.split("=", 1) for word in documented.removeprefix("$ export ").split())
        | {
            "HOME": str(place / "home"),
            "NO_PROXY": "127.0.0.1",
            "LABEL_STUDIO_LOCAL_FILES_SERVING_ENABLED": "true",
            "LABEL_STUDIO_LOCAL_FILES_DOCUMENT_ROOT": str(place / "photos"),
            "COLLECT_ANALYTICS": "false",
            "LATEST_VERSION_CHECK": "false",
            "SENTRY_DSN": "",
            "FRONTEND_SENTRY_DSN": "",
        }
    )


def wait_for(studio: LabelStudio, server: subprocess.Popen[bytes], log: Path) -> None:
    for _ in range(600):  # a new database takes minutes on a slow machine
        assert server.poll() is None, log.read_text(errors="replace")[-2000:]
        with suppress(httpx.TransportError):
            studio.ask("GET", "version")
            return
        time.sleep(1)
    raise AssertionError("Label Studio does not answer")


def results(layout: str, states: dict[str, bool | None]) -> list[dict[str, Any]]:
    """What an annotator's answers are in Label Studio, in the layouts of `tagfill label-studio config`."""
    if layout == "per-class":
        return [chosen(f"class:{label}", CONTROLS[state]) for label, state in states.items()]
    looked = len(states) == len(CLASSES)
    lists = [
        chosen(control, *(label for label, given in states.items() if given is state))
        for state, control in CONTROLS.items()
        if state in states.values() and not (looked and state is False)
    ]
    return [*lists, chosen("others", "absent" if looked else "unknown")]


def chosen(control: str, *words: str) -> dict[str, Any]:
    return {"from_name": control, "to_name": "image", "type": "choices", "value": {"choices": list(words)}}


@pytest.mark.parametrize("layout", ["list", "per-class"])
def test_annotations_in_label_studio_are_the_rows_that_tagfill_keeps(studio, tmp_path, layout):
    data = photos(studio.root / layout)
    run = train(
        data, method="an", backbone="resnet10t", pretrained=False, image_size=32, epochs=1, out=tmp_path / "run"
    )
    folder = str(data.folder)
    config = CliRunner().invoke(commands, ["label-studio", "config", folder, "--layout", layout]).stdout
    project, tasks = studio.create_project(config, studio.root / layout / "images")
    options = ["--dataset", folder, "--prefix", f"{layout}/images/", "--label-studio-url", studio.address]
    options += ["--label-studio-token", TOKEN, "--threads", "1"]
    with Server("serve", str(run.folder), "--label-studio", *options) as server:
        backend = {"project": project, "url": server.address, "title": "Tagfill"}
        assert studio.ask("POST", "ml", json=backend)["readable_state"] == "Connected"
        predictions = studio.predictions(project, tasks)
        submitted = {
            name: studio.annotate(tasks[name], result=results(layout, states), lead_time=seconds)
            for seconds, (name, states) in enumerate(ANSWERS.items(), start=2)
        }
        studio.annotate(tasks[SKIPPED], result=results(layout, NOTHING), was_cancelled=True)
        gone = studio.annotate(tasks[DELETED], result=results(layout, NOTHING))["id"]
        studio.ask("DELETE", f"annotations/{gone}/")
        server.end()
    (alone,) = predict(run, studio.root / layout / "images" / "00000.jpg")  # which was uploaded too
    assert tags(predictions["uploaded"]) == pytest.approx({label: alone.scores[label] for label in alone.present})
    assert all(tags(predictions[name])["dog"] == 1 for name in (*ANSWERS, SKIPPED) if name != "uploaded")  # known

    kept = rows(Dataset.open(data.folder))
    for name, states in ANSWERS.items():
        own = [row for row in kept if row["image"] == name or (name == "uploaded" and "upload/" in row["image"])]
        made = submitted[name]
        assert {row["label"]: row["present"] for row in own} == states
        assert {row["source"] for row in own} <= {f"{SOURCE}:{made['completed_by']}"}
        assert {row["time"] for row in own} <= {datetime.fromisoformat(made["updated_at"])}
        assert sum(row["seconds"] for row in own) == pytest.approx(made["lead_time"] if states else 0)
    assert not [row for row in kept if row["image"] in (SKIPPED, DELETED)]

    export = tmp_path / "export.json"
    export.write_text(json.dumps(studio.ask("GET", f"projects/{project}/export?exportType=JSON")), encoding="utf-8")
    assert rows(label_studio.read(export, root=data.root, classes=CLASSES, prefix=f"{layout}/images/")) == kept


def tags(prediction: dict[str, Any]) -> dict[str, float]:
    """The tags of a prediction with their scores; all of its results say that something is present."""
    found: dict[str, float] = {}
    for result in prediction["result"]:
        control, words, scores = result["from_name"], result["value"]["choices"], result["meta"]["scores"]
        assert (control, words) == ("present", list(scores)) or [control] == [f"class:{label}" for label in scores]
        assert control == "present" or words == ["present"]
        found |= scores
    return found


def rows(data: Dataset) -> list[dict[str, Any]]:
    """What Label Studio's annotators said, in order."""
    columns = ("image", "label", "present", "source", "time", "seconds")
    found = [{name: row[name] for name in columns} for row in data.rows().to_pylist()]
    return sorted((row for row in found if str(row["source"]).startswith(SOURCE)), key=str)
