"""Every row of every published recipe, against settings and numbers typed independently from the papers."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from experiments.protocols_of_papers import EM, LARGE, POSITIVES, PROTOCOLS, Q2L, SPLITS, Protocol, expected
from tagfill.experiments import recipes
from tagfill.training import Recipe, make_recipe

PUBLISHED = [name for name in recipes.names() if not name.startswith("cpu/")]


def rows(name: str) -> dict[str, Recipe]:
    """All rows of a recipe, resolved."""
    file = recipes.open_recipe(name)
    assert file.published is not None
    return {row: make_recipe(file.settings(row)) for row in file.published.rows}


def schedules(protocol: Protocol, stages: int) -> tuple[object, ...]:
    return protocol.schedule * stages if len(protocol.schedule) == 1 else protocol.schedule


def schedule_settings(schedule: object) -> object:
    """A schedule with the settings that matter to it."""
    name = schedule.name  # type: ignore[attr-defined]
    if name == "step":
        return name, schedule.milestones, schedule.factor  # type: ignore[attr-defined]
    return (name, schedule.rise) if name == "one-cycle" else name  # type: ignore[attr-defined]


def test_every_published_recipe_has_its_protocol_here():
    assert set(PROTOCOLS) == set(PUBLISHED)


@pytest.mark.parametrize("name", PUBLISHED)
def test_rows_are_trained_as_published(name):
    for row, recipe in rows(name).items():
        protocol, stages = expected(name, row), recipe.stages
        found = Protocol(
            net=recipe.backbone,
            px=recipe.image_size[0] if isinstance(recipe.image_size, tuple) else recipe.image_size,  # type: ignore[arg-type]
            optimizer=stages[-1].optimizer.name,
            lr=tuple(stage.optimizer.lr for stage in stages),
            batch=recipe.batch_size,
            epochs=tuple(stage.epochs for stage in stages),
            scored=protocol.scored,
            data=protocol.data,
            views=(stages[-1].crop_scale, stages[-1].flip, stages[-1].vertical_flip, stages[-1].strong),
            decay=stages[-1].optimizer.weight_decay,
            head_rate=stages[-1].optimizer.head_multiplier,
            schedule=tuple(schedule_settings(stage.schedule) for stage in stages),
            select=recipe.select,
            average=stages[-1].average,
            pretrained=recipe.pretrained,
        )
        if row == "role-linear":  # its features are cached once, so its view is that of the cache
            found = replace(found, views=protocol.views)
        lr = protocol.lr * len(stages) if len(protocol.lr) == 1 else protocol.lr
        assert found == replace(protocol, lr=lr, schedule=schedules(protocol, len(stages))), row


@pytest.mark.parametrize("name", PUBLISHED)
def test_tables_are_scored_and_simulated_as_published(name):
    published, protocol = recipes.open_recipe(name).published, PROTOCOLS[name]
    assert published is not None
    metric = published.metric
    assert (metric.split, metric.average_precision, metric.empty) == protocol.scored
    commands = " \n".join([*published.data, ""])
    assert [part for part in protocol.data if part not in commands] == []
    assert all(f"--split {metric.split}" in command for command in published.evaluate)
    words = {"average_precision": "--definition", "empty": "--empty"}
    for setting, flag in words.items():
        value, default = getattr(metric, setting), recipes.Metric.model_fields[setting].default
        assert all((f"{flag} {value}" in command) == (value != default) for command in published.evaluate), setting


@pytest.mark.parametrize("dataset", SPLITS)
def test_single_positive_methods_have_the_papers_options(dataset):
    found = rows(f"spml-{dataset}")
    assert {recipe.expected_positives for recipe in found.values()} == {POSITIVES[dataset]}
    for method, rate in LARGE.items():
        for row, boost in ((method, None), (f"{method}+boost", 5.0)):
            assert found[row].options == {method: {"rate": rate}}
            assert found[row].head_options.get("boost") == boost
    _, _, alpha, warmup, beta = EM[dataset]
    assert found["em"].options == {"em": {"alpha": alpha, "eps": 1e-5}}
    assert found["em-apl"].options == {"em-apl": {"alpha": alpha, "warmup": warmup, "beta": beta, "eps": 1e-5}}
    assert found["an-ls"].options["an-ls"] == {"smoothing": 0.1, "eps": 1e-5}
    linear, everything = found["role-linear-init"].stages
    assert (linear.input, linear.train, everything.train) == ("cache", "head", "all")
    assert (everything.start.backbone, everything.start.head, everything.start.memory) == ("pretrained", "best", "best")


@pytest.mark.parametrize("name", [name for name in PUBLISHED if name.startswith("scl-")])
def test_consistency_starts_after_the_head_is_trained(name):
    found = rows(name)
    positives = POSITIVES | {"cub": 31.5, "imagenet": 1.22}
    assert found["en+scl"].expected_positives == positives[name.split("-")[-1]]
    for row, recipe in found.items():
        if "scratch" not in name:
            assert [stage.train for stage in recipe.stages] == ["head", "all"], row
            assert recipe.stages[1].start.head == "last", row
    assert {"scl", "cl"} & found["en+scl"].options.keys() == {"scl"}


def test_heatmaps_of_ten_classes_on_imagenet():
    recipe = rows("scl-imagenet")["en+scl"]
    assert recipe.options["scl"]["classes_per_image"] == 10
    assert recipe.stages[0].options == {"en": {"warmup": True}}
    assert recipe.stages[1].start.memory == "last"


@pytest.mark.parametrize("dataset", ["voc12", "coco14"])
def test_boost_ablation_has_all_seven_rows(dataset):
    found = {
        row: (recipe.method, recipe.head_options.get("boost", 1.0) > 1, recipe.head_options)
        for row, recipe in rows(f"boostlu-ablation-{dataset}").items()
    }
    uses = {
        (method, boosted and options.get("boost_train", True), boosted and options.get("boost_eval", True))
        for method, boosted, options in found.values()
    }
    an = {("an", False, False), ("an", False, True), ("an", True, True)}
    assert uses == an | {("ll-r", train, infer) for train in (False, True) for infer in (False, True)}


def test_large_losses_on_open_images_grow_by_a_two_hundredth_of_a_percent():
    for row, recipe in rows("boostlu-openimages-v3").items():
        assert recipe.options == {recipe.method: {"rate": 0.005}}
        assert (recipe.head_options.get("boost") == 5.0) == row.endswith("boost")


@pytest.mark.parametrize("name", [name for name in PUBLISHED if name.startswith("patchml-")])
def test_budgets_and_kinds_are_those_of_the_row(name):
    published = recipes.open_recipe(name).published
    assert published is not None
    outs = {command.split()[-1]: command for command in published.data[1:]}
    for row, recipe in rows(name).items():
        kind, budget = row.split("+")[0].split("-")[:2]
        command = outs[recipe.dataset]
        assert f"percent={budget} " in command, row
        assert f"kind={kind.upper()} " in command, row
        assert recipe.stages[0].stopping.patience, row


def test_patchcluster_thresholds():
    for row, recipe in rows("patchml-coco14-patchcluster").items():
        options = recipe.options["patchcluster"]
        assert (options["features"], options["d_positive"]) == (("image", 0.1) if row[0] == "i" else ("patch", 0.35))


def test_query2label_holds_the_code_and_the_paper():
    for row, recipe in rows("query2label-coco14").items():
        paper = row.endswith("-paper")
        loss, head = recipe.options["asl"], recipe.head_options
        assert (loss["gamma_positive"], loss["gamma_negative"], loss["margin"]) == (0.0, 1.0 if paper else 2.0, 0.0)
        assert (loss["reduction"], loss["scale"], loss["eps"]) == ("mean", 1000.0, 1e-5)
        assert (head["width"], head["ffn"], head["heads"]) == (Q2L[row.removesuffix("-paper")][3], 8192, 4)
        assert (head["encoder_layers"], head["decoder_layers"], head["dropout"]) == (1, 2, 0.1)
        assert head.get("keep_first_self_attention", False) == head.get("keep_other_self_attention", False) == paper
        resnet = recipe.backbone.startswith("resnet")
        assert recipe.stages[0].freeze == (("stem", "batch-norm") if resnet else ())
        assert recipe.stages[0].stopping.patience == 8
        assert recipe.precision == "float16"


@pytest.mark.parametrize(
    ("name", "gammas", "threshold"),
    [("csl-coco14-fpc", [0, 3, 4], 0.5), ("csl-coco14-rps", [0, 1, 4], 0.5), ("csl-openimages-v6", [0, 1, 2], 0.05)],
)
def test_csl_has_the_settings_of_its_commands(name, gammas, threshold):
    recipe = rows(name)["csl"]
    assert recipe.options == {"csl": {"gammas": gammas, "likely": 5, "threshold": threshold}}
    helper, main = recipe.stages
    assert (helper.method, helper.options["p-asl"]["mode"]) == ("p-asl", "ignore")  # type: ignore[index]
    assert (main.start.backbone, main.start.head, main.start.memory) == ("pretrained", "new", "last")
    assert not main.optimizer.decay_vectors


def test_soft_exposure_methods_have_the_papers_reductions_and_weights():
    for name in ("se-coco17", "se-coco-panoptic", "se-openimages-v5", "se-lvis", "se-cifar100"):
        for row, recipe in rows(name).items():
            kind = row.split("-")[0]
            if kind in ("ne", "full"):
                assert (recipe.method, recipe.options["ignore"]["reduction"]) == ("ignore", "batchmean"), row
            if kind == "fe":
                assert recipe.options["fe"]["positive_weight"] == 5.0, row


NUMBERS = {  # a few of each table
    ("spml-voc12", "ll-r+boost"): 89.29,
    ("spml-coco14", "ll-r+boost"): 72.89,
    ("spml-nus", "ll-r+boost"): 49.59,
    ("spml-cub", "em-apl"): 21.84,
    ("spml-nus", "role"): 41.63,
    ("spml-coco14", "role-linear-init"): 69.12,
    ("scl-voc12", "en+scl"): 88.8,
    ("scl-coco14", "en+scl"): 73.2,
    ("scl-nus", "en+scl"): 50.3,
    ("scl-cub", "an-ls"): 16.0,
    ("scl-scratch-voc12", "en+scl"): 51.4,
    ("scl-scratch-coco14", "en+cl"): 55.0,
    ("scl-ablation-coco14", "ep+scl"): 64.6,
    ("scl-imagenet", "en+scl"): 82.3,
    ("mlspl-coco14", "role-linear-init"): 66.9,
    ("se-coco-panoptic", "se"): 64.91,
    ("se-openimages-v5", "se"): 80.67,
    ("boostlu-openimages-v3", "ll-cp+boost"): 84.04,
    ("boostlu-ablation-coco14", "ll-r+boost-train"): 68.45,
    ("patchml-coco14-kinds", "sp-0.25"): 43.19,
    ("patchml-coco14-instances", "ab-4"): 64.17,
    ("patchml-coco14-unlabeled", "sp-4+csl-p"): 66.63,
    ("patchml-coco14-patchcluster", "sp-0.25"): 45.02,
    ("patchml-coco14-networks", "i-1-tscam-384"): 58.39,
    ("patchml-objects365", "sp-0.5"): 15.63,
    ("query2label-coco14", "cvt-w24-22k-384"): 91.3,
    ("csl-coco14-fpc", "csl"): 83.44,
    ("csl-coco14-rps", "ignore"): 84.90,
    ("csl-openimages-v6", "csl-tresnet-l"): 87.34,
}


def test_numbers_are_those_of_the_papers():
    for (name, row), number in NUMBERS.items():
        published = recipes.open_recipe(name).published
        assert published is not None
        reported = published.rows[row].reported
        first = next(iter(reported.values())) if isinstance(reported, dict) else reported
        assert first is not None
        assert math.isclose(first, number), (name, row)
    silent = {"se-coco17", "se-lvis", "se-cifar100"}  # the paper has a figure, or a supplement that we do not have
    assert {name for name, _ in NUMBERS} == set(PUBLISHED) - silent - {"boostlu-ablation-voc12"}
