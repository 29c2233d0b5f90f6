"""Resolved settings: every default filled in, nothing that has no effect."""

from __future__ import annotations

from tagfill.training import Recipe
from tagfill.training.recipe import Schedule, Stage
from tagfill.training.resolved import PerStage, resolved_settings


def test_defaults_of_methods_and_heads_are_filled_in():
    found = resolved_settings(Recipe(dataset="photos", method="patchml+fixmatch", head_options={"boost": 5.0}))
    assert found["options.fixmatch.w_supervised"] == 0.0  # follows from the sum, whose other part learns from labels
    assert found["options.patchml.image_gammas"] == [0.0, 1.0, 4.0]
    assert (found["head_options.boost_from"], found["optimizer.lr"]) == (0.0, 1e-3)


def test_settings_without_effect_are_left_out():
    found = resolved_settings(Recipe(dataset="photos", method="an", features="cache", stages=[Stage(input="cache")]))
    absent = {
        "seed",
        "dataset",
        "optimizer.momentum",
        "schedule.rise",
        "flip",
        "randaugment",
        "head_options.boost_from",
    }
    assert not absent & found.keys()
    assert "expected_positives" not in found
    assert "expected_positives" in resolved_settings(Recipe(dataset="photos", method="role"))
    rising = resolved_settings(Recipe(dataset="a", method="an", stages=[Stage(schedule=Schedule(name="one-cycle"))]))
    assert rising["schedule.rise"] == 0.2


def test_stages_that_differ_keep_their_order():
    stages = [Stage(name="head", epochs=5), Stage(name="all", method="csl", options={"csl": {"likely": 3}})]
    found = resolved_settings(Recipe(dataset="photos", method="p-asl", stages=stages))
    assert found["method"] == PerStage(["p-asl", "csl"])
    assert (found["epochs"], str(found["epochs"])) == (PerStage([5, 10]), "5, then 10")
    assert (found["options.csl.likely"], found["options.p-asl.mode"]) == (3, "ignore")
