"""Images of a web server, which these tests start and stop."""

from __future__ import annotations

import functools
import http.server
import multiprocessing
import sys
import threading
import tracemalloc
import zipfile
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from images.pictures import encode, noise, write
from tagfill.errors import ImageError, TagfillError
from tagfill.images import decode, image_files, open_root, remote


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch) -> Path:
    """A cache folder of this test's own, and no pauses between attempts to fetch."""
    monkeypatch.setenv("TAGFILL_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(remote, "_RETRY_PAUSES", (0.0, 0.0))
    return tmp_path / "cache"


NAMES = ["a.png", "sub/b c.png", "sub/ü#1?.png", "sub/..%2e/odd.png"]


class Handler(http.server.SimpleHTTPRequestHandler):
    """Serves a folder or ranges of its files, keeps a list of requests, and fails or cuts answers when told to."""

    def do_GET(self):
        self.server.requests.append(self.path)
        trouble = self.server.trouble.pop(0) if self.server.trouble else None
        if trouble == "cut":
            self.send_response(200)
            self.send_header("Content-Length", "1000")
            self.end_headers()
            self.wfile.write(b"half of it")
        elif trouble is not None:
            self.send_error(trouble)
        elif "Range" in self.headers and self.server.ranges:
            first, last = map(int, self.headers["Range"].removeprefix("bytes=").split("-"))
            content = Path(self.translate_path(self.path)).read_bytes()
            self.send_response(206)
            self.send_header("Content-Range", f"bytes {first}-{last}/{len(content)}")
            self.end_headers()
            self.wfile.write(content[first : last + 1])
        else:
            super().do_GET()

    def log_message(self, *args):
        """Says nothing."""


@pytest.fixture
def server(tmp_path) -> Iterator[http.server.ThreadingHTTPServer]:
    for number, name in enumerate(NAMES):
        write(tmp_path / "photos", name, encode(Image.fromarray(noise(4, 5, seed=number))))
    handler = functools.partial(Handler, directory=str(tmp_path))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        server.requests, server.trouble, server.ranges = [], [], True
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield server
        server.shutdown()
        thread.join()


@pytest.fixture
def url(server) -> str:
    return f"http://127.0.0.1:{server.server_port}/photos"


def cached_files(cache: Path) -> list[Path]:
    return [path for path in cache.rglob("*") if path.is_file()]


def test_images_are_fetched_and_decoded(url):
    for number, name in enumerate(NAMES):
        assert np.array_equal(np.asarray(decode(open_root(url), name)), noise(4, 5, seed=number))


def test_slash_at_the_end_does_not_matter(url):
    assert open_root(url + "/") == open_root(url)


def test_an_image_is_fetched_once(url, server, cache):
    first = open_root(url).read("a.png")
    assert open_root(url).read("a.png") == first
    assert server.requests == ["/photos/a.png"]
    assert len(cached_files(cache)) == 1


def test_cached_images_need_no_server(url, server):
    content = open_root(url).read("a.png")
    server.trouble += [500] * 9
    assert open_root(url).read("a.png") == content


def test_listing(url):
    assert open_root(url).names() == sorted(NAMES)


def test_missing_image_is_requested_once(url, server, cache):
    with pytest.raises(ImageError, match=r"Image sub/none\.png: there is no such file below http://127"):
        open_root(url).read("sub/none.png")
    assert server.requests == ["/photos/sub/none.png"]
    assert cached_files(cache) == []


def test_a_temporary_error_is_retried(url, server):
    server.trouble += [503, "cut"]
    assert decode(open_root(url), "a.png").size == (5, 4)
    assert len(server.requests) == 3


def test_a_lasting_error_names_the_image_and_the_cause(url, server, cache):
    server.trouble += [503] * 3
    with pytest.raises(ImageError, match=r"Image a\.png: it cannot be fetched from .*503"):
        open_root(url).read("a.png")
    assert cached_files(cache) == []


def test_an_incomplete_answer_is_not_cached(url, server, cache):
    server.trouble += ["cut"] * 3
    with pytest.raises(ImageError, match=r"a\.png: it cannot be fetched"):
        open_root(url).read("a.png")
    assert cached_files(cache) == []


def test_writing_that_fails_leaves_nothing(url, cache, monkeypatch):
    def full(descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.fsync", full)
    with pytest.raises(OSError, match="No space"):
        open_root(url).read("a.png")
    assert cached_files(cache) == []


def test_a_refused_image_is_requested_once(url, server):
    server.trouble += [403]
    with pytest.raises(ImageError, match=r"Image a\.png: http://127.* refuses access to it \(403"):
        open_root(url).read("a.png")
    assert len(server.requests) == 1


@pytest.mark.parametrize("url", ["s3://bucket/photos", "zip://::s3://bucket/photos.zip"])
def test_a_missing_package_is_named_with_its_remedy(url, monkeypatch):
    monkeypatch.setitem(sys.modules, "s3fs", None)
    with pytest.raises(TagfillError, match=r"because a package is missing: pip install 'tagfill\[s3\]'\.$"):
        open_root(url).read("a.png")


def test_images_are_read_ahead_in_order_and_once(url, server, cache):
    root = open_root(url)
    batches = remote.read_ahead([NAMES[:2], NAMES[2:], NAMES[:1]], lambda batch: [(root, name) for name in batch])
    assert next(batches) == NAMES[:2]
    assert len(cached_files(cache)) >= 2
    assert list(batches) == [NAMES[2:], NAMES[:1]]
    fetched = len(server.requests)
    assert fetched <= len(NAMES) + 1  # the first image may be requested again before it arrives
    assert [len(root.read(name)) > 0 for name in NAMES] == [True] * len(NAMES)
    assert len(server.requests) == fetched


def test_reading_ahead_is_limited(url, server, monkeypatch):
    monkeypatch.setattr(remote, "_AHEAD", 2)
    root, drawn = open_root(url), []

    def draw() -> Iterator[str]:
        for number in range(100):
            drawn.append(number)
            yield NAMES[number % len(NAMES)]

    batches = remote.read_ahead(draw(), lambda name: [(root, name)])
    next(batches)
    assert len(drawn) == 3
    batches.close()


def test_an_image_that_cannot_be_fetched_ahead_is_left_to_its_reader(url):
    root = open_root(url)
    assert list(remote.read_ahead(["none.png"], lambda name: [(root, name)])) == ["none.png"]
    with pytest.raises(ImageError, match="there is no such file"):
        root.read("none.png")


def test_unreachable_server():
    root = open_root("http://127.0.0.1:9/photos")
    with pytest.raises(ImageError, match="cannot be fetched"):
        root.read("a.png")
    with pytest.raises(TagfillError, match="cannot be listed"):
        root.names()


def test_threads_and_processes_after_a_fork(url, cache):
    root = open_root(url)
    root.read("a.png")  # child processes cannot use the connection of this process
    names = NAMES * 4
    with ThreadPoolExecutor(4) as threads:
        contents = list(threads.map(root.read, names))
    for path in cached_files(cache):
        path.unlink()
    with ProcessPoolExecutor(2, mp_context=multiprocessing.get_context("fork")) as pool:
        assert list(pool.map(root.read, names)) == contents
    assert len(cached_files(cache)) == len(NAMES)


@pytest.fixture
def remote_archive(url, tmp_path) -> str:
    with zipfile.ZipFile(tmp_path / "photos" / "all.zip", "w") as file:
        file.writestr("in/a.png", b"content")
        file.writestr("in/large.png", np.random.default_rng(0).bytes(1_000_000))
    return f"zip://in::{url}/all.zip"


def test_zip_file_of_a_server(remote_archive, cache):
    root = open_root(remote_archive)
    assert root.names() == ["a.png", "large.png"]
    assert root.read("a.png") == b"content"
    assert len(cached_files(cache)) == 1


def test_zip_file_of_a_server_without_ranges(remote_archive, server):
    server.ranges = False
    with pytest.raises(TagfillError, match=r"cannot be opened .*range requests"):
        open_root(remote_archive).read("a.png")


def limit_of_bytes(monkeypatch, limit: int) -> None:
    monkeypatch.setattr(image_files, "MAX_BYTES", limit)
    monkeypatch.setattr(image_files, "_CHUNK", 1000)


def test_large_zip_member_is_refused_before_it_is_unpacked(tmp_path, monkeypatch):
    with zipfile.ZipFile(tmp_path / "photos.zip", "w", zipfile.ZIP_DEFLATED) as file:
        file.writestr("zeros.png", bytes(50 << 20))
    limit_of_bytes(monkeypatch, 1 << 20)
    root = open_root(tmp_path / "photos.zip")
    root.names()
    tracemalloc.start()
    with pytest.raises(ImageError, match=r"Image zeros\.png: the file has 52,428,800 bytes, more than the limit"):
        root.read("zeros.png")
    assert tracemalloc.get_traced_memory()[1] < 5 << 20
    tracemalloc.stop()


def test_zip_member_that_declares_too_little_is_not_unpacked_further(tmp_path, monkeypatch):
    with zipfile.ZipFile(tmp_path / "photos.zip", "w", zipfile.ZIP_DEFLATED) as file:
        file.writestr("zeros.png", bytes(50 << 20))
    content = (tmp_path / "photos.zip").read_bytes()
    (tmp_path / "photos.zip").write_bytes(content.replace((50 << 20).to_bytes(4, "little"), bytes([9, 0, 0, 0])))
    tracemalloc.start()
    with pytest.raises(ImageError, match=r"zeros\.png: it cannot be fetched .*CRC"):
        open_root(tmp_path / "photos.zip").read("zeros.png")
    assert tracemalloc.get_traced_memory()[1] < 5 << 20
    tracemalloc.stop()


class Endless(http.server.BaseHTTPRequestHandler):
    """Sends bytes until the client hangs up; `/declared…` says how many it would be."""

    def do_GET(self):
        self.send_response(200)
        if self.path.startswith("/declared"):
            self.send_header("Content-Length", str(10**12))
        self.end_headers()
        with suppress(OSError):
            while True:
                self.wfile.write(bytes(10_000))
                self.server.sent += 10_000

    def log_message(self, *args):
        """Says nothing."""


@pytest.mark.parametrize(
    ("name", "problem"), [("declared.png", "1,000,000,000,000 bytes"), ("endless.png", "more bytes")]
)
def test_answer_of_a_server_is_read_up_to_the_limit(monkeypatch, cache, name, problem):
    limit_of_bytes(monkeypatch, 100_000)
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Endless) as server:
        server.sent = 0
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        with pytest.raises(ImageError, match=rf"Image {name}: the file has {problem}"):
            open_root(f"http://127.0.0.1:{server.server_port}").read(name)
        server.shutdown()
        thread.join()
        assert server.sent < 50_000_000  # what fits into buffers of the system
    assert cached_files(cache) == []
