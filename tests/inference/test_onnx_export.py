"""An exported model gives what torch gives, for every head and kind of backbone, or is not written."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

from images.pictures import photo
from tagfill.errors import TagfillError
from tagfill.inference import onnx_export, open_predictor, predict
from tagfill.inference.onnx_export import export
from tagfill.inference.onnx_predictor import open_onnx_session
from tagfill.models import Classifier, create
from tagfill.probabilities import Calibration, probabilities

CLASSES = ("anchor", "bell", "cat")

MATRIX = [
    ("test_vit", "tscam", {}, 64, True),
    ("test_efficientnet", "linear", {}, 64, False),
    ("test_efficientnet", "ensemble", {"members": 3, "boost": 5.0, "compete": 0.2}, 64, True),
    ("test_efficientnet", "query", {"width": 32, "keep_first_self_attention": True}, 64, False),
    ("test_vit", "linear", {"pool": "token"}, 64, False),
    ("vit_xsmall_patch16_clip_224_joint", "dual", {}, 32, True),
    ("tf_efficientnet_lite0", "cam", {"boost": 5.0, "boost_from": 0.1}, 224, True),
    ("tf_efficientnet_lite0", "query", {}, 224, False),
    ("resnet50", "linear", {}, 224, False),
    ("resnet50", "cam", {}, (224, 320), True),
    ("deit_tiny_patch16_224", "tscam", {}, 224, True),
    ("deit_tiny_patch16_224", "linear", {"pool": "token"}, 224, False),
    ("swin_tiny_patch4_window7_224", "cam", {}, 224, True),
]


def saved(folder: Path, backbone: str, head: str, size: Any, **options: Any) -> Path:
    """A model with random weights of a spread that makes logits differ, in its folder."""
    model = create(backbone, head, CLASSES, image_size=size, **options)
    rng = np.random.default_rng(0)
    for parameter in model.head.parameters():
        noise = rng.normal(scale=0.02, size=tuple(parameter.shape)).astype(np.float32)
        parameter.data += parameter.data.new_tensor(noise)
    model.thresholds = (0.3, 0.5, 0.7)
    model.calibration = Calibration(slope=2.0, offset=(-1.0, 0.0, 0.5), source="measured", bend=-1.2, knot=0.1)
    model.save(folder)
    return folder


@pytest.fixture(scope="module")
def photos(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("photos")
    for number in range(3):
        photo(90 + 10 * number, 120, seed=number).save(folder / f"{number}.jpg")
    return folder


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory, photos: Path) -> Path:
    """A model folder whose ONNX file lies beside it, with maps and a boost."""
    folder = saved(tmp_path_factory.mktemp("models") / "model", "test_efficientnet", "cam", 64, boost=5.0)
    check(folder, photos, maps=True)
    return folder


def check(folder: Path, photos: Path, maps: bool) -> None:
    path = folder.with_suffix(".onnx")

    exported = export(folder, path, maps=maps, images=photos)

    assert exported.real_images == 3
    assert max(exported.differences.values()) < 1e-4
    torch_model, onnx_model = open_predictor(folder), open_predictor(path)
    pixels = np.random.default_rng(7).integers(0, 256, (4, *torch_model.size, 3), dtype=np.uint8)
    for batch in (pixels[:1], pixels):  # any number of images
        ours, theirs = torch_model(batch, maps=maps), onnx_model(batch, maps=maps)
        assert theirs.logits == pytest.approx(ours.logits, abs=1e-4)
        assert np.ptp(ours.logits) > 1e-3  # something to compare
        if maps:
            assert ours.maps is not None
            assert theirs.maps == pytest.approx(ours.maps, abs=1e-4)
    said = [list(predict(model, photos)) for model in (folder, path)]
    assert [(p.image, p.present) for p in said[0]] == [(p.image, p.present) for p in said[1]]
    assert [p.scores for p in said[0]] == [pytest.approx(p.scores, abs=1e-4) for p in said[1]]


def test_the_sidecar_says_what_the_graph_does_not(model: Path) -> None:
    sidecar = json.loads(model.with_name("model.onnx.json").read_text())

    assert (sidecar["classes"], sidecar["thresholds"], sidecar["head"]) == (list(CLASSES), [0.3, 0.5, 0.7], "cam")
    assert (sidecar["head_options"]["boost"], sidecar["preprocessing"]["size"]) == (5.0, [64, 64])
    assert (sidecar["outputs"], set(sidecar["hashes"])) == (["logits", "probabilities", "maps"], {"onnx", "model"})
    shape = {"slope": 2.0, "offset": [-1.0, 0.0, 0.5], "bend": -1.2, "knot": 0.1}
    assert sidecar["calibration"] == {**shape, "source": "measured"}
    assert sidecar["parity"]["real_images"] == 3


def test_the_graph_takes_any_number_of_images_and_knows_no_path_of_this_machine(model: Path) -> None:
    path = model.with_suffix(".onnx")

    graph = onnx.load(path).graph

    assert [value.type.tensor_type.shape.dim[0].dim_param for value in (*graph.input, *graph.output)] == ["batch"] * 4
    assert [value.name for value in (*graph.input, *graph.output)] == ["pixels", "logits", "probabilities", "maps"]
    assert str(Path(onnx_export.__file__).parents[2]).encode() not in path.read_bytes()


def test_the_graph_gives_calibrated_probabilities_to_other_programs(model: Path) -> None:
    pixels = np.random.default_rng(7).integers(0, 256, (2, 3, 64, 64), dtype=np.uint8)
    session = open_onnx_session(model.with_suffix(".onnx"))

    logits, found = session.run(["logits", "probabilities"], {"pixels": pixels})

    log_odds = 2.0 * logits - 1.2 * np.maximum(logits - 0.1, 0) + [-1.0, 0.0, 0.5]
    assert found == pytest.approx(1 / (1 + np.exp(-log_odds)), abs=1e-6)
    assert np.abs(found - probabilities(logits)).max() > 0.1


def test_the_boost_is_in_the_graph(model: Path, tmp_path: Path) -> None:
    Classifier.load(model).convert_head("cam", boost=1.0).save(tmp_path / "plain")
    pixels = np.random.default_rng(7).integers(0, 256, (2, 64, 64, 3), dtype=np.uint8)

    boosted, plain = (open_predictor(each)(pixels).logits for each in (model.with_suffix(".onnx"), tmp_path / "plain"))

    assert np.abs(boosted - plain).max() > 0.01


@pytest.mark.long
@pytest.mark.parametrize(
    ("backbone", "head", "options", "size", "maps"), MATRIX, ids=[f"{case[0]}-{case[1]}" for case in MATRIX]
)
def test_every_head_on_every_kind_of_backbone(
    tmp_path: Path, photos: Path, backbone: str, head: str, options: dict[str, Any], size: Any, maps: bool
) -> None:
    check(saved(tmp_path / "model", backbone, head, size, **options), photos, maps)


def test_a_file_that_does_not_agree_with_torch_is_not_written(
    model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    strange = onnx.load(model.with_suffix(".onnx"))
    (bias,) = [value for value in strange.graph.initializer if value.name.endswith("fc.bias")]
    bias.CopyFrom(onnx.numpy_helper.from_array(onnx.numpy_helper.to_array(bias) + np.float32(3e-4), bias.name))
    monkeypatch.setattr(onnx_export, "_graph", lambda *_: strange.SerializeToString())

    with pytest.raises(TagfillError, match=r"outputs for random images differ by .*, more than 0\.0001; nothing was"):
        export(model, tmp_path / "strange.onnx")

    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("run", "onnx_file", "maps", "sentence"),
    [
        ("model", "model.pt", False, "exported into an .onnx file"),
        ("nowhere", "model.onnx", False, "is not a model folder"),
        ("model", "model.onnx", True, "The linear head has no class maps; choose cam"),
    ],
)
def test_mistakes_are_named(tmp_path: Path, run: str, onnx_file: str, maps: bool, sentence: str) -> None:
    saved(tmp_path / "model", "test_efficientnet", "linear", 64)

    with pytest.raises(TagfillError) as raised:
        export(tmp_path / run, tmp_path / onnx_file, maps=maps)

    assert sentence in str(raised.value)
