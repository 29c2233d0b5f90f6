"""The server of the review: who may talk to it, and what it says to those who send nonsense."""

import socket

import pytest
from fastapi.testclient import TestClient

from tagfill.curation import server
from tagfill.curation.decisions import NotWrittenError
from tagfill.curation.server import ImageViews, application
from tagfill.errors import TagfillError
from tagfill.inference import http
from tagfill.inference.http import Guard

from .cases import photos, suggestions

LOCAL = "http://127.0.0.1:8317"


@pytest.fixture
def desk(tmp_path):
    data = photos(tmp_path)
    with server.open_session(data, suggestions(data)) as desk:
        yield desk


@pytest.fixture
def client(desk):
    app = Guard(application(desk, ImageViews(desk.dataset), "me"), None, local=True)
    return TestClient(app, base_url=LOCAL)


def sent(**changes):
    usual = {"id": "x", "place": 0, "image": "00000.jpg", "label": "cup", "present": True, "seconds": 1.0, "seen": 0}
    return {"who": "me", "decisions": [{**usual, **changes}]}


def test_pictures_come_by_place_and_in_few_sizes(client):
    answer = client.get("/picture/0?side=160")
    assert answer.status_code == 200
    assert answer.headers["content-type"] == "image/jpeg"
    assert client.get("/picture/0?side=161").status_code == 409
    assert client.get("/picture/99").status_code == 404
    for path in ("../data/dataset.yaml", "%2e%2e%2fdata", "-1", "1e9"):
        assert client.get(f"/picture/{path}").status_code in (404, 422)


def test_without_a_model_there_are_no_maps(client):
    assert client.get("/api/session").json()["heatmaps"] is False
    assert "start the review with --run" in client.get("/heatmap/0").json()["error"]


def test_a_picture_that_cannot_be_decoded_is_told(client, desk):
    (desk.dataset.root / "00003.jpg").write_bytes(b"no picture")
    assert "00003.jpg" in client.get("/picture/3").json()["error"]


def test_only_its_own_page_may_change_something(client, desk):
    assert client.post("/api/decisions", json=sent(), headers={"origin": "http://elsewhere.example"}).status_code == 403
    assert client.post("/api/decisions", json=sent(), headers={"origin": LOCAL}).status_code == 200
    assert client.get("/api/session", headers={"host": "elsewhere.example"}).status_code == 403
    assert len(desk.log.entries) == 1


def test_a_token_is_asked_for_and_remembered(desk):
    client = TestClient(Guard(application(desk, ImageViews(desk.dataset), "me"), "secret", local=False), base_url=LOCAL)
    assert client.get("/").status_code == 401
    assert client.get("/?token=guess").status_code == 401
    assert client.get("/api/session", headers={"authorization": "Bearer secret"}).status_code == 200
    assert client.get("/?token=secret").status_code == 200
    assert client.get("/api/session").status_code == 200  # by its cookie


def test_beyond_this_machine_a_token_is_required(desk):
    with socket.socket() as listening:
        listening.bind(("0.0.0.0", 0))
        with pytest.raises(TagfillError, match="give a --token"):
            server.serve(desk, listening, run=None, reviewer="me", token=None)


def test_a_taken_port_is_told():
    with http.listen("127.0.0.1", 0) as taken, pytest.raises(TagfillError, match="choose another --port"):
        http.listen("127.0.0.1", taken.getsockname()[1])


@pytest.mark.parametrize(
    "wrong",
    [
        {"present": "yes"},
        {"seconds": -1},
        {"seconds": "NaN"},
        {"place": -1},
        {"id": ""},
        {"id": "i" * 101},
        {"more": 1},
    ],
)
def test_nonsense_is_refused(client, desk, wrong):
    assert client.post("/api/decisions", json=sent(**wrong)).status_code == 422
    assert desk.log.entries == []


def test_a_decision_about_other_suggestions_is_refused(client, desk):
    assert client.post("/api/decisions", json=sent(image="other.jpg")).status_code == 409
    assert desk.log.entries == []


def test_a_full_disk_is_told_and_can_be_tried_again(client, desk, monkeypatch):
    def full(entries):
        raise NotWrittenError("The decision could not be written: No space left on device.")

    with monkeypatch.context() as patch:
        patch.setattr(desk.log, "append", full)
        assert client.post("/api/decisions", json=sent()).status_code == 507
    answer = client.post("/api/decisions", json=sent()).json()
    assert answer["standings"][0]["decision"]["present"] is True


def test_no_outside_is_ever_asked(client):
    policy = client.get("/").headers["content-security-policy"]
    assert "default-src 'none'" in policy
    assert "http" not in policy
    for address in ("/", "/review.js", "/queue.js", "/review.css"):
        assert "https://" not in client.get(address).text
