from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

import tagfill
from data.cases import scenes
from dataset.cases import dataset, row
from reference.localization import average_precision, ioa
from tagfill.cli.app import app
from tagfill.contract import Marks, Prediction
from tagfill.data import PixelSource
from tagfill.dataset import Dataset, from_records, masks
from tagfill.errors import TagfillError
from tagfill.images import EVAL
from tagfill.images.geometry import Geometry
from tagfill.metrics import LocalizationMeter
from tagfill.models import Classifier, create
from tagfill.training.evaluation import predict
from tagfill.training.localization import locations_with_extent, measure_localization, paint_truth


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("models") / "tiny"
    create("test_resnet", "cam", scenes().classes, image_size=64, seed=3).save(folder)
    return folder


def halves() -> Dataset:
    """The scenes, with a box over the left or the right half of the image for every label but the first five."""
    rows = []
    for record in scenes().rows().to_pylist():
        number = scenes().classes.index(record["label"])
        if record["present"] and number >= 5:
            record |= {"kind": "box", "x": 0.25 + 0.5 * (number % 2), "y": 0.5, "w": 0.5, "h": 1.0, "rle": None}
        rows.append(record)
    return scenes().replace(annotations=from_records(rows))


@pytest.mark.parametrize("maps", ["minmax", "sigmoid"])
def test_equals_a_loop_over_pixels(model, maps):
    data, classifier = halves(), Classifier.load(model)
    source = PixelSource(data, (64, 64), EVAL, seed=0)
    ((batch, prediction),) = predict(classifier, source, "train", np.arange(12), maps=True)
    prediction = replace(prediction, maps=30 * prediction.maps)  # as sure of themselves as trained ones are
    found = LocalizationMeter(len(data.classes))
    passes = measure_localization(
        iter([(batch, prediction)]), locations_with_extent(data, "train"), found, maps=maps, raster=8
    )
    assert [given for _, given in passes] == [prediction]
    expected = by_hand(prediction, data, maps, 8)
    np.testing.assert_allclose(found.compute().average_precision, expected)
    assert 0.05 < np.nanmean(expected) < 0.95


def by_hand(prediction: Prediction, data: Dataset, maps: str, raster: int) -> list[list[float]]:
    names, labels = data.names(data.split("train")), data.labels("train").dense()
    places: dict[tuple[str, str], list[dict]] = {}
    for record in data.rows().to_pylist():
        places.setdefault((record["image"], record["label"]), []).append(record)
    result = []
    for c, label in enumerate(data.classes):
        shown = [i for i in range(len(names)) if labels[i, c] == 1]
        truths = {i: painted(places[names[i], label], raster) for i in shown}
        result.append([])
        for threshold in (0.6, 0.7, 0.8, 0.9):
            detections = []
            for i in range(len(names)):
                hit = i in shown and ioa(prediction.maps[i, c].tolist(), truths[i], threshold, maps) >= 0.5
                detections.append((float(prediction.logits[i, c]), hit))
            result[-1].append(average_precision(detections, len(shown)) if shown else float("nan"))
    return result


def painted(records: list[dict], raster: int) -> list[list[bool]]:
    truth = [[False] * raster for _ in range(raster)]
    for y in range(raster):
        for x in range(raster):
            u, v = (x + 0.5) / raster, (y + 0.5) / raster
            for record in records:
                if record["kind"] == "box":
                    truth[y][x] |= abs(u - record["x"]) <= record["w"] / 2
                elif record["kind"] == "mask":
                    pixels = masks.decode(record["rle"], record["rle_height"], record["rle_width"])
                    truth[y][x] |= bool(pixels[int(v * len(pixels))][int(u * len(pixels[0]))])
    return truth


def test_the_ranking_is_the_same_with_and_without_maps(model):
    found = tagfill.evaluate(model, scenes(), split="test", localize="minmax")
    assert found.mean == tagfill.evaluate(model, scenes(), split="test").mean
    assert found.localized.placed.sum() == (scenes().labels("test").dense() == 1).sum()


def test_boxes_and_masks_are_joined_and_points_are_no_truth():
    corner = np.zeros((4, 4), bool)
    corner[3, 3] = True
    boxes = np.array([[0.25, 0.25, 0.5, 0.5], [0.875, 0.875, 0.25, 0.25], [0.1, 0.1, 0, 0]])
    marks = Marks(np.zeros(3, int), np.array([0, 0, 1]), boxes, (None, (masks.encode(corner), 4, 4), None))
    image, label, truth = paint_truth(marks, Geometry.whole(1), np.array([[1, 1]]), raster=4)
    assert (image.tolist(), label.tolist()) == ([0], [0])
    assert truth[0].astype(int).tolist() == [[1, 1, 0, 0], [1, 1, 0, 0], [0, 0, 0, 0], [0, 0, 0, 1]]


def test_truth_follows_the_view():
    left = np.zeros((2, 2), bool)
    left[:, 0] = True
    marks = Marks(np.zeros(1, int), np.zeros(1, int), np.array([[0.25, 0.5, 0.5, 1.0]]), ((masks.encode(left), 2, 2),))
    geometry = Geometry(np.array([[0, 0, 0.75, 1]], np.float32), np.array([True]), np.array([False]), np.array([True]))
    for given in (marks, Marks(marks.image, marks.label, marks.box, (None,))):
        assert paint_truth(given, geometry, np.array([[1]]), raster=3)[2][0].tolist() == [[False, True, True]] * 3


def test_a_split_without_extents_is_refused():
    data = dataset(row("cat", kind="point", x=0.5, y=0.5))
    with pytest.raises(TagfillError, match="against boxes or masks, but split 'train' of small has none"):
        locations_with_extent(data, "train")


def test_coupled_maps_need_attention(model):
    with pytest.raises(TagfillError, match="attention"):
        tagfill.evaluate(model, scenes(), split="test", localize="coupled")


def test_coupled_maps_are_those_of_the_class_token(tmp_path):
    create("test_vit", "tscam", scenes().classes, image_size=64, seed=3).save(tmp_path / "vit")
    data, classifier = halves(), Classifier.load(tmp_path / "vit")
    source = PixelSource(data, (64, 64), EVAL, seed=0)
    ((batch, prediction),) = predict(classifier, source, "train", np.arange(12), maps=True, attention=True)
    found = [LocalizationMeter(len(data.classes)) for _ in range(2)]
    product = replace(prediction, maps=prediction.maps * prediction.attention[:, None])
    for given, maps, into in ((prediction, "coupled", found[0]), (product, "minmax", found[1])):
        list(
            measure_localization(
                iter([(batch, given)]), locations_with_extent(data, "train"), into, maps=maps, raster=8
            )
        )
    values = [each.compute().average_precision for each in found]
    np.testing.assert_array_equal(*values)
    assert np.nansum(values[0]) > 0
    assert tagfill.evaluate(tmp_path / "vit", data, split="test", localize="coupled").localized.mean >= 0


def test_the_command_line_shows_both_scores(model):
    runner, folder = CliRunner(), str(scenes().folder)
    shown = runner.invoke(app, ["evaluate", str(model), folder, "--localize", "--maps", "sigmoid"])
    assert shown.exit_code == 0, shown.output
    assert "mAP-loc" in shown.output
    told = json.loads(runner.invoke(app, ["evaluate", str(model), folder, "--localize", "--json"]).stdout)
    assert told["mAP_loc"] == pytest.approx(np.mean(list(told["mAP_loc_at"].values())))
    assert {"class", "AP", "AP_loc", "known"} <= set(told["classes"][0])
