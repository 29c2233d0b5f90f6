"""Every row of every published recipe, against settings and numbers typed independently from the papers."""

from __future__ import annotations

import pytest

from experiments.papers import Table, boostlu, csl, patchml, query2label_and_mlspl, scl, soft_exposure
from tagfill.errors import TagfillError
from tagfill.experiments import recipes
from tagfill.training import Recipe, make_recipe
from tagfill.training.resolved import resolved_settings

PUBLISHED = [name for name in recipes.names() if not name.startswith("cpu/")]
PAPERS = (boostlu, csl, patchml, query2label_and_mlspl, scl, soft_exposure)
TABLES: dict[str, Table] = {name: table for paper in PAPERS for name, table in paper.TABLES.items()}


def rows(name: str) -> dict[str, Recipe]:
    """All rows of a recipe, resolved."""
    file = recipes.open_recipe(name)
    assert file.published is not None
    return {row: make_recipe(file.settings(row)) for row in file.published.rows}


def test_every_published_recipe_is_typed_from_its_paper():
    assert set(TABLES) == set(PUBLISHED)
    assert sum(len(paper.TABLES) for paper in PAPERS) == len(TABLES)


@pytest.mark.parametrize("name", TABLES)
def test_settings_are_those_of_the_paper_with_the_same_source(name):
    file, table = recipes.open_recipe(name), TABLES[name]
    differences = " ".join(file.departures())
    for row in table.rows:
        resolved = resolved_settings(make_recipe(file.settings(row)))
        statements, left_open = table.statements(row), table.open_settings(row)
        for path, (source, value) in statements.items():
            given = file.source(row, path)
            if given == recipes.OURS:  # a departure
                assert f"`{path}`" in differences, (row, path)
                continue
            assert resolved.get(path, recipes.UNUSED.get(path, "absent")) == value, (row, path)
            assert given == source, (row, path)
        for path in file.used_settings(row):
            assert path in statements or path in left_open, f"{row}: {path} is neither typed nor listed as open"
            if path in left_open:
                given = file.source(row, path)
                assert given is not None, (row, path)
                assert not given.startswith(("§", "Table")), (row, path)
                assert given != recipes.OURS or f"`{path}`" in differences, (row, path)


@pytest.mark.parametrize("name", TABLES)
def test_tables_are_those_of_the_paper(name):
    published, table = recipes.open_recipe(name).published, TABLES[name]
    assert published is not None
    assert {row: content.reported for row, content in published.rows.items()} == {
        row: content.reported for row, content in table.rows.items()
    }
    assert published.seeds == table.seeds
    for sources in (published.sources, *(row.sources for row in published.rows.values())):
        paths = [path for paths in sources.values() for path in paths]
        assert len(paths) == len(set(paths))


@pytest.mark.parametrize("name", PUBLISHED)
def test_tables_are_scored_and_simulated_as_published(name):
    published, table = recipes.open_recipe(name).published, TABLES[name]
    assert published is not None
    metric = published.metric
    assert (metric.split, metric.average_precision, metric.empty) == table.scored
    commands = " \n".join([*published.data, ""])
    assert [part for part in table.data if part not in commands] == []
    assert f"--split {metric.split}" in published.evaluate[0]
    both = name == "se-coco-panoptic"  # the only table with validation columns too
    splits = {metric.split, "val"} if both else {metric.split}
    assert {command.split("--split ")[1].split()[0] for command in published.evaluate} == splits
    words = {"average_precision": "--definition", "empty": "--empty"}
    for setting, flag in words.items():
        value, default = getattr(metric, setting), recipes.Metric.model_fields[setting].default
        assert all((f"{flag} {value}" in command) == (value != default) for command in published.evaluate), setting


def test_the_first_row_on_imagenet_is_not_trained():
    file = recipes.open_recipe("scl-imagenet")
    assert file.published is not None
    numbers = [76.1, 83.0, 66.3, 70.6, 53.0, 36.1, 22.5]  # as printed, from left to right
    reported = file.published.untrained["resnet50"].reported
    order = ("top-1", "top-1 ReaL", "ReaL mAP", "k=1", "k=2", "k=3", "k≥4")
    assert isinstance(reported, dict)
    assert [reported[column] for column in order] == numbers
    with pytest.raises(TagfillError, match="'resnet50' of scl-imagenet is not trained; run: tagfill convert"):
        file.settings("resnet50")


def test_heatmaps_of_ten_classes_on_imagenet():
    recipe = rows("scl-imagenet")["en+scl"]
    assert recipe.options["scl"]["classes_per_image"] == 10
    assert recipe.stages[0].options == {"en": {"warmup": True}}
    assert recipe.stages[1].start.memory == "last"


@pytest.mark.parametrize("name", [name for name in PUBLISHED if name.startswith("patchml-")])
def test_budgets_and_kinds_are_those_of_the_row(name):
    published = recipes.open_recipe(name).published
    assert published is not None
    outs = {command.split()[-1].replace("$SEED", "0"): command for command in published.data[1:]}
    for row, recipe in rows(name).items():
        kind, budget = row.split("+")[0].split("-")[:2]
        command = outs[recipe.dataset]
        assert f"percent={budget} " in command, row
        assert f"kind={kind.upper()} " in command, row
        assert recipe.stages[0].stopping.patience, row


def test_csl_p_adds_its_term_and_leaves_that_of_the_point():
    """The mean over the cells that count would divide the marked one by their number; its weight restores it."""
    selective = {row: recipe for row, recipe in rows("patchml-coco14-unlabeled").items() if row.endswith("+csl-p")}
    assert len(selective) == 5
    for row, recipe in selective.items():
        options = recipe.options["patchml"]
        patches = (recipe.image_size // 16) ** 2  # of DeiT-B/16
        assert options["patch_weights"] == [patches - options["k_patch"], 1.0, 1.0], row


def test_fixmatch_draws_the_labeled_images_of_the_row_without_it():
    found = rows("patchml-coco14-unlabeled")
    for row, recipe in found.items():
        stage, plain = recipe.stages[0], found[row.split("+")[0]]
        if row.endswith("+fixmatch"):
            assert recipe.batch_size * stage.labeled_share == plain.batch_size * plain.stages[0].labeled_share, row
            assert stage.epoch_over == "labeled", row


@pytest.mark.parametrize("name", [name for name in TABLES if TABLES[name].drawn_again])
def test_labels_are_drawn_again_for_each_seed(name):
    file = recipes.open_recipe(name)
    assert file.published is not None
    seeds = range(file.published.seeds)
    made = {command.split()[-1] for command in file.published.data if f"--seed {recipes.SEED} " in f"{command} "}
    folders = {folder.replace(recipes.SEED, str(seed)) for folder in made for seed in seeds}
    for row in file.published.rows:
        drawn = {str(file.settings(row, seed=seed)["dataset"]) for seed in seeds}
        assert row == "full" or (len(drawn) == len(seeds) and drawn <= folders), row
