"""Scenes with one known label per image, and a run on them."""

import pytest

from tagfill import protocols, scenes
from tagfill.contract import Ranks
from tagfill.curation.crossfit import calibrate
from tagfill.curation.estimates import measure_labels
from tagfill.data.extract import features
from tagfill.training import train
from tagfill.training.evaluation import LoadedModel, gather_predictions


@pytest.fixture(scope="package")
def place(tmp_path_factory):
    return tmp_path_factory.mktemp("suggest")


@pytest.fixture(scope="package")
def part(place):
    full = scenes.make(place / "scenes", train=120, val=60, test=10, size=64)
    return protocols.single_positive(full, seed=1).save(place / "part")


@pytest.fixture(scope="package")
def cache(place, part):
    return features(part, backbone="resnet10t", pretrained=False, image_size=64, views="eval", out=place / "cache")


@pytest.fixture(scope="package")
def run(place, part, cache):
    return train(part, method="an", backbone="resnet10t", pretrained=False, features=cache, epochs=6, out=place / "run")


@pytest.fixture(scope="package")
def shares(run, part, cache):
    """Share of training images that show each class: known tags, and expected ones by a measured calibration."""
    model = LoadedModel.open(run, part, features=cache.folder)
    validation, train = (
        gather_predictions(model.predict(split), Ranks(), len(part.classes)) for split in ("val", "train")
    )
    calibration = calibrate(validation.scores, validation.labels)
    expected = measure_labels(calibration, train.scores, train.labels)(train.scores, train.labels).mean(0)
    return dict(zip(part.classes, expected.tolist(), strict=True))
