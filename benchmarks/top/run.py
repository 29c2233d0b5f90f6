"""Training the top of a backbone from a cache; writes benchmarks/results/top.json and docs/benchmarks/top.md.

Contestants are processes that take turns, and ratios are within a round: times on a shared machine mean little.

    python benchmarks/top/run.py                              about ten minutes on free cores
    python benchmarks/top/run.py --quick                      two or three minutes, printed and not written down
    python benchmarks/top/run.py --storage VOC2012 WEIGHTS    what 8 bits cost, on photos of VOC 2012 (its folder), with
                                                              the weights of resnet50_v1; rates are kept
    python benchmarks/top/run.py --backbone NAME              one backbone alone; results of the others are kept
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from pathlib import Path
from typing import Any

import torch
from contest import HERE
from page import page
from rounds import compare, race
from storage import measure

from data import photos
from tagfill.data.extract import features
from tagfill.progress import SILENT

sys.path.append(str(HERE.parent))

from bookkeeping import ROOT, Record, say

RECORD = Record("top", ("training", "data", "models", "images", "methods", "losses"), libraries=("torch", "timm"))
RESULTS = ROOT / "benchmarks" / "results" / "top.json"
BATCH = 16
BACKBONES = {"tf_efficientnet_lite0": ("bundled", "blocks.5"), "resnet50": ("none", "layer3")}
STORED = {"tf_efficientnet_lite0": "blocks.5", "resnet50_v1": "layer3"}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="a small run that writes no file")
    parser.add_argument("--storage", nargs=2, type=Path, metavar=("VOC2012", "WEIGHTS"))
    parser.add_argument("--backbone", choices=[*BACKBONES, *STORED], help="this one alone")
    parser.add_argument("--photos", type=int, default=1000, help="of each split, for --storage")
    options = parser.parse_args()
    results: dict[str, Any] = json.loads(RESULTS.read_text(encoding="utf-8")) if RESULTS.exists() else {}
    torch.set_num_threads(1)
    if options.storage:
        voc, weights = options.storage
        given = {"tf_efficientnet_lite0": "bundled", "resnet50_v1": str(weights)}
        cases = results.get("storage", {}).get("cases", {})
        for name, at in STORED.items():
            if options.backbone in (None, name):
                cases[name] = measure(voc, name, given[name], at, options.photos)
        command = f" --storage VOC2012 resnet50.safetensors --photos {options.photos}"
        results["storage"] = {**RECORD.begin(command), "cases": cases}
    else:
        with tempfile.TemporaryDirectory(prefix="top-") as folder:
            known = results.get("rates", {}).get("backbones", {})
            chosen = [name for name in BACKBONES if options.backbone in (None, name)]
            found = rates(Path(folder), chosen, options.quick)
        results["rates"] = {**RECORD.begin(), **found, "backbones": known | found["backbones"]}
    results = rounded(results)
    if options.quick:
        print(json.dumps(results, indent=2))
        return
    RECORD.write(results, page(results))


def rates(folder: Path, chosen: list[str], quick: bool) -> dict[str, Any]:
    """Images per second and memory of head, top, whole network and plain script."""
    count = BATCH if quick else 2 * BATCH
    say("photos")
    dataset = photos(folder / "photos", count)
    found: dict[str, Any] = {"batch": BATCH, "photos": count, "backbones": {}}
    for backbone in chosen:
        say(backbone)
        pretrained, at = BACKBONES[backbone]
        caches = {}
        for stage in ("features", at):
            caches[stage] = features(
                dataset,
                backbone=backbone,
                pretrained=False if pretrained == "none" else pretrained,
                image_size=224,
                at=stage,
                out=folder / f"{backbone}-{stage}",
                progress=SILENT,
            )
        shared = [str(folder / "photos"), "--backbone", backbone, "--batch", str(BATCH)]
        ours = [str(HERE / "trained.py"), *shared, "--pretrained", pretrained, "--train"]
        contestants = {
            "plain": [str(HERE / "plain.py"), *shared],
            "head": [*ours, "head", "--features", str(caches["features"].folder)],
            "top": [*ours, "top", "--features", str(caches[at].folder)],
            "top, bfloat16": [*ours, "top", "--features", str(caches[at].folder), "--precision", "bfloat16"],
            "whole": [*ours, "all"],
        }
        turns = race(contestants, 5 if quick else 60, rounds=1 if quick else 3)
        result = compare(turns, "plain", count)
        for name, own in turns.items():
            result["table"][name]["peak_megabytes"] = max(turn["peak"] for turn in own)
        manifest = caches[at].manifest
        found["backbones"][backbone] = {
            "at": at,
            "bytes_per_view": manifest.bytes_of_row,
            "dtype": manifest.dtype,
            **result,
        }
    return found


def rounded(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: rounded(part) for name, part in value.items()}
    if isinstance(value, list):
        return [rounded(part) for part in value]
    return float(f"{value:.5g}") if isinstance(value, float) else value


if __name__ == "__main__":
    main()
