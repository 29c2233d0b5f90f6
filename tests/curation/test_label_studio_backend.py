"""The Label Studio backend: predictions, annotations that become rows, and photos that may be fetched."""

from __future__ import annotations

import base64
import threading
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from types import SimpleNamespace
from typing import ClassVar

import httpx
import numpy as np
import pytest
from fastapi.testclient import TestClient
from typer.testing import CliRunner

from formats.layouts.label_studio import annotation, result
from servers import Server
from tagfill import models
from tagfill.cli.app import app as commands
from tagfill.curation.label_studio_backend import Backend, create_backend
from tagfill.curation.label_studio_results import peak_box
from tagfill.curation.submissions import apply_submissions, open_submissions
from tagfill.curation.task_photos import FetchLimits, TaskPhotos
from tagfill.dataset import Dataset
from tagfill.errors import TagfillError
from tagfill.formats.label_studio_config import labeling_config
from tagfill.inference.http import Guard
from tagfill.inference.predictors import Outputs
from tagfill.io import exclusive_lock

from .cases import CLASSES, photos

LOCAL = "http://127.0.0.1:8316"
LIST = labeling_config(CLASSES, boxes=True)
OWN = """<View><Image name="photo" value="$url"/><Choices name="tags" toName="photo" choice="{}">
<Choice value="Mug" predicted_values="cup"/><Choice value="DOG"/><Choice value="blurred"/></Choices></View>"""


class Fixed:
    """Says cup for every image, tree for none; a class map has its peak on the right."""

    classes, thresholds, calibration, size, identity = CLASSES, None, None, (8, 8), "0123456789abcdef"

    def check_maps(self):
        pass

    def __call__(self, pixels, *, maps=False):
        logits = np.tile(np.array([2.0, -1.0, -3.0], np.float32), (len(pixels), 1))
        return Outputs(logits, np.tile(np.eye(4, dtype=np.float32)[3], (len(pixels), 3, 4, 1)) if maps else None)


class Lines:
    def __init__(self):
        self.said = []
        self.say = self.said.append


@contextmanager
def serving(folder, *, token=None, **options):
    """The backend of the dataset in a folder, and a client of it."""
    data, lines = photos(folder) if not (folder / "data").exists() else Dataset.open(folder / "data"), Lines()
    with open_submissions(folder / "data") as submissions:
        backend = Backend(Fixed(), submissions, TaskPhotos(data), progress=lines, **options)
        with TestClient(Guard(create_backend(backend), token, local=True), base_url=LOCAL) as client:
            yield SimpleNamespace(post=client.post, get=client.get, said=lines.said, data=data)


def predicted(client, *images, config=LIST, key="image"):
    tasks = [{"id": number, "data": {key: image}} for number, image in enumerate(images)]
    answer = client.post("/predict", json={"tasks": tasks, "label_config": config, "params": {"context": None}})
    assert answer.status_code == 200, answer.text
    return answer.json()


def event(action, *results, image="00001.jpg", number=5, config=LIST, **changes):
    """The body of a webhook, as Label Studio sends it."""
    made = annotation(*results, id=number, **changes)
    project = {"id": 1, "label_config": config, "created_at": "2026-01-01T00:00:00Z", "title": "photos"}
    return {"action": action, "annotation": made, "project": project, "task": {"id": 7, "data": {"image": image}}}


def ticked(control, *words):
    return result("choices", {"choices": list(words)}, control=control)


def answers(folder, image):
    """What Label Studio's annotators said about an image, by label, from the rows of the dataset."""
    rows = Dataset.open(folder / "data").rows().to_pylist()
    return {
        row["label"]: (row["present"], row["source"], row["seconds"])
        for row in rows
        if row["image"] == image and (row["source"] or "").startswith("label-studio")
    }


def states(folder, image):
    return {label: state for label, (state, *_) in answers(folder, image).items()}


def test_predictions_are_tags_with_scores_in_the_words_of_the_project(tmp_path):
    with serving(tmp_path, boxes=True) as client:
        assert client.get("/health").json()["status"] == client.get("/").json()["status"] == "UP"
        version = client.post("/setup", json={"project": "1.2", "schema": LIST}).json()["model_version"]
        found = predicted(client, "/data/local-files/?d=00001.jpg", "gone.jpg", "../../etc/passwd")
        first, *without = found["results"]
        assert without == [[], []]  # no prediction, instead of one without tags
        assert sorted(found["errors"]) == ["1", "2"]
        assert first["model_version"] == version
        tags, *boxes = first["result"]
        assert (tags["from_name"], tags["to_name"], tags["type"]) == ("present", "image", "choices")
        assert tags["value"] == {"choices": ["cup", "dog"]}  # the dataset knows that there is a dog
        assert tags["meta"] == {"scores": {"cup": pytest.approx(0.880797), "dog": 1.0}}
        assert first["score"] == pytest.approx(0.880797)
        assert {one["value"]["rectanglelabels"][0] for one in boxes} == {"cup", "dog"}
        assert (boxes[0]["original_width"], boxes[0]["original_height"]) == (48, 40)
        own = predicted(client, "00002.jpg", config=OWN.format("multiple"), key="url")["results"][0]
        assert own["result"][0]["value"] == {"choices": ["Mug", "DOG"]}
        single = predicted(client, "00002.jpg", config=OWN.format("single"), key="url")["results"][0]
        assert single["result"][0]["value"] == {"choices": ["DOG"]}
        per_class = labeling_config(CLASSES, layout="per-class")
        each = predicted(client, "00002.jpg", config=per_class)["results"][0]["result"]
        assert {one["from_name"]: one["value"]["choices"] for one in each} == {
            "class:cup": ["present"],
            "class:dog": ["present"],
        }


def test_annotations_become_rows_and_are_replaced_and_withdrawn(tmp_path):
    with serving(tmp_path) as client:
        nothing_else = [ticked("present", "cup"), ticked("others", "absent")]
        saved = client.post("/webhook", json=event("ANNOTATION_CREATED", *nothing_else))
        assert (saved.status_code, saved.json()["rows"]) == (201, 3)
        not_looked = event("ANNOTATION_CREATED", ticked("others", "unknown"), image="00002.jpg", number=6)
        assert client.post("/webhook", json=not_looked).json()["rows"] == 0
        undecided = [ticked("cannot-tell", "tree"), ticked("absent", "cup")]
        client.post("/webhook", json=event("ANNOTATION_CREATED", *undecided, image="00003.jpg", number=7))
        deleted = event("ANNOTATION_CREATED", ticked("present", "tree"), image="00004.jpg", number=8)
        client.post("/webhook", json=deleted)
    assert answers(tmp_path, "00001.jpg") == {
        "cup": (True, "label-studio:10", 1.5),
        "dog": (False, "label-studio:10", 1.5),
        "tree": (False, "label-studio:10", 1.5),
    }
    assert answers(tmp_path, "00002.jpg") == {}
    assert states(tmp_path, "00003.jpg") == {
        "cup": False,
        "tree": None,
    }
    assert answers(tmp_path, "00004.jpg")["tree"][0] is True
    labels = dict(zip(CLASSES, Dataset.open(tmp_path / "data").labels().dense()[1].tolist(), strict=True))
    assert labels == {"cup": 1, "dog": 0, "tree": 0}  # newer than the imported row about the dog
    with serving(tmp_path) as client:
        update = event("ANNOTATION_UPDATED", ticked("present", "tree"), created_at="2021-03-10T00:00:00Z")
        assert client.post("/webhook", json=update).json()["saved"] == 1
        assert client.post("/webhook", json=update).json()["saved"] == 0  # sent twice
        late = event("ANNOTATION_CREATED", *nothing_else)
        assert client.post("/webhook", json=late).json()["saved"] == 0  # older than what is saved
        gone = {"action": "ANNOTATIONS_DELETED", "annotations": [{"id": 8}], "project": late["project"]}
        assert client.post("/webhook", json=gone).json()["withdrawn"] == 1
        skipped = event("ANNOTATION_UPDATED", ticked("present", "cup"), number=7, was_cancelled=True)
        assert client.post("/webhook", json=skipped).json()["withdrawn"] == 1
        for other in ("START_TRAINING", "PROJECT_UPDATED", "TASKS_DELETED", "ANNOTATIONS_CREATED"):
            assert client.post("/webhook", json={"action": other}).status_code == 200
    assert states(tmp_path, "00001.jpg") == {"tree": True}
    assert answers(tmp_path, "00003.jpg") == answers(tmp_path, "00004.jpg") == {}
    before = (tmp_path / "data" / "annotations.parquet").read_bytes()
    assert apply_submissions(tmp_path / "data") == 0
    assert (tmp_path / "data" / "annotations.parquet").read_bytes() == before


def test_contradictions_and_words_without_a_class_are_left_out(tmp_path):
    with serving(tmp_path, absent_means="absent") as client:
        both = [ticked("present", "cup", "tree"), ticked("absent", "cup")]
        client.post("/webhook", json=event("ANNOTATION_CREATED", *both))
        own = event("ANNOTATION_CREATED", ticked("tags", "DOG", "blurred"), number=6, config=OWN.format("multiple"))
        own["task"]["data"] = {"url": "00002.jpg"}
        assert client.post("/webhook", json=own).json()["left_out"] == ["blurred"]
        assert any("contradicts itself about cup" in line for line in client.said)
    assert states(tmp_path, "00001.jpg") == {
        "tree": True,
        "dog": False,
    }
    # the tree is not among the choices of the second project, so nobody looked for it
    assert states(tmp_path, "00002.jpg") == {
        "dog": True,
        "cup": False,
    }


@pytest.mark.parametrize(
    ("path", "body", "status", "sentence"),
    [
        ("/predict", {"tasks": [], "label_config": "<View"}, 400, "not valid XML"),
        ("/predict", {"tasks": [], "label_config": "<View/>"}, 400, "No choice of the labeling configuration"),
        ("/predict", {"tasks": [{"id": 1}], "label_config": LIST}, 422, "tasks.0.data"),
        ("/predict", {"tasks": [{"data": {}}] * 1001, "label_config": LIST}, 422, "at most 1000"),
        ("/predict", b'{"tasks": NaN}', 400, "not valid JSON"),
        ("/webhook", {"action": "ANNOTATION_CREATED"}, 400, "switch on 'Send payload'"),
        ("/webhook", event("ANNOTATION_CREATED") | {"annotation": 3}, 400, "no annotation with its task"),
        ("/webhook", event("ANNOTATION_CREATED", result("choices", {"choices": [1]})), 400, "cannot be read"),
        ("/webhook", event("ANNOTATION_CREATED", image="../a.jpg"), 400, "leads out of the image root"),
    ],
)
def test_bad_requests_get_one_sentence(backend_for_refusals, path, body, status, sentence):
    content = {"content": body} if isinstance(body, bytes) else {"json": body}
    answer = backend_for_refusals.post(path, headers={"content-type": "application/json"}, **content)
    assert answer.status_code == status
    assert sentence in answer.json()["error"]


@pytest.fixture(scope="module")
def backend_for_refusals(tmp_path_factory):
    with serving(tmp_path_factory.mktemp("refusals")) as client:
        yield client


def test_a_token_is_the_password_of_basic_authentication(tmp_path):
    with serving(tmp_path, token="long secret") as client:
        for word, status in (("long secret", 200), ("guess", 401)):
            encoded = base64.b64encode(f"tagfill:{word}".encode()).decode()
            assert client.get("/health", headers={"authorization": f"Basic {encoded}"}).status_code == status
        assert client.get("/health", headers={"authorization": "Basic ???"}).status_code == 401


class LabelStudio(BaseHTTPRequestHandler):
    """Answers like Label Studio and like a host of photos."""

    seen: ClassVar[list[tuple[str, str | None]]] = []
    photo = b""

    def do_GET(self):
        self.seen.append((self.path, self.headers["authorization"]))
        if self.path.startswith("/redirect"):
            self.send_response(302)
            self.send_header("location", "/data/upload/1/a.jpg")
            self.end_headers()
            return
        if self.path.startswith("/data/") and self.headers["authorization"] not in ("Token legacy", "Bearer fresh"):
            self.send_error(401)
            return
        size = 10**9 if "huge" in self.path else len(self.photo)
        self.send_response(200)
        self.send_header("content-length", str(size))
        self.end_headers()
        self.wfile.write(self.photo)

    def do_POST(self):
        self.rfile.read(int(self.headers["content-length"]))
        self.send_response(200)
        self.end_headers()
        self.wfile.write(b'{"access": "fresh"}')

    def log_message(self, *words):
        pass


@pytest.fixture
def label_studio():
    server = HTTPServer(("127.0.0.1", 0), LabelStudio)
    LabelStudio.seen.clear()
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield f"127.0.0.1:{server.server_port}"
    server.shutdown()
    thread.join()
    server.server_close()


def test_photos_are_fetched_from_label_studio_and_allowed_hosts_alone(tmp_path, label_studio):
    data = photos(tmp_path)
    LabelStudio.photo = (tmp_path / "images" / "00000.jpg").read_bytes()
    limits = FetchLimits(size=100_000, seconds=5)
    upload, server = "/data/upload/1/a b.jpg", f"http://{label_studio}"
    for token in ("legacy", "a.personal.token"):
        known = TaskPhotos(data, server=server, api_token=token, limits=limits)
        assert known.read(upload) == known.read(f"{server}{upload}") == LabelStudio.photo
    known.store(upload, known.name(upload))
    assert (tmp_path / "images" / "upload/1/a b.jpg").read_bytes() == LabelStudio.photo
    LabelStudio.seen.clear()
    allowed = TaskPhotos(data, server="http://127.0.0.1:9", api_token="legacy", hosts=[label_studio], limits=limits)
    assert allowed.read(f"{server}/x.jpg") == LabelStudio.photo
    assert LabelStudio.seen == [("/x.jpg", None)]  # the token is for Label Studio alone
    for address, sentence in (
        (f"{server}/redirect.jpg", "status 302"),
        (f"{server}/huge.jpg", "more than 100,000 bytes"),
        (f"http://user:word@{label_studio}/x.jpg", "user name or password"),
    ):
        with pytest.raises(TagfillError, match=sentence):
            allowed.read(address)
    LabelStudio.seen.clear()
    closed = TaskPhotos(data, server=server, api_token="legacy")
    for address in (
        f"{server}/x.jpg",
        f"{server}/api/projects.jpg",
        "/api/current-user/token",
        "/data/upload/../../api/projects.jpg",
        "/data/upload/%2e%2e/%2e%2e/api/projects.jpg",
        f"http://localhost:{label_studio.partition(':')[2]}/x.jpg",
        "file:///etc/passwd",
        "s3://bucket/a.jpg",
        "http://[::1]:bad/a.jpg",
    ):
        with pytest.raises(TagfillError):
            closed.read(address)
    assert LabelStudio.seen == []
    for hosts, given in ((["http://a/b"], None), ([""], None), ([], "ftp://a"), ([], "http://")):
        with pytest.raises(TagfillError, match="is not"):
            TaskPhotos(data, hosts=hosts, server=given)


def test_boxes_are_around_the_peak():
    class_map = np.zeros((8, 8))
    class_map[1:3, 2:6] = 1
    class_map[6, 7] = 0.9  # another place, which is not connected
    assert peak_box(class_map) == pytest.approx((0.25, 0.125, 0.5, 0.25), abs=0.02)
    assert peak_box(np.ones((4, 4))) is None


def test_annotations_survive_a_kill_and_training_picks_them_up(tmp_path):
    data = photos(tmp_path)
    model, folder = str(tmp_path / "model"), str(data.folder)
    models.create("resnet10t", "cam", CLASSES, pretrained=False, image_size=32).save(tmp_path / "model")
    body = event("ANNOTATION_CREATED", ticked("present", "cup"), ticked("others", "absent"))
    with (
        exclusive_lock(data.folder, "keeps the server from writing rows"),
        Server("serve", model, "--label-studio", "--dataset", folder, "--threads", "1") as server,
    ):
        assert httpx.post(f"{server.address}webhook", json=body).status_code == 201
        assert "Another process is receiving" in str(
            CliRunner().invoke(commands, [*serve_command(model, folder)]).exception
        )
        server.kill()
    assert states(tmp_path, "00001.jpg") == {}
    quick = ["--backbone", "resnet10t", "--pretrained", "none", "--image-size", "32", "--epochs", "1", "--method", "an"]
    trained = CliRunner().invoke(commands, ["train", folder, *quick, "--out", str(tmp_path / "run"), "--quiet"])
    assert trained.exit_code == 0, trained.exception
    assert states(tmp_path, "00001.jpg") == {"cup": True, "dog": False, "tree": False}


def serve_command(model, folder):
    return ["serve", model, "--label-studio", "--dataset", folder, "--port", "0"]


def test_commands_say_what_they_need(tmp_path):
    data = photos(tmp_path)
    models.create("resnet10t", "linear", CLASSES, pretrained=False, image_size=32).save(tmp_path / "model")
    run = ["serve", str(tmp_path / "model"), "--port", "0"]
    for words, sentence in (
        (["--label-studio"], "needs a --dataset"),
        (["--boxes"], "--boxes is for --label-studio"),
        (["--label-studio", "--dataset", str(data.folder), "--boxes"], "has no class maps"),
        (["--label-studio", "--dataset", str(data.folder), "--allow-host", "http://a"], "is not a host"),
    ):
        assert sentence in str(CliRunner().invoke(commands, [*run, *words]).exception)
    written = CliRunner().invoke(commands, ["label-studio", "config", str(data.folder), "--layout", "per-class"])
    assert written.stdout == labeling_config(CLASSES, layout="per-class")
