"""Heatmaps on disk, nearest neighbours and the set-up of SE; writes benchmarks/results/memory.json and its page.

Each measurement is a fresh process with one thread.

    python benchmarks/memory/run.py           82,000 images of 80 classes, 100,000 × 1,280 features; about 20 minutes,
                                              16 GB of disk below the temporary folder
    python benchmarks/memory/run.py --quick   a fraction of that, printed and not written down
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
OWN = ("--", "src/tagfill/memory", "src/tagfill/methods", "benchmarks/memory")  # what the numbers depend on


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="a small run that writes no file")
    quick = parser.parse_args().quick
    results = run(quick)
    if quick:
        print(json.dumps(results, indent=2))
        return
    for path, text in ((RESULTS, json.dumps(results, indent=2) + "\n"), (PAGE, page(results))):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
        print(path.relative_to(ROOT))


def run(quick: bool) -> dict[str, Any]:
    images, steps = (2_000, 12) if quick else (82_000, 240)
    results: dict[str, Any] = {
        "command": COMMAND,
        "commit": git("rev-parse", "--short=12", "HEAD")
        + (" with changes" if git("status", "--porcelain", *OWN) else ""),
        "machine": {"cores": os.cpu_count(), "system": platform.system(), "python": platform.python_version()},
        "heatmaps": [measured("heatmaps", images=images, size=size, steps=steps) for size in (14, 28)],
    }
    count, queries = (5_000, 500) if quick else (100_000, 10_000)
    results["neighbours"] = measured("neighbours", images=count, queries=queries)
    results["setup"] = [measured("setup", images=n) for n in ((1_000, 2_000) if quick else (20_000, 40_000))]
    return results


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
