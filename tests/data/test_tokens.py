"""Class tokens beside the pooled features of a cache."""

from __future__ import annotations

import json

import numpy as np
import pytest
import torch

from data.cases import NAMES, VIEWS, InterruptionError, Stopping, every_row, files, scenes, small_shards, tiny
from tagfill.data import FeatureCache, FeatureSource, extract
from tagfill.errors import TagfillError
from tagfill.images import decode, render


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("tokens")
    with pytest.MonkeyPatch.context() as patch:
        small_shards(patch)
        extract(scenes(), tiny(name="test_vit"), folder, views=VIEWS, seed=3)
    return folder


def as_before(folder, tmp_path):
    """The cache as the version that knew no class tokens made it."""
    for name, content in files(folder).items():
        if not name.endswith(("token.npy", ".lock")):
            (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
            (tmp_path / name).write_bytes(content)
    manifest = json.loads((tmp_path / "manifest.json").read_text())
    del manifest["tokens"]
    manifest["version"] = 2
    for view in manifest["views"].values():
        del view["files"]["token.npy"]
    (tmp_path / "manifest.json").write_text(json.dumps(manifest))
    return tmp_path


@pytest.mark.parametrize("name", ["test_vit", "deit_tiny_distilled_patch16_224"])
def test_a_cached_token_is_that_of_the_image(tmp_path, name):
    """Of a distilled model too it is the class token, which the head takes on images."""
    backbone = tiny(name=name).eval()
    cache = extract(scenes(), backbone, tmp_path, views="eval,flip", dtype="float32")
    for view in ("eval", "flip"):
        rows = every_row(scenes(), view)[:2]
        found, geometry = cache.read([view], np.zeros(2, int), rows, maps=False, tokens=True)
        images = [decode(scenes().root, image) for image in scenes().names(rows)]
        views = [render(image, geometry.take(np.array([at])), (64, 64)) for at, image in enumerate(images)]
        with torch.inference_mode():
            expected = backbone.encode(torch.from_numpy(np.stack(views)).permute(0, 3, 1, 2), token=True).token
        torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-5)


def test_tokens_differ_from_means(folder):
    cache, rows = FeatureCache.open(folder, scenes()), np.arange(4)
    token, pooled = (cache.read(["eval"], np.zeros(4, int), rows, maps=False, tokens=t)[0] for t in (True, False))
    assert token.shape == pooled.shape
    assert (token - pooled).abs().max() > 0.1


def test_a_source_of_tokens_gives_nothing_else(folder):
    cache = FeatureCache.open(folder, scenes())
    (batch,) = FeatureSource(scenes(), cache, maps=True, tokens=True, seed=0).evaluate("test", np.arange(4))
    expected, _ = cache.read(["eval"], np.zeros(4, int), scenes().split("test"), maps=False, tokens=True)
    assert torch.equal(batch.inputs, expected)


def test_an_interrupted_extraction_ends_with_the_same_tokens(folder, tmp_path, monkeypatch):
    small_shards(monkeypatch)
    with pytest.raises(InterruptionError):
        extract(scenes(), tiny(name="test_vit"), tmp_path, views=VIEWS, seed=3, progress=Stopping(9))
    extract(scenes(), tiny(name="test_vit"), tmp_path, views=VIEWS, seed=3)
    assert files(tmp_path) == files(folder)


def test_a_backbone_without_a_class_token_leaves_none(tmp_path):
    cache = extract(scenes(), tiny(), tmp_path, views="eval")
    assert not list(tmp_path.rglob("token.npy"))
    with pytest.raises(TagfillError, match="has no class tokens, which pool=token needs"):
        FeatureSource(scenes(), cache, maps=False, tokens=True, seed=0)


def test_a_cache_from_before_is_read_and_says_what_it_lacks(folder, tmp_path):
    cache = FeatureCache.open(as_before(folder, tmp_path), scenes())
    expected, _ = FeatureCache.open(folder).read(["eval"], np.zeros(3, int), np.arange(3), maps=True)
    assert torch.equal(cache.read(["eval"], np.zeros(3, int), np.arange(3), maps=True)[0], expected)
    with pytest.raises(TagfillError, match=r"has no class tokens, .* make a new one in another folder"):
        cache.require_tokens()


def test_a_cache_from_before_goes_on_without_tokens(folder, tmp_path, monkeypatch):
    small_shards(monkeypatch)
    before = files(as_before(folder, tmp_path))
    cache = extract(scenes(), tiny(name="test_vit"), tmp_path, views=VIEWS, seed=3)
    assert files(tmp_path) == before
    cache = extract(scenes(), tiny(name="test_vit"), tmp_path, views="eval,crops:3", seed=3)
    assert set(cache.manifest.views) == {*NAMES, "crop2"}
    assert not cache.manifest.tokens
    assert not list(tmp_path.rglob("token.npy"))
