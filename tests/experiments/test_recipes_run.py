"""Every recipe from the released files to a training step: real readers, real protocols, the real loop.

The data are miniatures in the layout of each release, imported by the commands of the recipe. The network of the paper
is built at its full size on the meta device; the training step uses a small one.
"""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file
from typer.testing import CliRunner

from experiments.miniatures import RELEASES, sources
from tagfill.cli.app import app
from tagfill.dataset import Dataset
from tagfill.experiments import recipes
from tagfill.models import create, create_backbone
from tagfill.training import Recipe, make_recipe, start

NAMES = recipes.names()
SIZE = 64
FULL_CLASSES = {
    "voc12": 20, "coco14": 80, "coco17": 80, "nus": 81, "cub": 312, "imagenet": 1000, "panoptic": 163, "cifar100": 120,
    "lvis": 1203, "objects365": 365, "v3": 5000, "v5": 497, "v6": 9600,
}  # fmt: skip
SMALLER = [  # numbers of the releases, for a dozen images
    (r"held_out=2000", "held_out=3"),
    (r"percent=[\d.]+", "percent=25"),
    (r"--backbone \S+ --pretrained \S+ --image-size \d+", ""),
    (r"^(tagfill import scenes)", r"\1 --option train=12 --option val=6 --option test=6 --option size=64"),
]


opened = cache(recipes.open_recipe)


def published(name: str) -> recipes.Published:
    found = opened(name).published
    assert found is not None
    return found


class Workshop:
    """Folders in which the commands of recipes were run, one per list of commands."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._made: set[tuple[str, str]] = set()
        self.weights: dict[str, Path] = {}
        for backbone in ("test_resnet", "test_vit"):
            self.weights[backbone] = root / f"{backbone}.safetensors"
            state = create_backbone(backbone, image_size=SIZE, seed=5).model.state_dict()
            save_file({key: value.contiguous() for key, value in state.items()}, self.weights[backbone])

    def make(self, name: str, outs: Sequence[str], monkeypatch: pytest.MonkeyPatch) -> Path:
        """Run the commands of a recipe that these datasets and caches need."""
        commands = [command.replace(recipes.SEED, "0") for command in published(name).data]
        first = sources(commands)
        folder = self._root / (next(first, "scenes") + "-" + re.sub(r"\W", "", commands[0]))
        folder.mkdir(exist_ok=True)
        for source in sources(commands):
            if not (folder / source).exists():
                RELEASES[source](folder)
        monkeypatch.chdir(folder)
        for command in needed_for(commands, outs):
            if (str(folder), command) not in self._made:
                self._run(command)
                self._made.add((str(folder), command))
        return folder

    def _run(self, command: str) -> None:
        for pattern, smaller in SMALLER:
            command = re.sub(pattern, smaller, command)
        if command.startswith("tagfill features"):
            command += f" --backbone test_resnet --pretrained {self.weights['test_resnet']} --image-size {SIZE} --quiet"
        result = CliRunner().invoke(app, shlex.split(command)[1:], catch_exceptions=False)
        assert result.exit_code == 0, f"{command}: {result.output}"


def needed_for(commands: Sequence[str], outs: Sequence[str]) -> list[str]:
    """The commands that make these folders and everything they depend on, in order."""
    wanted, kept = set(outs), []
    for command in reversed(commands):
        words = command.split()
        if words[words.index("--out") + 1] in wanted:
            kept.append(command)
            wanted |= set(words)
    return kept[::-1]


@pytest.fixture(scope="module")
def workshop(tmp_path_factory: pytest.TempPathFactory) -> Workshop:
    return Workshop(tmp_path_factory.mktemp("workshop"))


def shrink(settings: dict[str, Any], workshop: Workshop) -> Recipe:
    """The settings of a row for a small network and one epoch per stage, on the CPU."""
    content = json.loads(json.dumps(settings))
    vit = content["head"] == "tscam" or content.get("head_options", {}).get("pool") == "token"
    backbone = "test_vit" if vit else "test_resnet"
    pretrained = content["pretrained"] and str(workshop.weights[backbone])
    content |= {"backbone": backbone, "pretrained": pretrained, "image_size": SIZE, "batch_size": 6}
    content["precision"] = "float32"
    if content["head"] == "query":
        content["head_options"] |= {"width": 16, "ffn": 32}
    soft = content["method"] == "em-apl"  # makes its first soft negatives after the warm-up
    if soft:
        content.setdefault("options", {}).setdefault("em-apl", {})["warmup"] = 1
    for stage in content["stages"]:
        stage["epochs"] = 2 if soft else 1
    return make_recipe(content)


def shape_of(settings: dict[str, Any]) -> str:
    """What distinguishes a row from others if the network is small and numbers are ignored."""
    options, head_options = settings.get("options", {}), settings.get("head_options", {})
    words = [value for own in options.values() for value in own.values() if isinstance(value, str)]
    stages = [(stage.get("input"), stage.get("train"), stage.get("method")) for stage in settings["stages"]]
    return json.dumps([settings["method"], words, settings["head"], sorted(head_options), stages], default=str)


def distinct_rows() -> list[tuple[str, str]]:
    """Rows that differ from all earlier ones in more than numbers, and at least one per recipe."""
    seen: set[str] = set()
    found: list[tuple[str, str]] = []
    for name in NAMES:
        rows = {shape_of(opened(name).settings(row)): row for row in reversed(published(name).rows)}
        new = [row for shape, row in rows.items() if shape not in seen]
        found += [(name, row) for row in new or list(published(name).rows)[:1]]
        seen |= rows.keys()
    return found


def train_one_step(name: str, row: str, workshop: Workshop, out: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    settings = opened(name).settings(row)
    wanted = [settings["dataset"], *([settings["features"]] if settings.get("features") else [])]
    workshop.make(name, wanted, monkeypatch)
    recipe = shrink(settings, workshop)
    run = start(Dataset.open(settings["dataset"]), recipe, out=out / "run")
    assert len(list(run.metrics())) == sum(stage.epochs for stage in recipe.stages)


CHOSEN = distinct_rows()
REST = [(name, row) for name in NAMES for row in published(name).rows if (name, row) not in CHOSEN]


@pytest.mark.parametrize(("name", "row"), CHOSEN, ids=[f"{name}:{row}" for name, row in CHOSEN])
def test_row_trains(name, row, workshop, tmp_path, monkeypatch):
    train_one_step(name, row, workshop, tmp_path, monkeypatch)


@pytest.mark.long
@pytest.mark.parametrize(("name", "row"), REST, ids=[f"{name}:{row}" for name, row in REST])
def test_row_that_differs_in_numbers_trains(name, row, workshop, tmp_path, monkeypatch):
    train_one_step(name, row, workshop, tmp_path, monkeypatch)


@pytest.mark.long
@pytest.mark.parametrize("name", NAMES)
def test_all_data_commands_run(name, workshop, monkeypatch):
    commands = [command.replace(recipes.SEED, "0") for command in published(name).data]
    outs = [command.split()[command.split().index("--out") + 1] for command in commands]
    folder = workshop.make(name, outs, monkeypatch)
    assert all((folder / out).is_dir() for out in outs)


def networks() -> dict[str, tuple[str, str, dict[str, Any], Any, int]]:
    """The distinct networks of all recipes, each with the number of classes of its dataset."""
    found = {}
    for name in NAMES:
        width = next((count for part, count in FULL_CLASSES.items() if part in name), 12)
        for row in published(name).rows:
            recipe = make_recipe(opened(name).settings(row))
            options = {key: value for key, value in recipe.head_options.items() if not key.startswith("boost")}
            key = (recipe.backbone, recipe.head, options, recipe.image_size, width)
            found.setdefault(
                "-".join([recipe.backbone, recipe.head, str(recipe.image_size), *map(str, options.values())]), key
            )
    return found


NETWORKS = networks()
# Each backbone and size once; other heads, and CvT, whose import of transformers takes seconds, are long tests.
ONCE = {
    (backbone, size): name for name, (backbone, _, _, size, _) in NETWORKS.items() if not backbone.startswith("cvt")
}


@pytest.mark.parametrize(
    "network",
    [pytest.param(name, marks=[] if name in ONCE.values() else [pytest.mark.long]) for name in NETWORKS],
)
def test_full_size_network_can_be_built(network):
    backbone, head, options, size, width = NETWORKS[network]
    with torch.device("meta"):
        model = create(
            backbone, head, [f"class {n}" for n in range(width)], pretrained=False, image_size=size, **options
        )
    assert {parameter.device.type for parameter in model.parameters()} == {"meta"}
    assert model.backbone is not None
    assert min(model.backbone.grid) >= 7
    if head == "query":  # as published, features have the width of the transformer
        assert model.backbone.channels == options["width"]
    assert sum(parameter.numel() for parameter in model.parameters()) > 3e6
