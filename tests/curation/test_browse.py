"""Browsing a dataset: which photos match a filter, and what the server of the page answers."""

import socket

import numpy as np
import pytest
from fastapi.testclient import TestClient

from tagfill.cli import main
from tagfill.curation import browse_server
from tagfill.curation.browse import PhotoFilter, PhotoIndex
from tagfill.curation.server import ImageViews
from tagfill.dataset import Dataset
from tagfill.errors import TagfillError
from tagfill.inference.http import Guard

from .cases import photos

LOCAL = "http://127.0.0.1:8318"
CLASSES = ["cup", "dog", "tree"]
NAMES = ["a/Red cup.jpg", "a/dog.jpg", "b/red dog.jpg", "b/nothing.jpg", "b/unseen.jpg"]
LABELS = [(0, "cup", True), (0, "dog", False), (1, "dog", True), (1, "cup", None), (2, "dog", True), (2, "cup", False)]
LABELS += [(2, "tree", False), (3, "cup", False)]


@pytest.fixture
def index():
    images = [{"image": name, "split": "test" if name.startswith("b") else "train"} for name in NAMES]
    rows = [{"image": NAMES[at], "label": label, "present": present} for at, label, present in LABELS]
    return PhotoIndex(Dataset.from_records("shop", "photos", CLASSES, images, rows))


@pytest.mark.parametrize(
    ("wanted", "found"),
    [
        (PhotoFilter(), [0, 1, 2, 3, 4]),
        (PhotoFilter("cup"), [0, 1, 2, 3, 4]),
        (PhotoFilter("cup", "present"), [0]),
        (PhotoFilter("cup", "absent"), [2, 3]),
        (PhotoFilter("cup", "unknown"), [1, 4]),  # "cannot tell" is not known
        (PhotoFilter("tree", "present"), []),
        (PhotoFilter(None, "present"), [0, 1, 2]),
        (PhotoFilter(None, "absent"), [0, 2, 3]),
        (PhotoFilter(None, "unknown"), [0, 1, 3, 4]),  # photo 2 is complete
        (PhotoFilter(None, "unlabeled"), [4]),
        (PhotoFilter("cup", "unlabeled"), [4]),
        (PhotoFilter(split="test"), [2, 3, 4]),
        (PhotoFilter("dog", "present", "test"), [2]),
        (PhotoFilter(text="RED"), [0, 2]),
        (PhotoFilter(text="dog  red"), [2]),
        (PhotoFilter(text=".*"), []),
        (PhotoFilter("cup", "unknown", text="seen"), [4]),
    ],
)
def test_filters(index, wanted, found):
    assert index.select(wanted).tolist() == found


def test_states_of_a_class_and_of_any(index):
    rows = np.array([4, 1, 0, 3])
    assert index.states("cup", rows).tolist() == [-1, -1, 1, 0]
    assert index.states(None, rows).tolist() == [-1, 1, 1, 0]


def test_filters_grow_with_annotations_and_not_with_photos_times_classes():
    """A dense matrix of these labels would take 2.5 GB."""
    names = [f"{number}.jpg" for number in range(50_000)]
    classes = [f"class {number}" for number in range(50_000)]
    rows = [{"image": names[number], "label": classes[number], "present": True} for number in (0, 7)]
    images = [{"image": name, "split": "train"} for name in names]
    index = PhotoIndex(Dataset.from_records("large", "photos", classes, images, rows))
    assert index.select(PhotoFilter("class 7", "present")).tolist() == [7]
    assert len(index.select(PhotoFilter("class 7", "unknown", text="9"))) == 17_195


@pytest.fixture
def client(tmp_path):
    data = photos(tmp_path)
    app = browse_server.create_app(PhotoIndex(data), ImageViews(data))
    return TestClient(Guard(app, None, local=True), base_url=LOCAL)


def test_lists_come_in_pages(client):
    about = client.get("/api/dataset").json()
    assert (about["dataset"], about["photos"], about["unlabeled"]) == ("photos", 6, 0)
    assert about["classes"][1] == {"label": "dog", "present": 6, "absent": 0, "unknown": 0}
    assert about["splits"] == [{"split": "train", "photos": 6}]
    page = client.get("/api/photos?label=dog&state=present&start=4&count=9").json()
    assert (page["total"], page["start"]) == (6, 4)
    assert page["photos"][0] == {"row": 4, "image": "00004.jpg", "state": 1, "present": ["dog"]}
    assert len(page["photos"]) == 2
    assert client.get("/api/photos?label=dog&state=absent").json() == {"total": 0, "start": 0, "photos": []}
    assert client.get("/api/photos?count=501").status_code == 422
    assert client.get("/api/photos?state=maybe").status_code == 422


def test_one_photo_and_its_picture(client):
    photo = client.get("/api/photos/2").json()
    assert (photo["image"], photo["split"], photo["present"], photo["absent"]) == ("00002.jpg", "train", ["dog"], [])
    answer = client.get("/picture/2?side=160")
    assert answer.headers["content-type"] == "image/jpeg"
    assert "max-age" in answer.headers["cache-control"]
    for address in ("/api/photos/6", "/picture/6", "/picture/-1", "/review.js", "/api/decisions"):
        assert client.get(address).status_code == 404


def test_what_does_not_exist_is_a_sentence(client):
    assert client.get("/api/photos?label=cat").json()["error"] == "Dataset photos has no class 'cat'."
    assert "has no split 'val'" in client.get("/api/photos?split=val").json()["error"]
    assert client.get("/picture/0?side=161").status_code == 409


def test_only_this_machine_may_look_unless_there_is_a_token(client, tmp_path):
    assert client.get("/api/photos", headers={"host": "elsewhere.example"}).status_code == 403
    assert client.post("/api/photos").status_code == 405
    index = PhotoIndex(photos(tmp_path))
    with socket.socket() as listening:
        listening.bind(("0.0.0.0", 0))
        with pytest.raises(TagfillError, match="give a --token"):
            browse_server.serve(index, listening, token=None)


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["missing"], "missing"),
        (["{data}", "--host", "0.0.0.0"], "give a --token"),
        (["{empty}"], "has no photos to look at"),
    ],
)
def test_the_command_refuses_with_a_sentence(tmp_path, monkeypatch, capsys, arguments, sentence):
    photos(tmp_path)
    Dataset.from_records("empty", "photos", ["cup"], [], []).save(tmp_path / "empty")
    given = [word.format(data=tmp_path / "data", empty=tmp_path / "empty") for word in arguments]
    monkeypatch.setattr("sys.argv", ["tagfill", "browse", *given, "--no-browser", "--port", "0"])
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == 2
    assert sentence in " ".join(capsys.readouterr().err.split())
