"""Features at the end of a backbone, computed from a cache of an inner stage instead of the images."""

from __future__ import annotations

import shutil

import pytest

from data.cases import NAMES, VIEWS, InterruptionError, Stopping, every_row, files, read, scenes, small_shards, tiny
from tagfill.data import extract
from tagfill.data.extract import features
from tagfill.engines import create_engine
from tagfill.errors import TagfillError

BACKBONES = {"test_resnet": "layer3", "test_vit": "blocks.3"}


@pytest.fixture(autouse=True)
def _small(monkeypatch):
    small_shards(monkeypatch)


@pytest.fixture(scope="module")
def inner(tmp_path_factory):
    """Folders of a cache of an inner stage in full precision, of each backbone."""
    folders = {}
    with pytest.MonkeyPatch.context() as patch:
        small_shards(patch)
        for name, at in BACKBONES.items():
            folders[name] = tmp_path_factory.mktemp(name) / "inner"
            extract(scenes(), tiny(name=name), folders[name], views=VIEWS, at=at, dtype="float32", seed=3)
    return folders


@pytest.mark.parametrize("name", BACKBONES)
def test_they_are_those_of_the_images_to_the_last_bit(tmp_path, inner, name):
    """With means, class tokens and crops; also after an interruption and by an engine."""
    backbone, options = tiny(name=name), {"views": VIEWS, "seed": 3, "dtype": "float32"}
    extract(scenes(), backbone, tmp_path / "direct", **options)
    expected = files(tmp_path / "direct")
    with pytest.raises(InterruptionError):
        extract(scenes(), backbone, tmp_path / "made", source=inner[name], progress=Stopping(9), **options)
    extract(scenes(), backbone, tmp_path / "made", source=inner[name], **options)
    assert files(tmp_path / "made") == expected
    extract(
        scenes(), backbone, tmp_path / "by", source=inner[name], engine=create_engine("joblib", workers=1), **options
    )
    assert files(tmp_path / "by") == expected


def test_eight_bits_below_change_them_little(tmp_path):
    """And no image is needed: their folder may be gone."""
    extract(scenes(), tiny(), tmp_path / "inner", views="eval", at="layer3", dtype="uint8")
    direct = extract(scenes(), tiny(), tmp_path / "direct", views="eval", dtype="float32")
    gone = scenes().replace(root=tmp_path / "gone")
    made = extract(gone, tiny(), tmp_path / "made", views="eval", dtype="float32", source=tmp_path / "inner")
    wanted = [("eval", row) for row in every_row(scenes(), "eval")]
    (exact, _), (found, _) = read(direct, wanted, maps=True), read(made, wanted, maps=True)
    assert 0 < (found - exact).square().mean() / exact.square().mean() < 0.02**2


def test_by_default_they_have_the_views_seed_and_size_of_the_inner_cache(tmp_path, inner):
    options = {"backbone": "test_resnet", "pretrained": False, "out": tmp_path / "made"}
    source = shutil.copytree(inner["test_resnet"], tmp_path / "inner")
    made = features(scenes(), source=source, **options).manifest
    assert tuple(made.views) == NAMES
    assert (made.seed, made.preprocessing.size) == (3, (64, 64))


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"at": "layer2"}, r"Only the features at the end .* is of layer3, and layer2 is wanted"),
        ({"backbone": tiny(seed=1)}, r"is of test_resnet with other weights"),
        ({"seed": 4}, r"were drawn with seed 3; use it here"),
        ({"views": "eval,crops:3"}, r"has no view 'crop2'; it has eval, flip, crop0, crop1"),
    ],
)
def test_what_does_not_follow_from_the_inner_cache_is_refused(tmp_path, inner, change, sentence):
    options = {"backbone": tiny(), "views": VIEWS, "seed": 3} | change
    with pytest.raises(TagfillError, match=sentence):
        extract(scenes(), options.pop("backbone"), tmp_path / "made", source=inner["test_resnet"], **options)
    assert not (tmp_path / "made" / "views").exists()
