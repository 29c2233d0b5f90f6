"""Recipes by name and by path, their rows, and what the command line says about them."""

from __future__ import annotations

import json
import shlex
import tomllib
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner

from tagfill.cli.app import app
from tagfill.errors import TagfillError
from tagfill.experiments import recipes
from tagfill.experiments.recipes import FOLDER

ROOT = Path(__file__).parents[2]
OWN = """
published:
  about: Two ways
  paper: null
  table: null
  hardware: 2 cores
  data: [tagfill import scenes --out scenes]
  evaluate: [tagfill evaluate RUN scenes]
  rows:
    plain: {set: {method: an}}
    smooth: {set: {method: an-ls, options.an-ls.smoothing: 0.2, optimizer.lr: 1.0e-2}}
dataset: scenes
method: an
stages:
- {name: first}
- {name: second, start: {head: last}}
"""


def test_row_changes_what_it_lists_and_a_setting_of_stages_in_all_of_them(tmp_path):
    path = tmp_path / "own.yaml"
    path.write_text(OWN)
    settings = recipes.settings(path, "smooth")
    assert (settings["method"], settings["options"]) == ("an-ls", {"an-ls": {"smoothing": 0.2}})
    assert [stage["optimizer"]["lr"] for stage in settings["stages"]] == [0.01, 0.01]
    assert "optimizer" not in recipes.settings(path, "plain")["stages"][0]


def test_one_of_several_rows_has_to_be_chosen(tmp_path):
    path = tmp_path / "own.yaml"
    path.write_text(OWN)
    with pytest.raises(TagfillError, match=r"choose one by --row: plain, smooth\."):
        recipes.settings(path)
    with pytest.raises(TagfillError, match="did you mean 'smooth'"):
        recipes.settings(path, "smoth")


def test_plain_recipe_has_no_rows(tmp_path):
    path = tmp_path / "plain.yaml"
    path.write_text("dataset: scenes\nmethod: an\n")
    assert recipes.settings(path)["batch_size"] == 16
    with pytest.raises(TagfillError, match="has no rows"):
        recipes.settings(path, "an")


def test_a_misspelled_name_suggests_the_nearest():
    with pytest.raises(TagfillError, match="did you mean 'spml-voc12'"):
        recipes.open_recipe("spml-voc2012")


def test_broken_block_is_named(tmp_path):
    path = tmp_path / "own.yaml"
    path.write_text(OWN.replace("hardware: 2 cores", "hardwear: 2 cores"))
    with pytest.raises(TagfillError, match=r"own\.yaml, published\.hardware"):
        recipes.open_recipe(path)


def test_files_are_installed_with_the_package():
    data = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["setuptools"]["package-data"]
    shipped = {path for pattern in data["tagfill.experiments.recipes"] for path in FOLDER.glob(pattern)}
    assert shipped == set(FOLDER.rglob("*.yaml"))


def test_list_names_every_recipe_with_the_number_of_its_paper():
    rows = json.loads(CliRunner().invoke(app, ["list", "recipes", "--json"]).stdout)
    assert [row["name"] for row in rows] == recipes.names()
    voc = next(row for row in rows if row["name"] == "spml-voc12")
    assert voc["rows"]["ll-r+boost"]["reported"] == 89.29
    assert (voc["best"], voc["table"], voc["hardware"]) == ("full: 89.42", "Table 2", "1 GPU with 12 GB")
    assert "CVPR 2023" in voc["paper"]
    assert all(row["hardware"] for row in rows)


def test_one_recipe_is_listed_by_rows_and_commands():
    shown = CliRunner().invoke(app, ["list", "recipes", "mlspl-coco14"]).stdout
    assert "role-linear-init" in shown
    assert "66.9" in shown
    assert "tagfill train --recipe mlspl-coco14 --row role-linear-init --out RUN" in shown


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        (["list", "recipe"], "did you mean 'recipes'"),
        (["list", "recipes", "spml-voc"], "did you mean 'spml-voc12'"),
        (["list", "methods", "role"], "A name can be given for recipes only"),
        (["train", "--recipe", "spml-voc12"], "choose one by --row"),
        (["train", "--row", "an"], "--row needs a --recipe"),
    ],
)
def test_command_line_mistakes_are_explained(words, problem):
    result = CliRunner().invoke(app, words)
    assert problem in str(result.exception)


@pytest.mark.parametrize("name", recipes.names())
def test_grid_holds_settings_that_exist(name):
    from tagfill.methods import create
    from tagfill.training import make_recipe, override

    file = recipes.open_recipe(name)
    assert file.published is not None
    for path, values in file.published.grid.items():
        parts = path.split(".")
        rows = [row for row in file.published.rows if parts[0] != "options" or parts[1] in methods_of(file, row)]
        assert rows, path
        for value in values:
            settings = file.settings(rows[0])
            override(settings, path, value)
            recipe = make_recipe(settings)
            create(recipe.method, recipe.options)


def methods_of(file: recipes.RecipeFile, row: str) -> list[str]:
    return str(file.settings(row)["method"]).split("+")


def test_page_shows_every_recipe_with_its_rows_and_its_best_number():
    page = (ROOT / "docs" / "reproducing.md").read_text(encoding="utf-8")
    for name in recipes.names():
        published = recipes.open_recipe(name).published
        assert published is not None
        line = next(line for line in page.splitlines() if line.startswith(f"| `{name}` |"))
        if published.paper is not None:
            best = published.best()
            number = f"`{best[0]}` {best[1]:g}" if best else "–"
            assert line.endswith(f"| {len(published.rows)} | {number} | {published.hardware} |"), line


@pytest.mark.parametrize("name", recipes.names())
def test_commands_exist_with_their_options(name):
    published = recipes.open_recipe(name).published
    assert published is not None
    group = typer.main.get_command(app)
    for command in [*published.data, *published.evaluate]:
        program, verb, *words = shlex.split(command.replace(recipes.SEED, "0"))
        assert program == "tagfill"
        group.commands[verb].make_context(verb, words)  # type: ignore[attr-defined]


def test_a_recipe_is_found_by_its_old_name():
    with pytest.warns(DeprecationWarning, match="was renamed to patchml-coco14-unlabeled"):
        file = recipes.open_recipe("patchml-coco14-unlabelled")
    assert file.name == "patchml-coco14-unlabeled"
