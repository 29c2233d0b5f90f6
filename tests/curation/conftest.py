"""Scenes with one known label per image, and a run on them."""

import pytest

from tagfill import protocols, scenes
from tagfill.contract import Ranks
from tagfill.curation.crossfit import calibrate
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
    """Share of images that show each class, as the run predicts it on the validation split."""
    validation = gather_predictions(
        LoadedModel.open(run, part, features=cache.folder).predict("val"), Ranks(), len(part.classes)
    )
    expected = calibrate(validation.scores, validation.labels)(validation.scores).mean(0)
    return dict(zip(part.classes, expected.tolist(), strict=True))
