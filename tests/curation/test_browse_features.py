"""Nearest photos and the map of `tagfill browse`, against their formulas in plain NumPy."""

import shutil

import numpy as np
import pytest
from fastapi.testclient import TestClient

from tagfill.cli import main
from tagfill.curation import browse_features, browse_server
from tagfill.curation.browse import PhotoFilter, PhotoIndex
from tagfill.curation.browse_features import FeatureSpace, principal_axes
from tagfill.curation.server import ImageViews
from tagfill.data.manifest import Manifest, MissingImage
from tagfill.inference.http import Guard

from .cases import photos

LOCAL = "http://127.0.0.1:8318"


@pytest.fixture
def space(part, cache, monkeypatch):
    monkeypatch.setattr(browse_features, "_BLOCK", 33)  # several blocks, the last one shorter
    return FeatureSpace(cache, part)


@pytest.fixture(scope="module")
def directions(cache):
    """From the mean of all photos to each, of length 1; the cache has the order of the dataset."""
    centered = np.load(cache.folder / "views" / "eval" / "pooled.npy").astype(np.float64)
    centered -= centered.mean(0)
    return centered / np.linalg.norm(centered, axis=1, keepdims=True)


@pytest.fixture
def client(part, space):
    app = browse_server.create_app(PhotoIndex(part), ImageViews(part), space)
    return TestClient(Guard(app, None, local=True), base_url=LOCAL)


def test_similarity_is_the_cosine_relative_to_the_mean(space, directions):
    for row in (0, 100, len(directions) - 1):
        np.testing.assert_allclose(space.similarities(row), directions @ directions[row], atol=2e-5)


def test_the_map_shows_the_principal_components(space, directions):
    centered = directions - directions.mean(0)
    _, sizes, axes = np.linalg.svd(centered, full_matrices=False)
    shown = space.map()
    expected = directions @ axes[:2].T
    signs = np.sign((expected * shown.positions).sum(0))
    np.testing.assert_allclose(shown.positions, expected * signs, atol=2e-3)
    assert shown.share == pytest.approx(float((sizes[:2] ** 2).sum() / (sizes**2).sum()), abs=1e-4)
    np.testing.assert_array_equal(shown.rows, np.arange(len(directions)))


def test_a_map_has_at_most_so_many_points_and_its_axes_come_from_a_sample(part, cache, space, monkeypatch):
    everything = space.map()
    monkeypatch.setattr(browse_features, "MAX_POINTS", 50)
    few = FeatureSpace(cache, part).map()
    assert (len(few.rows), few.rows[0], few.rows[-1]) == (50, 0, len(part) - 1)
    np.testing.assert_array_equal(few.positions, everything.positions[few.rows])
    monkeypatch.setattr(browse_features, "AXES_FROM", 40)
    assert FeatureSpace(cache, part).map().share != few.share


def test_axes_of_vectors_that_do_not_vary():
    axes, share = principal_axes(np.ones((4, 1), np.float32))
    assert axes.shape == (1, 2)
    assert share == 1.0
    assert np.isfinite(axes).all()


def test_photos_that_could_not_be_decoded_are_nowhere(tmp_path, part, cache):
    folder = shutil.copytree(cache.folder, tmp_path / "cache")
    missing = [MissingImage(row=3, image=part.names()[3], problem="truncated")]
    Manifest.read(folder).model_copy(update={"missing": missing}).save(folder)
    space = FeatureSpace(folder, part)
    assert np.flatnonzero(np.isnan(space.similarities(0))).tolist() == [3]
    assert 3 not in space.map().rows
    app = browse_server.create_app(PhotoIndex(part), ImageViews(part), space)
    client = TestClient(Guard(app, None, local=True), base_url=LOCAL)
    assert client.get("/api/photos?like=0").json()["total"] == len(part) - 1
    assert client.get("/api/photos?like=3").json()["error"].startswith("This photo has no features")


def test_nearest_photos_that_match_a_filter(client, part, directions):
    label = part.classes[0]
    matching = PhotoIndex(part).select(PhotoFilter(label, "present"))
    expected = matching[np.argsort(-(directions[matching] @ directions[7]), kind="stable")]
    page = client.get(f"/api/photos?like=7&label={label}&state=present&start=2&count=5").json()
    assert page["total"] == len(matching)
    assert [photo["row"] for photo in page["photos"]] == expected[2:7].tolist()
    assert client.get("/api/photos?like=7&count=1").json()["photos"][0]["similarity"] == 1.0
    assert client.get("/api/photos?like=999").status_code == 404


def test_points_and_their_states(client, part, space):
    about = client.get("/api/map").json()
    assert (about["points"], about["photos"]) == (len(part), len(part))
    content = client.get("/api/map/points").content
    rows, positions = np.frombuffer(content[: 4 * len(part)], "<i4"), np.frombuffer(content[4 * len(part) :], "<f4")
    np.testing.assert_array_equal(rows, space.map().rows)
    np.testing.assert_array_equal(positions.reshape(2, -1).T, space.map().positions)
    label = part.classes[0]
    states = np.frombuffer(client.get(f"/api/map/states?label={label}&split=val").content, np.uint8)
    dense = np.full(len(part), 2)
    for state, code in (("present", 1), ("absent", 0)):
        dense[PhotoIndex(part).select(PhotoFilter(label, state))] = code
    np.testing.assert_array_equal(states & 3, dense)
    assert np.flatnonzero(states & 4).tolist() == part.split("val").tolist()


def test_without_features_the_server_says_how_to_make_them(tmp_path):
    data = photos(tmp_path)
    app = browse_server.create_app(PhotoIndex(data), ImageViews(data))
    client = TestClient(Guard(app, None, local=True), base_url=LOCAL)
    for address in ("/api/photos?like=0", "/api/map", "/api/map/points", "/api/map/states"):
        answer = client.get(address)
        assert answer.status_code == 409
        assert "tagfill features" in answer.json()["error"]
    assert client.get("/api/dataset").json()["needs_features"] == answer.json()["error"]


@pytest.mark.parametrize(
    ("kind", "sentence"),
    [
        ("no folder", "nowhere"),
        ("other photos", "lacks 6 of the 6 images"),
        ("inner stage", "holds the output of the stage"),
    ],
)
def test_the_command_refuses_caches_that_do_not_serve(tmp_path, monkeypatch, capsys, part, cache, kind, sentence):
    photos(tmp_path)
    data, folder = tmp_path / "data", cache.folder
    if kind == "no folder":
        folder = tmp_path / "nowhere"
    if kind == "inner stage":
        data, folder = part.folder, shutil.copytree(cache.folder, tmp_path / "inner")
        Manifest.read(folder).model_copy(update={"at": "layer3"}).save(folder)
    words = ["tagfill", "browse", str(data), "--features", str(folder), "--no-browser", "--port", "0"]
    monkeypatch.setattr("sys.argv", words)
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == 2
    assert sentence in " ".join(capsys.readouterr().err.split())
