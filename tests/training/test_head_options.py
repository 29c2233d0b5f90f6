"""Options of the head on their way from flags and keywords to the trained model, and parts of a backbone at rest."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
import yaml
from typer.testing import CliRunner

import tagfill
from tagfill.cli.app import app
from tagfill.models import Classifier
from tagfill.training import Run

from .conftest import Material


def train(material: Material, out: Path, **settings: Any) -> Run:
    settings = {"epochs": 1, "select": "last", **material.settings, **settings}
    return tagfill.train(material.single, out=out, features=material.cache, **settings)


def scores(run: Run, material: Material, **options: float) -> list[float]:
    data = tagfill.Dataset.open(material.full)
    return tagfill.evaluate(run, data, features=material.cache, **options).average_precision.tolist()


def weight(run: Run) -> torch.Tensor:
    return Classifier.load(run.model_folder).head.fc.weight


def test_boost_is_a_keyword_of_training(material: Material, tmp_path: Path) -> None:
    plain, boosted = train(material, tmp_path / "plain"), train(material, tmp_path / "boosted", boost=5)

    assert boosted.recipe.head_options == {"boost": 5}
    assert Classifier.load(boosted.model_folder).head.options["boost"] == 5.0
    assert not torch.equal(weight(plain), weight(boosted))


def test_boost_in_evaluation_alone_leaves_training_as_it_is(material: Material, tmp_path: Path) -> None:
    plain = train(material, tmp_path / "plain")
    later = train(material, tmp_path / "later", boost=50.0, boost_train=False)

    # the one from pooled features, the other from their cells in half precision
    torch.testing.assert_close(weight(plain), weight(later), rtol=0, atol=1e-4)
    assert scores(later, material, boost=50.0) == scores(later, material) != scores(later, material, boost=1.0)
    assert scores(later, material, boost=1.0) == pytest.approx(scores(plain, material), abs=0.02)
    assert scores(plain, material, boost=50.0) == pytest.approx(scores(later, material), abs=0.02)


def test_classes_without_a_positive_are_not_boosted_in_training(material: Material, tmp_path: Path) -> None:
    data = tagfill.Dataset.open(material.single)
    rows = data.rows()
    kept = [at for at, name in enumerate(rows["label"].to_pylist()) if name != data.classes[3]]
    few = data.replace(annotations=rows.take(kept)).save(tmp_path / "few")

    run = tagfill.train(
        few, out=tmp_path / "run", features=material.cache, epochs=1, boost=5.0, select="last", **material.settings
    )

    expected = few.labels("train").positives > 0
    assert not expected[3]
    assert Classifier.load(run.model_folder).head.boosts.bool().tolist() == expected.tolist()


def test_flags_override_the_options_of_a_recipe(material: Material, tmp_path: Path) -> None:
    recipe = {
        **material.settings,
        "dataset": str(material.single),
        "method": "an",
        "features": str(material.cache),
        "head_options": {"boost": 3.0, "boost_eval": True},
        "stages": [{"input": "cache", "epochs": 1}],
    }
    (tmp_path / "recipe.yaml").write_text(yaml.safe_dump(recipe))
    flags = ["--boost", "4,0.5", "--no-boost-train", "--quiet", "--out", str(tmp_path / "run")]

    done = CliRunner().invoke(app, ["train", "--recipe", str(tmp_path / "recipe.yaml"), *flags])

    assert done.exit_code == 0, done.output
    expected = {"boost": 4.0, "boost_eval": True, "boost_train": False, "boost_from": 0.5}
    assert Run.open(tmp_path / "run").recipe.head_options == expected


@pytest.mark.parametrize(("settings", "said"), [({"bost": 5.0}, "bost"), ({"boost": 0.5}, "would not enlarge")])
def test_options_that_make_no_sense_are_refused(
    material: Material, tmp_path: Path, settings: dict[str, float], said: str
) -> None:
    with pytest.raises(tagfill.TagfillError, match=said):
        train(material, tmp_path / "run", **settings)


def test_stem_and_batch_norms_can_rest(material: Material, tmp_path: Path) -> None:
    stage = {"input": "images", "train": "all", "freeze": ["stem", "batch-norm"], "epochs": 1}
    run = train(material, tmp_path / "run", stages=[stage])

    trained = Classifier.load(run.model_folder).backbone
    begin = tagfill.models.create_backbone("test_efficientnet", pretrained=str(material.weights), image_size=128)
    assert trained is not None
    changed = {
        name
        for name, value in begin.model.state_dict().items()
        if not torch.equal(value, trained.model.state_dict()[name])
    }
    assert "conv_stem.weight" not in changed
    assert "conv_head.weight" in changed
    assert not any("running" in name or "bn" in name for name in changed)


def test_freezing_parts_of_a_backbone_that_does_not_train_is_refused(material: Material, tmp_path: Path) -> None:
    with pytest.raises(tagfill.TagfillError, match="trains no part of the backbone"):
        train(material, tmp_path / "run", stages=[{"input": "cache", "freeze": ["stem"]}])
