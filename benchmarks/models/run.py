"""Speed and size of feature caches and heads; writes benchmarks/results/models.json and docs/benchmarks/models.md.

Contestants are processes that take turns, and ratios are within a round: times on a shared machine mean little.

    python benchmarks/models/run.py                 about twelve minutes
    python benchmarks/models/run.py --quick         two or three minutes, printed and not written down
    python benchmarks/models/run.py --images DIR    on the first JPEGs below a folder instead of rendered ones
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from contest import BACKBONE, HERE, SIZE
from page import page
from rounds import compare, race
from scripted import SPEED_UPS

from data import features, photos
from tagfill.models import HEADS

sys.path.append(str(Path(__file__).parents[1]))

from bookkeeping import Record, say

RECORD = Record("models", ("data", "models", "images", "training", "methods", "losses"), libraries=("torch",))
BATCH, CLASSES = 16, 20
CASES: dict[str, dict[str, Any]] = {
    "linear": {"head": "linear"},
    "cam": {"head": "cam"},
    "cam, maps": {"head": "cam", "maps": True},
    "cam, boost": {"head": "cam", "options": {"boost": 5.0}},
    "tscam": {"head": "tscam"},
    "tscam, maps": {"head": "tscam", "maps": True},
    "query": {"head": "query"},
}
TRAINED = ("linear", "cam, boost", "tscam", "query")  # those that the engine trains on a cache and on images


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="a small run that writes no file")
    parser.add_argument("--images", type=Path, help="a folder of JPEGs to look at")
    options = parser.parse_args()
    begin = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="models-") as folder:
        results = run(Path(folder), options.quick, options.images)
    results["minutes"] = (time.monotonic() - begin) / 60
    results = rounded(results)
    if options.quick:
        print(json.dumps(results, indent=2))
        return
    RECORD.write(results, page(results))


def run(folder: Path, quick: bool, images: Path | None) -> dict[str, Any]:
    results: dict[str, Any] = {
        **RECORD.begin(f" --images {images.name}" if images else ""),
        "backbone": BACKBONE,
        "side": SIZE,
        "batch": BATCH,
        "classes": CLASSES,
        "photos": {"count": 32 if quick else 64, "rendered": images is None},
    }
    say("photos")
    photos(folder / "photos", results["photos"]["count"], source=images)
    results["extraction"] = extraction(folder, results["photos"]["count"], quick)
    results["size"] = json.loads((folder / "tagfill-size.json").read_text(encoding="utf-8"))
    results["training"] = training(folder, quick)
    results["heads"] = heads(quick)
    return results


def extraction(folder: Path, count: int, quick: bool) -> dict[str, Any]:
    say("extraction: an ordinary script, each speed-up alone, Tagfill")

    def contestant(script: str, name: str, *words: str) -> list[str]:
        return [str(HERE / script), str(folder / "photos"), str(folder / name), "--workers", "1", *words]

    contestants = {"ordinary": contestant("scripted.py", "ordinary")}
    if not quick:
        contestants["again"] = contestant("scripted.py", "again")
        contestants |= {name: contestant("scripted.py", name, "--with", name) for name in SPEED_UPS}
    contestants["tagfill"] = contestant("extracted.py", "tagfill")
    results = race(contestants, 5 if quick else 240, rounds=1 if quick else 5)
    table = compare(results, "ordinary", count)
    for name, own in results.items():
        table["table"][name]["peak_mb"] = max(row["peak"] for row in own)
    return table


def training(folder: Path, quick: bool) -> dict[str, Any]:
    say("heads on a cache, and through the frozen backbone")
    cached, pictured = 200 if quick else 1_000, 16 if quick else 32
    features(folder / "cached", cached, CLASSES, maps=True)
    photos(folder / "pictures", pictured)
    table = {}
    for name in TRAINED[:1] if quick else TRAINED:
        if CASES[name]["head"] not in HEADS:
            continue
        say(f"  {name}")
        words = ["--batch", str(BATCH), "--head", CASES[name]["head"]]
        words += ["--options", json.dumps(CASES[name].get("options", {}))]
        script = str(HERE / "trained_head.py")
        contestants = {
            "images": [script, str(folder / "pictures"), *words],
            "cache": [script, str(folder / "cached"), *words, "--cache"],
        }
        results = race(contestants, 5 if quick else 40, rounds=1 if quick else 5)
        peaks = {kind: max(row["peak"] for row in own) for kind, own in results.items()}
        for kind, count in (("images", pictured), ("cache", cached)):
            for row in results[kind]:
                row["wall"], row["cpu"] = row["wall"] / count, row["cpu"] / count
        table[name] = {**compare(results, "images", 1), "peak_mb": peaks}
    return table


def heads(quick: bool) -> dict[str, Any]:
    say("forward and backward of heads")
    contestants = {}
    for name, case in CASES.items():
        if case["head"] in HEADS:
            words = ["--batch", str(BATCH), "--head", case["head"], "--options", json.dumps(case.get("options", {}))]
            contestants[name] = [str(HERE / "head_cost.py"), *words, *(["--maps"] if case.get("maps") else [])]
    results = race(contestants, 5 if quick else 60, rounds=1 if quick else 5)
    table = {}
    for name, own in results.items():
        pairs = list(zip(results["linear"], own, strict=True))
        table[name] = {
            **{
                f"{part}_ms": 1000 / 20 * statistics.median(row[part] for row in own)
                for part in ("forward", "backward")
            },
            **{
                f"{part}_times": statistics.median(after[part] / before[part] for before, after in pairs)
                for part in ("forward", "backward")
            },
            "peak_mb": max(row["peak"] for row in own),
        }
    return {"rounds": len(results["linear"]), "table": table}


def rounded(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: rounded(part) for name, part in value.items()}
    if isinstance(value, list):
        return [rounded(part) for part in value]
    return float(f"{value:.4g}") if isinstance(value, float) else value


if __name__ == "__main__":
    main()
