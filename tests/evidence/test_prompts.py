"""Text prompts: with towers that see colors, and with small random towers of open_clip."""

import json
import sys

import numpy as np
import pytest
from PIL import Image

from tagfill import Dataset
from tagfill.errors import TagfillError
from tagfill.evidence import open_evidence
from tagfill.evidence.prompts import OpenClip, class_vectors, save_class_vectors, score_with_prompts, split_tiles
from tagfill.models.class_vectors import read_class_vectors

COLORS = {"red": (255, 0, 0), "green": (0, 255, 0), "blue": (0, 0, 255)}


class ColorTowers:
    """Image vectors are mean colors, text vectors the colors that a text names."""

    calls = 0

    def encode_texts(self, texts):
        found = np.array([sum(np.array(COLORS[word]) for word in COLORS if word in text) for text in texts], float)
        return found / np.linalg.norm(found, axis=1, keepdims=True)

    def encode_images(self, images):
        self.calls += 1
        means = np.stack([np.asarray(image, float).mean((0, 1)) for image in images]) + 1e-3
        return means / np.linalg.norm(means, axis=1, keepdims=True)


@pytest.fixture
def data(tmp_path, monkeypatch):
    """A red photo, a green one, and a red one with a small blue square."""
    monkeypatch.setenv("TAGFILL_CACHE", str(tmp_path / "cache"))
    photos = tmp_path / "photos"
    photos.mkdir()
    for name, color in (("red", "red"), ("green", "green"), ("both", "red")):
        image = Image.new("RGB", (90, 90), COLORS[color])
        if name == "both":
            image.paste(COLORS["blue"], (0, 0, 30, 30))
        image.save(photos / f"{name}.png")
    images = [{"image": f"{name}.png", "split": "train"} for name in ("red", "green", "both")]
    return Dataset.from_records("colors", photos, ("red", "green", "blue"), images, []).save(tmp_path / "data")


def test_tiles_find_what_is_small(data):
    results = score_with_prompts(data, model="colors", name="c", encoder=ColorTowers())
    assert [result.evidence.name for result in results] == ["c", "c-tiles"]
    whole, tiles = (open_evidence(data, name).scores.rows(np.arange(3)) for name in ("c", "c-tiles"))
    np.testing.assert_allclose(whole[0], [1, 0, 0], atol=1e-2)
    assert whole[2, 2] < 0.3
    assert tiles[2, 2] > 0.99


def test_image_vectors_are_kept_and_other_texts_are_cheap(data):
    towers = ColorTowers()
    score_with_prompts(data, model="colors", name="c", encoder=towers, tiles=0)
    before = towers.calls
    again = score_with_prompts(
        data, model="colors", name="d", encoder=towers, tiles=0, texts={"blue": ["green", "blue"]}
    )
    assert (before, towers.calls) == (3, 3)
    assert again[0].evidence.scores.rows(np.array([1]))[0, 2] == pytest.approx(2**-0.5, abs=1e-2)


def test_replaced_photos_and_weights_are_encoded_again(data, tmp_path):
    weights, towers = tmp_path / "weights.pt", ColorTowers()
    weights.write_bytes(b"first")
    score_with_prompts(data, model=f"mine:towers/{weights}", name="c", encoder=towers)
    before = towers.calls
    Image.new("RGB", (80, 80), COLORS["green"]).save(tmp_path / "photos" / "red.png")
    score_with_prompts(data, model=f"mine:towers/{weights}", name="c", encoder=towers, force=True)
    assert open_evidence(data, "c").scores.rows(np.array([0]))[0].argmax() == 1
    weights.write_bytes(b"others")
    score_with_prompts(data, model=f"mine:towers/{weights}", name="c", encoder=towers, force=True)
    assert towers.calls == 3 * before


def test_synonyms_and_templates_are_averaged():
    found = class_vectors(ColorTowers(), [["red", "blue"], ["green"]], ["a {}.", "the {}."])
    np.testing.assert_allclose(found, [[2**-0.5, 0, 2**-0.5], [0, 1, 0]], atol=1e-6)


def test_vectors_of_classes_are_written_for_heads(data, tmp_path):
    path = tmp_path / "texts.safetensors"
    assert save_class_vectors(data, path, encoder=ColorTowers(), texts={"blue": ["blue", "green"]}) == (3, 3)
    found = read_class_vectors(path, ["blue", "red"], 3, "colors").numpy()
    np.testing.assert_allclose(found, [[0, 2**-0.5, 2**-0.5], [1, 0, 0]], atol=1e-6)
    with pytest.raises(TagfillError, match="exists already"):
        save_class_vectors(data, path, encoder=ColorTowers())


def test_mistakes_are_sentences(data):
    with pytest.raises(TagfillError, match=r"has no \{\}"):
        score_with_prompts(data, encoder=ColorTowers(), templates=["a photo"])
    with pytest.raises(TagfillError, match="There is no class 'pink'"):
        score_with_prompts(data, encoder=ColorTowers(), texts={"pink": ["rose"]})
    with pytest.raises(TagfillError, match="open_clip:ARCHITECTURE/WEIGHTS"):
        OpenClip.load("ViT-B-32")


def test_a_photo_that_cannot_be_decoded_has_no_score(data):
    (data.root / "green.png").write_bytes(b"no photo")
    score_with_prompts(data, model="colors", name="c", encoder=ColorTowers())
    assert np.isnan(open_evidence(data, "c").scores.rows(np.array([1]))).all()


def test_small_random_towers_of_open_clip(data, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "transformers", None)  # the extra clip does not bring it, and importing it is slow
    import open_clip

    tower = {"width": 32, "layers": 1}
    config = {
        "embed_dim": 16,
        "vision_cfg": {"image_size": 32, "patch_size": 16, "head_width": 16, **tower},
        "text_cfg": {"context_length": 77, "vocab_size": 49408, "heads": 2, **tower},
    }
    (tmp_path / "tiny-tagfill.json").write_text(json.dumps(config))
    open_clip.add_model_config(tmp_path / "tiny-tagfill.json")
    results = score_with_prompts(data, model="open_clip:tiny-tagfill/none", name="tiny")
    assert [len(result.evidence) for result in results] == [9, 9]
    assert np.abs(results[0].evidence.scores.values).max() <= 1 + 1e-3
    assert save_class_vectors(data, tmp_path / "t.safetensors", model="open_clip:tiny-tagfill/none") == (3, 16)
    with pytest.raises(TagfillError, match="open_clip cannot load tiny-tagfill"):
        OpenClip.load("open_clip:tiny-tagfill/no-such-weights")


def test_tiles_cover_the_photo():
    tiles = split_tiles(Image.new("RGB", (10, 7)), 3)
    assert sum(tile.size[0] * tile.size[1] for tile in tiles) == 70
    assert all(min(tile.size) >= 1 for tile in split_tiles(Image.new("RGB", (2, 2)), 3))
