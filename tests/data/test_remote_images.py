"""Batches of pixels from a dataset whose images are behind a URL."""

from __future__ import annotations

import functools
import http.server
import threading
from collections.abc import Iterator

import fsspec
import numpy as np
import pytest
import torch

from data.cases import scenes
from tagfill.data import PixelSource
from tagfill.dataset import Dataset
from tagfill.errors import ImageError
from tagfill.images import CROP

INDEX = [np.array([3, 0, 11])]


class Silent(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *args):
        """Says nothing."""


@pytest.fixture
def web() -> Iterator[str]:
    handler = functools.partial(Silent, directory=str(scenes().root))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


@pytest.fixture
def memory() -> Iterator[str]:
    files = fsspec.filesystem("memory")
    for name in scenes().names():
        files.pipe(f"/scenes/{name}", (scenes().root / name).read_bytes())
    yield "memory://scenes"
    files.rm("/scenes", recursive=True)


@pytest.mark.parametrize("place", ["web", "memory"])
def test_a_saved_dataset_with_a_url_gives_the_batches_of_its_folder(place, request, tmp_path, monkeypatch):
    monkeypatch.setenv("TAGFILL_CACHE", str(tmp_path / "cache"))
    url = request.getfixturevalue(place)
    scenes().replace(root=url).save(tmp_path / "data")

    remote = Dataset.open(tmp_path / "data")

    assert remote.root == url
    (here,) = PixelSource(scenes(), (32, 48), CROP, seed=5).train(INDEX, epoch=2)
    (there,) = PixelSource(remote, (32, 48), CROP, seed=5).train(INDEX, epoch=2)
    assert torch.equal(here.inputs, there.inputs)
    assert torch.equal(here.labels, there.labels)


def test_an_image_that_the_server_lacks_is_named(web, tmp_path, monkeypatch):
    monkeypatch.setenv("TAGFILL_CACHE", str(tmp_path / "cache"))
    source = PixelSource(scenes().replace(root=f"{web}/elsewhere"), (32, 48), CROP, seed=5)

    with pytest.raises(ImageError, match=r"there is no such file below http://127\.0\.0\.1"):
        list(source.train(INDEX, epoch=0))
