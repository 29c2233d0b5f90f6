"""The server of the review page: who may use it, and how it refuses invalid requests."""

import socket

import pytest
from fastapi.testclient import TestClient

import hostile_images as hostile
from tagfill.curation import server
from tagfill.curation.entry_log import NotWrittenError
from tagfill.curation.review import open_session
from tagfill.curation.server import ImageViews, create_app
from tagfill.errors import TagfillError
from tagfill.inference import http
from tagfill.inference.http import Guard

from .cases import photos, suggestions

LOCAL = "http://127.0.0.1:8317"


@pytest.fixture
def session(tmp_path):
    data = photos(tmp_path)
    with open_session(data, suggestions(data)) as session:
        yield session


@pytest.fixture
def client(session):
    app = Guard(create_app(session, ImageViews(session.dataset), "me"), None, local=True)
    return TestClient(app, base_url=LOCAL)


def sent(**changes):
    usual = {"id": "x", "place": 0, "image": "00000.jpg", "label": "cup", "present": True, "seconds": 1.0, "seen": 0}
    return {"who": "me", "decisions": [{**usual, **changes}]}


def test_pictures_come_by_row_and_in_few_sizes(client):
    answer = client.get("/picture/0?side=160")
    assert answer.status_code == 200
    assert answer.headers["content-type"] == "image/jpeg"
    assert client.get("/picture/0?side=161").status_code == 409
    for address in ("/picture/99", "/heatmap/0/99", "/api/image/99", "/api/photos/0"):
        assert client.get(address).status_code == 404
    for path in ("../data/dataset.yaml", "%2e%2e%2fdata", "-1", "1e9"):
        assert client.get(f"/picture/{path}").status_code in (404, 422)


def test_without_a_model_there_are_no_maps(client):
    assert client.get("/api/session").json()["heatmaps"] is False
    assert "start the review with --run" in client.get("/heatmap/0/0").json()["error"]


def test_a_picture_that_cannot_be_decoded_is_reported(client, session):
    (session.dataset.root / "00003.jpg").write_bytes(b"no picture")
    assert "00003.jpg" in client.get("/picture/3").json()["error"]


def test_only_the_own_page_may_send_decisions(client, session):
    assert client.post("/api/decisions", json=sent(), headers={"origin": "http://elsewhere.example"}).status_code == 403
    assert client.post("/api/decisions", json=sent(), headers={"origin": LOCAL}).status_code == 200
    assert client.get("/api/session", headers={"host": "elsewhere.example"}).status_code == 403
    assert len(session.log.entries) == 1


def test_a_token_is_required_and_remembered(session):
    app = Guard(create_app(session, ImageViews(session.dataset), "me"), "secret", local=False)
    client = TestClient(app, base_url=LOCAL)
    assert client.get("/").status_code == 401
    assert client.get("/?token=guess").status_code == 401
    assert client.get("/api/session", headers={"authorization": "Bearer secret"}).status_code == 200
    assert client.get("/?token=secret").status_code == 200
    assert client.get("/api/session").status_code == 200  # by its cookie


def test_beyond_this_machine_a_token_is_required(session):
    with socket.socket() as listening:
        listening.bind(("0.0.0.0", 0))
        with pytest.raises(TagfillError, match="give a --token"):
            server.serve(session, listening, run=None, reviewer="me", token=None)


def test_a_port_in_use_is_reported():
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
def test_invalid_decisions_are_refused(client, session, wrong):
    assert client.post("/api/decisions", json=sent(**wrong)).status_code == 422
    assert session.log.entries == []


@pytest.mark.parametrize(
    "wrong", ['{"seconds": NaN}', '{"minimum": Infinity}', '{"who": "\\ud800"}', "[" * 100_000, "{", "1e999"]
)
def test_what_is_not_json_is_a_bad_request(client, session, wrong):
    for address in ("/api/decisions", "/api/bulk", "/api/undo", "/api/finish"):
        answer = client.post(address, content=wrong, headers={"content-type": "application/json"})
        assert (answer.status_code, answer.json()) == (400, {"error": "the body is not valid JSON."})
    assert session.log.entries == []


def test_a_huge_body_is_refused(client, session):
    answer = client.post("/api/decisions", content=b" " * 5_000_000, headers={"content-type": "application/json"})
    assert (answer.status_code, answer.json()) == (413, {"error": "the body is larger than 4,194,304 bytes."})


def test_a_picture_that_takes_too_much_work_is_refused_by_name(client, session):
    (session.dataset.root / "00003.jpg").write_bytes(hostile.repeated_scans((64, 64), 200))
    for _ in range(2):
        assert "00003.jpg: the file has more than 100 scans" in client.get("/picture/3").json()["error"]


def test_each_decision_of_a_batch_is_confirmed_or_refused(client, session):
    batch = sent()
    batch["decisions"] += (
        sent(id="y", image="other.jpg")["decisions"] + sent(id="z", place=2, image="00002.jpg")["decisions"]
    )
    answer = client.post("/api/decisions", json=batch)
    assert answer.status_code == 200
    refused = {one["id"]: one["refused"] for one in answer.json()["statuses"]}
    assert (refused["x"], refused["z"]) == (None, None)
    assert "another file of suggestions" in refused["y"]
    assert [entry.id for entry in session.log.entries] == ["x", "z"]


def test_a_full_disk_is_reported_and_the_decision_can_be_sent_again(client, session, monkeypatch):
    def full(entries):
        raise NotWrittenError("The decision could not be written: No space left on device.")

    with monkeypatch.context() as patch:
        patch.setattr(session.log, "append", full)
        assert client.post("/api/decisions", json=sent()).status_code == 507
    answer = client.post("/api/decisions", json=sent()).json()
    assert answer["statuses"][0]["decision"]["present"] is True


def test_the_page_loads_nothing_from_elsewhere(client):
    policy = client.get("/").headers["content-security-policy"]
    assert "default-src 'none'" in policy
    assert "http" not in policy
    for address in ("/", "/review.js", "/photos.js", "/page.js", "/queue.js", "/review.css"):
        assert "https://" not in client.get(address).text


@pytest.mark.parametrize("address", ["/api/bulk", "/api/stroke"])
def test_a_bulk_decision_covers_open_suggestions_above_a_score_and_is_undone_at_once(client, session, address):
    client.post("/api/decisions", json=sent(present=False))
    chosen = {"label": "cup", "kind": "missing", "minimum": 0.5}
    shown = client.get("/api/bulk", params=chosen).json()
    assert shown["count"] == 2
    bulk = {"id": "b", **chosen, "present": True, "seconds": 4.0}
    assert "count: Field required" in client.post(address, json=bulk).json()["error"]
    assert client.post(address, json={**bulk, **shown, "minimum": 0.0}).status_code == 409
    answer = client.post(address, json={**bulk, **shown}).json()
    assert [status["place"] for status in answer["statuses"]] == [1, 2]
    assert [(entry.group, entry.seconds) for entry in session.log.entries] == [(None, 1.0), ("b", 2.0), ("b", 2.0)]
    answer = client.post("/api/undo", json={"id": "u", "undoes": "b"}).json()
    assert [status["decision"] for status in answer["statuses"]] == [None, None]
