"""A small transformer end to end, from random weights, through the commands that a user types."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

import tagfill
from tagfill.cli.app import app
from tagfill.dataset import Dataset, from_records
from tagfill.errors import TagfillError

DEIT = ["--backbone", "deit_tiny_patch16_224", "--pretrained", "none", "--set", "image_size=64", "--set", "train=all"]
WHOLE = ["--set", "crop_scale=null", "--lr", "3e-4", "--epochs", "2", "--batch-size", "8", "--quiet"]


def run(*arguments: str) -> Any:
    """What a command prints as JSON."""
    done = CliRunner().invoke(app, [*arguments, "--json"])
    assert done.exit_code == 0, done.output
    return json.loads(done.stdout)


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Complete labels, and what a budget buys of them as tags and as points."""
    folder = tmp_path_factory.mktemp("deit")
    full = tagfill.scenes.make(folder / "full", train=24, val=6, test=8, size=64)
    for kind in ("I", "SP"):
        tagfill.protocols.budget(full, percent=50, kind=kind, seed=0).save(folder / kind)
    coarse(full).save(folder / "halves")
    return {name: folder / name for name in ("I", "SP", "halves")}


def coarse(full: Dataset) -> Dataset:
    """The left or the right half of the image in place of a mask, so that maps of 4×4 cells can be right."""
    none = {"rle": None, "rle_height": None, "rle_width": None}
    rows = [
        {**row, **none, "kind": "box", "x": 0.25 + 0.5 * (row["x"] > 0.5), "y": 0.5, "w": 0.5, "h": 1.0}
        if row["kind"] == "mask"
        else row
        for row in full.rows().to_pylist()
    ]
    return full.replace(annotations=from_records(rows), folder=None)


def trained(data: dict[str, Path], kind: str, out: Path, *flags: str) -> list[dict[str, Any]]:
    run("train", str(data[kind]), *DEIT, *WHOLE, "--out", str(out), *flags)
    return [json.loads(line) for line in (out / "metrics.jsonl").read_text().splitlines()]


def test_the_class_token_alone_learns_and_has_no_maps(data: dict[str, Path], tmp_path: Path) -> None:
    flags = ["--method", "ignore", "--head", "linear", "--set", "head_options.pool=token"]
    first, last = trained(data, "I", tmp_path / "run", *flags)

    assert last["loss"]["ignore"] < first["loss"]["ignore"]
    assert 0 < run("evaluate", str(tmp_path / "run"), str(data["halves"]))["mAP"] < 100
    refused = CliRunner().invoke(app, ["evaluate", str(tmp_path / "run"), str(data["halves"]), "--localize"])
    assert isinstance(refused.exception, TagfillError)
    assert "linear head has no class maps" in str(refused.exception)


@pytest.mark.parametrize(("kind", "weight"), [("I", "0"), ("SP", "5")])
def test_maps_and_coupled_maps_of_tags_and_of_points(
    data: dict[str, Path], tmp_path: Path, kind: str, weight: str
) -> None:
    flags = ["--method", "patchml", "--head", "tscam", "--set", f"options.patchml.w_patch={weight}"]
    first, last = trained(data, kind, tmp_path / "run", *flags)

    assert set(last["loss"]) == ({"image", "patch"} if kind == "SP" else {"image"})
    assert sum(last["loss"].values()) < sum(first["loss"].values())
    scores = {
        maps: run("evaluate", str(tmp_path / "run"), str(data["halves"]), "--localize", "--maps", maps)
        for maps in ("minmax", "coupled")
    }
    assert scores["minmax"]["mAP"] == scores["coupled"]["mAP"] > 0
    for found in scores.values():
        assert 0 < found["mAP_loc"] <= found["mAP"]
