"""Serving: micro-batches, and the server as a separate process with good, bad and many requests."""

from __future__ import annotations

import asyncio
import base64
import concurrent.futures
import io
import re
import signal
import socket
import struct
import subprocess
import sys
import threading
import time
import zlib
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

import httpx
import numpy as np
import pytest
from PIL import Image
from starlette.requests import ClientDisconnect, Request
from typer.testing import CliRunner

import hostile_images
from curation.cases import photos
from servers import Server
from tagfill import models
from tagfill.cli.app import app
from tagfill.images import stoppable
from tagfill.inference import open_predictor, predict
from tagfill.inference.predictors import Outputs
from tagfill.inference.scheduling import Batcher, DecodingQueue, QueueFullError
from tagfill.inference.serve import _unless_disconnected
from tagfill.probabilities import Calibration


class Slow:
    """Scores an image by its first pixel, after a pause."""

    def __init__(self, seconds=0.0):
        self.seconds, self.sizes = seconds, []

    def __call__(self, pixels, *, maps=False):
        time.sleep(self.seconds)
        self.sizes.append((len(pixels), maps))
        logits = pixels[:, 0, 0, :1].astype(np.float32)
        return Outputs(logits, logits[:, :, None, None] if maps else None)


def image(value):
    return np.full((2, 2, 3), value, np.uint8)


def in_new_loop(coroutine):
    """The result of a coroutine, in a thread: a browser of another test may have left a running loop in this one."""
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(asyncio.run, coroutine).result()


def test_each_request_gets_its_own_answer():
    batcher, answers = Batcher(Slow(0.002), size=8), {}

    def ask(value):
        (future,) = batcher.submit([image(value)], maps=value % 2 == 0)
        answers[value] = future.result()

    threads = [threading.Thread(target=ask, args=(value,)) for value in range(100)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    batcher.close()
    assert all(answers[value].logits[0, 0] == value for value in range(100))
    assert all((answers[value].maps is not None) == (value % 2 == 0) for value in range(100))


def test_batches_form_under_load_and_keep_to_their_size():
    model = Slow(0.02)
    batcher = Batcher(model, size=4)
    futures = batcher.submit([image(value) for value in range(16)], maps=False)
    assert [future.result().logits[0, 0] for future in futures] == list(range(16))
    batcher.close()
    assert [size for size, _ in model.sizes] == [4, 4, 4, 4]


def test_one_image_does_not_wait_for_a_full_batch():
    batcher = Batcher(Slow(), size=64, wait=0.01)
    begin = time.monotonic()
    batcher.submit([image(7)], maps=False)[0].result(timeout=5)
    assert time.monotonic() - begin < 5
    batcher.close()


def test_images_without_maps_get_their_own_batch():
    model = Slow(0.05)
    batcher = Batcher(model, size=8)
    first = batcher.submit([image(0)], maps=False)
    time.sleep(0.02)  # the model is at work
    rest = batcher.submit([image(1), image(2)], maps=True) + batcher.submit([image(3)], maps=False)
    for future in [*first, *rest]:
        future.result()
    batcher.close()
    assert model.sizes == [(1, False), (2, True), (1, False)]


def test_the_queue_is_bounded_and_takes_all_images_or_none():
    model = Slow(0.2)
    batcher = Batcher(model, size=1, wait=0, capacity=3)
    first = batcher.submit([image(0)], maps=False)
    time.sleep(0.05)
    waiting = batcher.submit([image(1), image(2)], maps=False)
    with pytest.raises(QueueFullError):
        batcher.submit([image(3), image(4)], maps=False)
    assert len(batcher) == 2
    waiting += batcher.submit([image(5)], maps=False)
    assert [future.result().logits[0, 0] for future in first + waiting] == [0, 1, 2, 5]
    batcher.close()


def test_an_error_of_the_model_reaches_the_waiting_requests():
    def model(pixels, *, maps=False):
        if pixels[0, 0, 0, 0] == 1:
            raise RuntimeError("broken")
        return Outputs(pixels[:, 0, 0, :1].astype(np.float32))

    batcher = Batcher(model, size=1)
    with pytest.raises(RuntimeError, match="broken"):
        batcher.submit([image(1)], maps=False)[0].result()
    assert batcher.submit([image(2)], maps=False)[0].result().logits[0, 0] == 2
    batcher.close()


def test_closing_finishes_waiting_images_and_refuses_new_ones():
    batcher = Batcher(Slow(0.02), size=1)
    futures = batcher.submit([image(value) for value in range(5)], maps=False)
    batcher.close()
    assert [future.result(timeout=0).logits[0, 0] for future in futures] == list(range(5))
    with pytest.raises(QueueFullError):
        batcher.submit([image(0)], maps=False)


def test_canceled_requests_are_skipped():
    model = Slow(0.05)
    batcher = Batcher(model, size=4)
    (first,) = batcher.submit([image(0)], maps=False)
    time.sleep(0.02)
    gone, here = batcher.submit([image(1), image(2)], maps=False)
    assert gone.cancel()
    assert here.result().logits[0, 0] == 2
    assert first.result().logits[0, 0] == 0
    batcher.close()
    assert model.sizes == [(1, False), (1, False)]


def test_canceled_requests_free_their_places():
    batcher = Batcher(Slow(0.3), size=1, capacity=2)
    first = batcher.submit([image(0)], maps=False)
    time.sleep(0.1)
    gone = batcher.submit([image(1), image(2)], maps=False)
    with pytest.raises(QueueFullError):
        batcher.check_capacity(1)
    for future in gone:
        future.cancel()
    (here,) = batcher.submit([image(3)], maps=False)
    assert (first[0].result().logits[0, 0], here.result().logits[0, 0]) == (0, 3)
    batcher.close()


def test_images_with_little_work_are_decoded_first_and_large_ones_on_their_own():
    queue, release, order = DecodingQueue(1), threading.Event(), []
    busy = queue.submit(0, release.wait, 10)
    large = queue.submit(stoppable.LIGHT + 1, order.append, "large")
    large.result(timeout=5)  # does not wait for the others
    waiting = [queue.submit(work, order.append, work) for work in (300, 100, 200)]
    waiting[2].cancel()
    release.set()
    for future in [busy, *waiting[:2]]:
        future.result(timeout=5)
    queue.close()
    assert order == ["large", 100, 300]


def test_the_work_for_a_client_that_disconnects_is_canceled():
    async def run() -> bool:
        async def receive() -> dict[str, str]:
            await asyncio.sleep(0.01)
            return {"type": "http.disconnect"}

        working = asyncio.ensure_future(asyncio.sleep(60))
        with pytest.raises(ClientDisconnect):
            await _unless_disconnected(Request({"type": "http"}, receive), working)
        return working.cancelled()

    assert in_new_loop(run())


# The server as a separate process


CLASSES = ("cup", "dog", "tree")


def started(model: Path, *flags: str) -> Server:
    return Server("serve", str(model), "--threads", "1", *flags)


def memory_of(server: Server) -> int:
    """In KiB."""
    status = Path(f"/proc/{server.process.pid}/status").read_text(encoding="utf-8")
    return int(re.search(r"VmRSS:\s+(\d+)", status)[1])  # type: ignore[index]


@pytest.fixture(scope="module")
def model(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("served") / "model"
    model = models.create("resnet10t", "cam", CLASSES, pretrained=False, image_size=64)
    model.calibration = Calibration(slope=2.0, offset=(-3.0, 0.0, 3.0), source="measured")
    model.save(folder)
    return folder


@pytest.fixture(scope="module")
def server(model):
    limits = "--max-megabytes 1 --max-images 8 --max-megapixels 1 --body-seconds 1.5 --queue 16"
    with started(model, *limits.split()) as server:
        yield server


@pytest.fixture(scope="module")
def client(server):
    with httpx.Client(base_url=server.address, timeout=30) as client:
        yield client


def picture(seed: int = 0, size=(80, 60), kind: str = "JPEG") -> bytes:
    file = io.BytesIO()
    pixels = np.random.default_rng(seed).integers(0, 255, (*size[::-1], 3), np.uint8)
    Image.fromarray(pixels).resize(size).save(file, kind)
    return file.getvalue()


def form(*contents: bytes):
    return [("images", (f"{number}.jpg", content, "image/jpeg")) for number, content in enumerate(contents)]


def test_answers_are_those_of_predict(client, model, tmp_path):
    contents = [picture(seed, kind=kind) for seed, kind in enumerate(("JPEG", "PNG", "WEBP"))]
    paths = []
    for number, content in enumerate(contents):
        paths.append(tmp_path / f"{number}.{('jpg', 'png', 'webp')[number]}")
        paths[-1].write_bytes(content)
    told = client.post("/predict", files=form(*contents)).json()
    expected = list(predict(model, paths))
    assert told["model"] == open_predictor(model).identity
    for found, wanted in zip(told["predictions"], expected, strict=True):
        assert found["scores"] == pytest.approx(wanted.scores, abs=2e-6)
        assert tuple(found["present"]) == wanted.present
        assert found["scores"]["cup"] < 0.3 < 0.7 < found["scores"]["tree"]  # an untrained model, calibrated


def test_one_image_as_the_body_with_threshold_and_top_k(client):
    told = client.post("/predict?threshold=0&top_k=2", content=picture(), headers={"content-type": "image/jpeg"}).json()
    (prediction,) = told["predictions"]
    scores = list(prediction["scores"].values())
    assert len(scores) == 2
    assert scores[0] >= scores[1]
    assert prediction["present"] == list(prediction["scores"])


def test_heatmaps_are_pictures_of_the_image(client):
    answer = client.post("/predict?heatmaps=true&threshold=0", files=form(picture()))
    maps = answer.json()["predictions"][0]["heatmaps"]
    assert set(maps) == set(CLASSES)
    image = Image.open(io.BytesIO(base64.b64decode(maps["cup"].partition(",")[2])))
    assert image.size == (80, 60)


def test_classes_health_metrics_and_description(client):
    assert [one["name"] for one in client.get("/classes").json()["classes"]] == list(CLASSES)
    assert client.get("/health").json()["status"] == "ok"
    client.post("/predict", files=form(picture()))
    assert re.search(r'tagfill_requests_total\{status="200"\} \d', client.get("/metrics").text)
    assert "/predict" in client.get("/openapi.json").json()["paths"]
    assert "https://" not in client.get("/").text


@pytest.fixture(scope="module")
def bomb() -> bytes:
    """A PNG of a few bytes that says it is 30,000 pixels wide and high."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    header = struct.pack(">IIBBBBB", 30_000, 30_000, 8, 2, 0, 0, 0)
    body = chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(b"\0" * 1000)) + chunk(b"IEND", b"")
    return b"\x89PNG\r\n\x1a\n" + body


def hostile(bomb: bytes) -> dict[str, tuple[int, dict]]:
    jpeg = picture()
    many = b"".join(
        b'--x\r\ncontent-disposition: form-data; name="images"; filename="a"\r\n\r\na\r\n' for _ in range(10_000)
    )
    return {
        "a bomb": (413, {"files": form(bomb)}),
        "too many scans": (413, {"files": form(jpeg, hostile_images.repeated_scans((64, 64), 500))}),
        "fill bytes": (413, {"files": form(hostile_images.fill_bytes(900_000))}),
        "many segments": (413, {"files": form(hostile_images.app_segments(100_000))}),
        "many chunks": (413, {"files": form(hostile_images.png_chunks(60_000))}),
        "too many pixels": (413, {"files": form(picture(size=(1200, 1200), kind="WEBP"))}),
        "half a file": (415, {"files": form(jpeg[: len(jpeg) // 2])}),
        "no file": (400, {"data": {"images": "text"}, "files": [("other", ("a.jpg", jpeg, "image/jpeg"))]}),
        "an empty file": (415, {"files": form(b"")}),
        "a script": (415, {"files": form(b"<svg onload=alert(1)>")}),
        "a GIF": (415, {"files": form(picture(kind="GIF"))}),
        "another type": (415, {"content": b"{}", "headers": {"content-type": "application/json"}}),
        "no type": (415, {"content": jpeg}),
        "too large": (413, {"content": b"\xff" * (2**20 + 1), "headers": {"content-type": "image/jpeg"}}),
        "too large in pieces": (
            413,
            {"content": iter([b"\xff" * 2**16] * 20), "headers": {"content-type": "image/jpeg"}},
        ),
        "too many images": (413, {"files": form(*[jpeg] * 9)}),
        "10,000 small parts": (413, {"content": many, "headers": {"content-type": "multipart/form-data; boundary=x"}}),
        "no boundary": (400, {"content": jpeg, "headers": {"content-type": "multipart/form-data"}}),
        "a broken form": (
            400,
            {"content": b"--y\r\nno", "headers": {"content-type": "multipart/form-data; boundary=x"}},
        ),
        "a huge field": (413, {"data": {"note": "n" * 100_000}, "files": form(jpeg)}),
        "a path for a name": (200, {"files": [("images", ("../../etc/passwd", jpeg, "image/jpeg"))]}),
    }


def test_hostile_requests_are_refused_and_leave_no_trace(client, server, bomb):
    found = {}
    for name, (status, request) in hostile(bomb).items():
        answer = client.post("/predict", **request)
        found[name] = (status, answer.status_code)
        assert answer.status_code == 200 or answer.json()["error"].endswith("."), name
    assert {name: pair for name, pair in found.items() if pair[0] != pair[1]} == {}
    for words in ("threshold=2", "threshold=nan", "top_k=0", "top_k=x", "heatmaps=perhaps"):
        assert client.post(f"/predict?{words}", files=form(picture())).status_code == 422
    for path in ("/../../etc/passwd", "/%2e%2e/%2e%2e/etc/passwd", "/page/try.html", "/predict/../../x"):
        assert client.get(path).status_code in (404, 405)


def test_hostile_requests_do_not_leak_memory(client, server, bomb):
    requests = [request for name, (_, request) in hostile(bomb).items() if "pieces" not in name]
    for request in requests:
        client.post("/predict", **request)
    before = memory_of(server)
    for _ in range(5):
        for request in requests:
            client.post("/predict", **request)
    assert memory_of(server) < before + 30_000
    assert client.post("/predict", files=form(picture())).status_code == 200


def exchanged(server, sent: bytes, *, seconds: float = 10) -> bytes:
    """What comes back over a bare connection."""
    with socket.create_connection(("127.0.0.1", server.port), timeout=seconds) as connection:
        connection.sendall(sent)
        received = b""
        with suppress(ConnectionResetError):  # it hung up on what it would not read
            while part := connection.recv(65536):
                received += part
        return received


def test_a_slow_body_huge_headers_and_no_http_at_all(server, client):
    head = b"POST /predict HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-type: image/jpeg\r\ncontent-length: 1000\r\n\r\n"
    assert b" 408 " in exchanged(server, head + b"\xff\xd8")
    assert b" 431 " in exchanged(server, b"GET / HTTP/1.1\r\nhost: 127.0.0.1\r\nx: " + b"y" * 30_000 + b"\r\n\r\n")
    exchanged(server, b"GET / HTTP/1.1\r\nhost: 127.0.0.1\r\nx: " + b"y" * 2_000_000)
    assert b" 400 " in exchanged(server, b"\0\1\2 nonsense\r\n\r\n")
    assert client.get("/health").status_code == 200


def test_requests_with_another_host_or_origin_are_refused(client):
    assert client.get("/health", headers={"host": "elsewhere.example"}).status_code == 403
    answer = client.post("/predict", files=form(picture()), headers={"origin": "http://elsewhere.example"})
    assert answer.status_code == 403


def test_many_at_once_all_get_their_own_answer(client, server):
    contents = [picture(seed) for seed in range(12)]
    alone = [client.post("/predict", files=form(content)).json()["predictions"][0]["scores"] for content in contents]

    def ask(number):
        with httpx.Client(base_url=server.address, timeout=30) as own:
            return number, own.post("/predict", files=form(contents[number])).json()["predictions"][0]["scores"]

    with concurrent.futures.ThreadPoolExecutor(12) as pool:
        for number, scores in pool.map(ask, [*range(12)] * 3):
            assert scores == pytest.approx(alone[number], abs=1e-4)


def test_a_full_queue_says_when_to_retry(server, client):
    contents = form(*[picture(seed) for seed in range(8)])
    statuses, waits = [], []

    def ask(_):
        answer = httpx.post(f"{server.address}predict", files=contents, timeout=60)
        statuses.append(answer.status_code)
        waits.append(answer.headers.get("retry-after"))

    with concurrent.futures.ThreadPoolExecutor(12) as pool:
        list(pool.map(ask, range(36)))
    assert set(statuses) == {200, 503}
    assert {wait for status, wait in zip(statuses, waits, strict=True) if status == 503} == {"1"}
    assert client.post("/predict", files=contents).status_code == 200


def test_shutdown_finishes_requests_in_flight_and_gives_up_slow_images(model):
    server = started(model, "--batch-size", "1")
    answers = {}

    def ask(name, *contents):
        answers[name] = httpx.post(f"{server.address}predict", files=form(*contents), timeout=60)

    slow = hostile_images.repeated_scans((6300, 6300), 85)  # within every limit
    threads = [threading.Thread(target=ask, args=("slow", slow))]
    threads.append(threading.Thread(target=ask, args=("quick", *[picture(seed) for seed in range(32)])))
    threads[0].start()
    children = Path(f"/proc/{server.process.pid}/task")
    until = time.monotonic() + 20
    while time.monotonic() < until and not any((task / "children").read_text() for task in children.iterdir()):
        time.sleep(0.01)  # until a helper process decodes the slow one
    threads[1].start()
    while time.monotonic() < until and threads[1].is_alive() and not waiting_in(server):
        time.sleep(0.01)
    assert "Traceback" not in "".join(server.end(signal.SIGTERM))
    for thread in threads:
        thread.join()
    assert len(answers["quick"].json()["predictions"]) == 32
    assert (answers["slow"].status_code, answers["slow"].json()) == (503, {"error": "the server is stopping."})


def waiting_in(server: Server) -> int:
    """The number of images that wait for the model."""
    return httpx.get(f"{server.address}health").json()["waiting"]


@pytest.mark.parametrize("command", [["serve"], ["review", "--suggestions", "s.csv"], ["audit"]], ids=lambda c: c[0])
def test_an_empty_token_is_refused_on_any_host(model, command, tmp_path):
    name, *flags = command
    source = str(model if name == "serve" else photos(tmp_path).folder)
    empty = CliRunner().invoke(app, [name, source, *flags, "--port", "0", "--token", ""])
    assert str(empty.exception).startswith("The --token is empty")
    for variable, reason in (("", "variable TAGFILL_TOKEN is empty"), (" ", "is empty"), ("short", "fewer than 8")):
        refused = CliRunner().invoke(app, [name, source, *flags, "--port", "0"], env={"TAGFILL_TOKEN": variable})
        assert reason in str(refused.exception)


def test_other_machines_need_a_token(model):
    command = [sys.executable, "-m", "tagfill", "serve", str(model), "--port", "0", "--host", "0.0.0.0"]
    refused = subprocess.run(command, capture_output=True, text=True, check=False)
    assert refused.returncode == 2
    assert "give a --token" in refused.stderr
    with started(model, "--host", "0.0.0.0", "--token", "long secret") as server:
        address = f"http://127.0.0.1:{server.port}/health"
        assert httpx.get(address).status_code == 401
        assert httpx.get(address, headers={"authorization": "Bearer guess"}).status_code == 401
        assert httpx.get(address, headers={"authorization": "Bearer long secret"}).status_code == 200
