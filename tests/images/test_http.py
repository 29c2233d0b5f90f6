"""Images of a web server, which this test starts and stops."""

from __future__ import annotations

import functools
import http.server
import multiprocessing
import threading
import zipfile
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from images.pictures import encode, noise, write
from tagfill.errors import ImageError, TagfillError
from tagfill.images import decode, open_root, roots

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


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch) -> Path:
    monkeypatch.setenv("TAGFILL_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(roots, "_RETRY_PAUSES", (0.0, 0.0))
    return tmp_path / "cache"


def kept(cache: Path) -> list[Path]:
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
    assert len(kept(cache)) == 1


def test_kept_images_need_no_server(url, server):
    content = open_root(url).read("a.png")
    server.trouble += [500] * 9
    assert open_root(url).read("a.png") == content


def test_listing(url):
    assert open_root(url).names() == sorted(NAMES)


def test_missing_image_is_asked_for_once(url, server, cache):
    with pytest.raises(ImageError, match=r"Image sub/none\.png: there is no such file below http://127"):
        open_root(url).read("sub/none.png")
    assert server.requests == ["/photos/sub/none.png"]
    assert kept(cache) == []


def test_passing_trouble_is_tried_again(url, server):
    server.trouble += [503, "cut"]
    assert decode(open_root(url), "a.png").size == (5, 4)
    assert len(server.requests) == 3


def test_lasting_trouble_names_the_image_and_the_cause(url, server, cache):
    server.trouble += [503] * 3
    with pytest.raises(ImageError, match=r"Image a\.png: it cannot be fetched from .*503"):
        open_root(url).read("a.png")
    assert kept(cache) == []


def test_half_an_answer_is_not_kept(url, server, cache):
    server.trouble += ["cut"] * 3
    with pytest.raises(ImageError, match=r"a\.png: it cannot be fetched"):
        open_root(url).read("a.png")
    assert kept(cache) == []


def test_writing_that_fails_leaves_nothing(url, cache, monkeypatch):
    def full(descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.fsync", full)
    with pytest.raises(OSError, match="No space"):
        open_root(url).read("a.png")
    assert kept(cache) == []


def test_server_that_is_not_there():
    root = open_root("http://127.0.0.1:9/photos")
    with pytest.raises(ImageError, match="cannot be fetched"):
        root.read("a.png")
    with pytest.raises(TagfillError, match="cannot be listed"):
        root.names()


def test_threads_and_processes_after_a_fork(url, cache):
    root = open_root(url)
    root.read("a.png")  # the connection of this process is of no use to its children
    names = NAMES * 4
    with ThreadPoolExecutor(4) as threads:
        contents = list(threads.map(root.read, names))
    for path in kept(cache):
        path.unlink()
    with ProcessPoolExecutor(2, mp_context=multiprocessing.get_context("fork")) as pool:
        assert list(pool.map(root.read, names)) == contents
    assert len(kept(cache)) == len(NAMES)


@pytest.fixture
def archive(url, tmp_path) -> str:
    with zipfile.ZipFile(tmp_path / "photos" / "all.zip", "w") as file:
        file.writestr("in/a.png", b"content")
        file.writestr("in/large.png", np.random.default_rng(0).bytes(1_000_000))
    return f"zip://in::{url}/all.zip"


def test_zip_file_of_a_server(archive, cache):
    root = open_root(archive)
    assert root.names() == ["a.png", "large.png"]
    assert root.read("a.png") == b"content"
    assert len(kept(cache)) == 1


def test_zip_file_of_a_server_without_ranges(archive, server):
    server.ranges = False
    with pytest.raises(TagfillError, match=r"cannot be opened .*range requests"):
        open_root(archive).read("a.png")
