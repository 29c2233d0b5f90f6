"""`tagfill train --dry-run`: what would be trained, and where the settings come from."""

from __future__ import annotations

import json

from typer.testing import CliRunner

from tagfill.cli.app import app
from tagfill.experiments import recipes

ROW = ["train", "--recipe", "spml-voc12", "--row", "ll-r+boost", "--dry-run"]


def shown(*words: str) -> dict:
    result = CliRunner().invoke(app, [*words, "--json"], catch_exceptions=False)
    assert result.exit_code == 0
    return json.loads(result.stdout)


def test_settings_of_a_row_with_their_sources_need_no_dataset():
    found = shown(*ROW)
    row = found["rows"]["ll-r+boost"]
    assert row["dataset"] == "voc12-sp"
    assert (row["settings"]["head_options.boost"], row["sources"]["head_options.boost"]) == (5.0, "§6")
    assert (row["settings"]["options.ll-r.rate"], row["sources"]["options.ll-r.rate"]) == (0.5, "§6.1")
    assert row["sources"]["optimizer.lr"] == "ours"
    assert any("`optimizer.lr`" in text for text in found["departures"])


def test_what_the_command_changes_is_marked():
    row = shown(*ROW, "--set", "optimizer.lr=1e-4", "--batch-size", "16")["rows"]["ll-r+boost"]
    assert (row["settings"]["optimizer.lr"], row["sources"]["optimizer.lr"]) == (1e-4, "this command")
    assert row["sources"]["batch_size"] == "ours"  # the same value


def test_what_the_paper_does_not_mention_is_said_to_be_so():
    lines = [[cell.strip() for cell in line.split("│")] for line in CliRunner().invoke(app, ROW).stdout.splitlines()]
    shown = {cells[1]: cells[2:4] for cells in lines if len(cells) == 5}
    assert shown["dataset"][0] == "voc12-sp"
    assert shown["clip_norm"] == ["null", "not mentioned"]
    assert shown["crop_scale"] == ["null", "§6.1"]  # whole images, although the default is a crop
    assert shown["flip"] == ["true", "§6.1"]


def test_without_a_row_all_are_shown_with_what_differs():
    published = recipes.open_recipe("mlspl-coco14").published
    assert published is not None
    assert shown("train", "--recipe", "mlspl-coco14", "--dry-run")["rows"].keys() == published.rows.keys()
    text = CliRunner().invoke(app, ["train", "--recipe", "mlspl-coco14", "--dry-run"]).stdout
    assert text.count("resnet50.tv_in1k") == 1
    assert all(f"row {row}" in text for row in published.rows)
    assert "Differences from the paper" in text


def test_settings_without_a_recipe(tmp_path):
    row = shown("train", str(tmp_path), "--method", "role", "--dry-run")["rows"][""]
    assert (row["settings"]["options.role.lr_multiplier"], row["sources"]) == (10.0, {})


def test_a_run_to_resume_has_its_settings_in_a_file(tmp_path):
    result = CliRunner().invoke(app, ["train", "--resume", str(tmp_path), "--dry-run"])
    assert "leave out --dry-run" in str(result.exception)


def test_compilation_is_shown_only_if_it_is_asked_for(tmp_path):
    words = ["train", str(tmp_path), "--method", "an", "--dry-run"]
    assert shown(*words, "--compile")["rows"][""]["settings"]["compile"] == "inductor"
    assert "compile" not in shown(*words)["rows"][""]["settings"]
