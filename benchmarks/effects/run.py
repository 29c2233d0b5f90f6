"""The papers' effects: `train: top` on PASCAL VOC 2012, one table at a time.

What lies above a cached stage of the backbone is trained: the last stage and final convolution of EfficientNet-Lite0,
or layer4 of ResNet-50. First every row has one run, then rates are searched with that seed, then others follow. Each
run is written into benchmarks/results/effects-TABLE.json when it ends, and a run that is there is not made again, so
the benchmark can be stopped and continued, also on another machine. One process per table at a time.

    python benchmarks/effects/run.py VOCdevkit --table 1
    python benchmarks/effects/run.py VOCdevkit --table 1 --seeds 1 --no-search
    python benchmarks/effects/run.py VOCdevkit --table 1 --rows "an;ll-r" --backbone resnet50 --weights FILE
"""

from __future__ import annotations

import argparse
import hashlib
import json
import shutil
import sys
import time
from pathlib import Path
from typing import Any

sys.path.append(str(Path(__file__).parents[1]))
sys.path.append(str(Path(__file__).parents[1] / "voc12"))

import torch
from bookkeeping import ROOT, Record, say
from entries import SEEDS, Entry, in_order, make_data
from material import Material
from page import TABLES, page

import tagfill
from tagfill.training import build_recipe, resume, start

RECORD = Record("effects", ("training", "data", "models", "memory", "methods", "losses"), libraries=("torch", "timm"))
BACKBONES = {"lite0": ("tf_efficientnet_lite0", "blocks.5"), "resnet50": ("resnet50_v1", "layer3")}
VIEWS = "eval,flip"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("voc", type=Path, help="the folder VOCdevkit, or a tar archive of it")
    parser.add_argument("--table", choices=TABLES, required=True)
    parser.add_argument("--backbone", choices=BACKBONES, default="lite0")
    parser.add_argument("--weights", type=Path, help="of resnet50, made by 'tagfill convert tfjs-resnet'")
    parser.add_argument("--rows", help="only these rows, joined by semicolons")
    parser.add_argument("--columns", help="only these columns, joined by semicolons")
    parser.add_argument("--seeds", type=int, default=SEEDS)
    parser.add_argument("--no-search", action="store_true", help="do not try other learning rates")
    parser.add_argument("--work", type=Path, default=Path("runs/effects"), help="where datasets and features are")
    parser.add_argument("--until", help="start no run after this time, as in 14:30")
    options = parser.parse_args()
    torch.set_num_threads(1)
    material = Material(options.work.absolute())
    material.prepare(options.voc)
    pretrained = "bundled" if options.backbone == "lite0" else str(options.weights)
    cache = extracted(material, options.backbone, pretrained)
    bench = Bench(options.table, options.backbone, material, cache, pretrained)
    wanted = {
        name: given.split(";") if given else None for name, given in (("row", options.rows), ("at", options.columns))
    }
    rate = (lambda entry: None) if options.no_search else bench.rate
    for entry in in_order(options.table, options.seeds, bench.weight, rate):
        if any(names is not None and getattr(entry, name) not in names for name, names in wanted.items()):
            continue
        if options.until and time.strftime("%H:%M") >= options.until:
            say("time is over")
            return
        bench.run(entry)


def extracted(material: Material, backbone: str, pretrained: str) -> Path:
    """The folder of the cached stage."""
    name, at = BACKBONES[backbone]
    folder = material.work / "features" / backbone
    tagfill.features(material.open("single"), backbone=name, pretrained=pretrained, at=at, image_size=224,
                     views=VIEWS, out=folder)  # fmt: skip
    return folder


class Bench:
    """The runs of one table so far, and how to make another one."""

    def __init__(self, table: str, backbone: str, material: Material, cache: Path, pretrained: str) -> None:
        self._backbone, self._material, self._cache, self._pretrained = backbone, material, cache, pretrained
        self._file = ROOT / "benchmarks" / "results" / f"effects-{table}.json"
        self._runs: list[dict[str, Any]] = read(self._file)["runs"] if self._file.exists() else []

    def run(self, entry: Entry) -> None:
        """Train, score and write down, unless that was done before."""
        key = {"backbone": self._backbone, **entry.key()}
        if any(one.items() >= key.items() for one in self._runs):
            return
        say(f"{entry.row} {entry.at} {entry.train} lr {entry.lr:g} seed {entry.seed}")
        begin = RECORD.begin(f" VOC --table {entry.table}")
        make_data(self._material, entry.data)
        scores = self._trained(entry, hashlib.sha256(json.dumps(key, sort_keys=True).encode()).hexdigest()[:16])
        self._runs.append({**key, **scores, "commit": begin["commit"]})
        self._file.write_text(json.dumps({**begin, "runs": self._runs}, indent=1) + "\n", encoding="utf-8")
        found = {name: read(self._file.parent / f"effects-{name}.json") for name in TABLES
                 if (self._file.parent / f"effects-{name}.json").exists()}  # fmt: skip
        (ROOT / "docs" / "benchmarks" / "effects.md").write_text(page(found), encoding="utf-8")
        say(", ".join(f"{name} {value:.2f}" for name, value in scores.items() if isinstance(value, float)))

    def _trained(self, entry: Entry, name: str) -> dict[str, Any]:
        """Train, or continue a run that was stopped, and score."""
        folder = self._material.work / "runs" / name
        data = self._material.open(entry.data)
        stage = {"input": "cache", "train": entry.train, "epochs": entry.epochs,
                 "freeze": ["batch-norm"] if entry.train == "top" else [],
                 "optimizer": {"lr": entry.lr, "head_multiplier": entry.multiplier}, **entry.stage}  # fmt: skip
        settings = {"dataset": str(self._material.folder(entry.data)), "method": entry.method, "options": entry.options,
                    "backbone": BACKBONES[self._backbone][0], "pretrained": self._pretrained, "head": entry.head,
                    "head_options": entry.head_options, "features": str(self._cache), "seed": entry.seed,
                    "expected_positives": 1.5, "precision": entry.precision, "stages": [stage]}  # fmt: skip
        if any((folder / "checkpoints").glob("[0-9]*")):
            run = resume(folder)
        else:
            shutil.rmtree(folder, ignore_errors=True)
            run = start(data, build_recipe(settings), out=folder)
        result = tagfill.evaluate(run, data, split="test", features=self._cache,
                                  localize="minmax" if entry.localize else None)  # fmt: skip
        lines = (folder / "timings.jsonl").read_text(encoding="utf-8").splitlines()
        scores = {
            "val": run.best["val_mAP"],
            "test": 100 * result.mean,
            **({"loc": 100 * result.localized.mean} if result.localized is not None else {}),
            "epoch": run.best["epoch"],
            "seconds": sum(json.loads(line)["seconds"] for line in lines),
        }
        shutil.rmtree(folder)
        return scores

    def _found(self, entry: Entry) -> list[dict[str, Any]]:
        """Runs with the first seed, at any rate, of the row that decides the entry's."""
        row, at = entry.rated_as or (entry.row, entry.at)
        same = {"backbone": self._backbone, "row": row, "at": at, "train": entry.train, "seed": 0}
        return [one for one in self._runs if one.items() >= same.items()]

    def rate(self, entry: Entry) -> float:
        """The rate with the best validation mAP of the first seed; the entry's own if there is none."""
        return max(self._found(entry), key=lambda one: one["val"], default={"lr": entry.lr})["lr"]

    def weight(self) -> float:
        """The weight of cells with the best validation mAP."""
        tried = [one for one in self._runs if one["row"].startswith("SP, weight") and one["backbone"] == self._backbone]
        return float(max(tried, key=lambda one: one["val"], default={"row": "SP, weight 1"})["row"].split()[-1])


def read(file: Path) -> dict[str, Any]:
    """Results as they were written."""
    return json.loads(file.read_text(encoding="utf-8"))


if __name__ == "__main__":
    main()
