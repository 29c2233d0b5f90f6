"""Speed of training; writes benchmarks/results/training.json and docs/benchmarks/training.md.

Contestants are processes that take turns, and ratios are within a round: times on a shared machine mean little.

    python benchmarks/training/run.py                 about ten minutes
    python benchmarks/training/run.py --quick         a minute or two, printed and not written down
    python benchmarks/training/run.py --images DIR    on the first JPEGs below a folder instead of rendered ones
    python benchmarks/training/run.py --only cached   this section alone; the others stay as they were measured
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from ordinary import SPEED_UPS
from page import page
from rounds import HERE, compare, race

from data import features, photos, single_positive

sys.path.append(str(Path(__file__).parents[1]))

from bookkeeping import Record, say

RECORD = Record(
    "training", ("training", "data", "models", "images", "memory", "methods", "losses"), libraries=("torch",)
)
BATCH = 16


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="a small run that writes no file")
    parser.add_argument("--images", type=Path, help="a folder of JPEGs to train on")
    parser.add_argument("--only", nargs="+", choices=SECTIONS, help="sections to measure again")
    options = parser.parse_args()
    begin = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="training-") as folder:
        if options.only:
            results = again(Path(folder), options.quick, options.only)
        else:
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
        "batch": BATCH,
    }
    count = BATCH if quick else 2 * BATCH
    say("photos")
    photos(folder / "photos", count, source=images)
    results["photos"] = {"count": count, "rendered": images is None}
    results["images"] = on_images(folder / "photos", count, quick)
    results["decoding"] = decoding(folder, images, quick)
    results["overhead"] = overhead(folder, quick)
    results["cached"] = cached(folder, quick)
    results["checkpoints"] = checkpoints(folder, quick)
    results["processes"] = processes(folder / "photos", count, quick)
    return results


def again(folder: Path, quick: bool, sections: list[str]) -> dict[str, Any]:
    """The results so far, with some sections measured again, each with the commit that it was measured at."""
    results: dict[str, Any] = json.loads(RECORD.results.read_text(encoding="utf-8"))
    for name in sections:
        results[name] = SECTIONS[name](folder, quick)
        results.setdefault("commits", {})[name] = RECORD.begin()["commit"]
    return results


def on_images(folder: Path, count: int, quick: bool) -> dict[str, Any]:
    say("images: an ordinary script, each speed-up alone, Tagfill")
    shared = [str(folder), "--batch", str(BATCH)]
    contestants = {"ordinary": ["ordinary.py", *shared]}
    if not quick:
        contestants["again"] = contestants["ordinary"]
        contestants |= {name: ["ordinary.py", *shared, "--with", name] for name in SPEED_UPS}
    contestants["tagfill"] = ["trained.py", *shared, "--workers", "1"]
    base = tuple(name for name in ("ordinary", "again") if name in contestants)
    return compare(race(contestants, 5 if quick else 180, rounds=1 if quick else 5), base, count)


def decoding(folder: Path, images: Path | None, quick: bool) -> list[dict[str, Any]]:
    say("decoding")
    table = [{"size": "800×600" if images is None else "as given", **output("decoded.py", str(folder / "photos"))}]
    if images is None and not quick:
        photos(folder / "large", 12, size=(3200, 2400))
        table.append({"size": "3200×2400", **output("decoded.py", str(folder / "large"))})
    return table


def overhead(folder: Path, quick: bool) -> dict[str, Any]:
    say("the engine against a bare loop")
    pooled = 1_000 if quick else 10_000
    features(folder / "pooled", pooled, 80, maps=False, views=("eval",))
    single_positive(folder / "pixels", [f"{number}.jpg" for number in range(2 * BATCH)], classes=20)
    table = {}
    for name, data, size, extra, budget in (
        ("images", folder / "pixels", 2 * BATCH, [], 60),
        ("pooled features", folder / "pooled", pooled, ["--cache"], 60),
    ):
        shared = [str(data), "--batch", str(BATCH), *extra]
        engine = ["trained.py", *shared, *([] if extra else ["--recorded"])]
        contestants = {"bare": ["bare.py", *shared], "engine": engine}
        results = race(contestants, 5 if quick else budget, rounds=1 if quick else 5)
        table[name] = compare(results, "bare", size)
    return table


def cached(folder: Path, quick: bool) -> dict[str, Any]:
    say("cached features")
    count = 200 if quick else 1_000
    features(folder / "maps", count, 80, maps=True)
    shared = [str(folder / "maps"), "--batch", str(BATCH), "--cache"]
    methods = ("an", "en+scl") if quick else ("an", "role", "en", "en+scl")
    contestants = {name: ["trained.py", *shared, "--method", name] for name in methods}
    return compare(race(contestants, 2 if quick else 30, rounds=1 if quick else 3), "an", count)


def checkpoints(folder: Path, quick: bool) -> list[dict[str, Any]]:
    say("checkpoints")
    cases = [("role", 4_000, classes) for classes in (20, 320, 1280)]
    cases += [("en+scl", 400, classes) for classes in (20, 320)]
    return [
        output("saved.py", str(folder / f"{method}-{images}-{classes}"), method, str(images), str(classes))
        for method, images, classes in (cases[:1] if quick else cases)
    ]


def processes(folder: Path, count: int, quick: bool) -> dict[str, Any]:
    say("two processes")
    shared = ["trained.py", str(folder), "--batch", str(BATCH), "--out"]
    contestants = {
        "one": [*shared, str(folder / "one")],
        "two": [*shared, str(folder / "two"), "--processes", "2"],
    }
    return compare(race(contestants, 5 if quick else 45, rounds=1 if quick else 3), "one", count)


SECTIONS = {"overhead": overhead, "cached": cached, "checkpoints": checkpoints}


def output(script: str, *words: str) -> dict[str, Any]:
    done = subprocess.run([sys.executable, HERE / script, *words], check=True, stdout=subprocess.PIPE, text=True)
    content: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return content


def rounded(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: rounded(part) for name, part in value.items()}
    if isinstance(value, list):
        return [rounded(part) for part in value]
    return float(f"{value:.4g}") if isinstance(value, float) else value


if __name__ == "__main__":
    main()
