"""Heatmaps on disk, nearest neighbours and the set-up of SE; writes benchmarks/results/memory.json and its page.

Each measurement is a fresh process with one thread. What was measured at the same commit is kept, so that the whole can
be done in parts; the page is written once all are there.

    python benchmarks/memory/run.py                  82,000 images of 80 classes, 100,000 × 1,280 features; about
                                                     20 minutes, 16 GB of disk below the temporary folder
    python benchmarks/memory/run.py --only heatmaps  this part again
    python benchmarks/memory/run.py --quick          a fraction of that, printed and not written down
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import subprocess
import sys
from pathlib import Path
from typing import Any

from page import page

ROOT = Path(__file__).parents[2]
RESULTS = ROOT / "benchmarks" / "results" / "memory.json"
PAGE = ROOT / "docs" / "benchmarks" / "memory.md"
COMMAND = "python benchmarks/memory/run.py"
OWN = (  # what the numbers depend on
    "--",
    "src/tagfill/losses",
    "src/tagfill/memory",
    "src/tagfill/methods",
    "src/tagfill/models",
    "benchmarks/memory",
)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="a small run that writes no file")
    parser.add_argument("--only", choices=list(PARTS), help="measure one part, whether it is there or not")
    options = parser.parse_args()
    results = fresh() if options.quick else started()
    for part, measure in PARTS.items():
        if part == options.only or (options.only is None and part not in results):
            results[part] = measure(options.quick)
            if not options.quick:
                write(RESULTS, json.dumps(results, indent=2) + "\n")
    if options.quick:
        print(json.dumps(results, indent=2))
    elif all(part in results for part in PARTS):
        write(PAGE, page(results))


def fresh() -> dict[str, Any]:
    """Results without any measurement."""
    return {
        "command": COMMAND,
        "commit": git("rev-parse", "--short=12", "HEAD")
        + (" with changes" if git("status", "--porcelain", *OWN) else ""),
        "machine": {"cores": os.cpu_count(), "system": platform.system(), "python": platform.python_version()},
    }


def started() -> dict[str, Any]:
    """What was measured of the same code on the same machine, to go on with."""
    new = fresh()
    there = json.loads(RESULTS.read_text(encoding="utf-8")) if RESULTS.exists() else {}
    return there if all(there.get(name) == value for name, value in new.items()) else new


def heatmaps(quick: bool) -> list[dict[str, Any]]:
    images, steps = (2_000, 12) if quick else (82_000, 240)
    return [measured("heatmaps", images=images, size=size, steps=steps) for size in (14, 28)]


def neighbours(quick: bool) -> dict[str, Any]:
    images, queries = (5_000, 500) if quick else (100_000, 10_000)
    return measured("neighbours", images=images, queries=queries)


def setup(quick: bool) -> list[dict[str, Any]]:
    return [measured("setup", images=images) for images in ((1_000, 2_000) if quick else (20_000, 40_000))]


PARTS = {"heatmaps": heatmaps, "neighbours": neighbours, "setup": setup}


def write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
    print(path.relative_to(ROOT))


def measured(what: str, **numbers: int) -> dict[str, Any]:
    print(what, numbers, file=sys.stderr, flush=True)
    script = Path(__file__).with_name("measure.py")
    threads = dict.fromkeys(("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"), "1")
    arguments = [f"{name}={value}" for name, value in numbers.items()]
    done = subprocess.run(
        [sys.executable, script, what, *arguments], stdout=subprocess.PIPE, text=True, env=os.environ | threads
    )
    if done.returncode:
        sys.exit(f"{what} failed.")
    return {**numbers, **json.loads(done.stdout)}


def git(*words: str) -> str:
    return subprocess.run(["git", *words], cwd=ROOT, check=True, capture_output=True, text=True).stdout.strip()


if __name__ == "__main__":
    main()
