"""Memory and time of labels at scale; writes benchmarks/results/labels.json and docs/benchmarks/labels.md.

Each measurement is a fresh process on a generated dataset in a temporary folder.

    python benchmarks/labels/run.py           6 million rows, 1 million images, 9,600 classes; a few minutes
    python benchmarks/labels/run.py --quick   a hundredth of that, printed and not written down
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from generate import generate
from page import page

sys.path.append(str(Path(__file__).parents[1]))

from bookkeeping import Record, say

RECORD = Record("labels", ("dataset",))
CLASSES = 9_600


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="a small run that writes no file")
    quick = parser.parse_args().quick
    images = 10_000 if quick else 1_000_000
    with tempfile.TemporaryDirectory(prefix="labels-") as folder:
        results = run(Path(folder), images)
    if quick:
        print(json.dumps(results, indent=2))
        return
    RECORD.write(results, page(results))


def run(folder: Path, images: int) -> dict[str, Any]:
    rows = 6 * images
    results: dict[str, Any] = {
        **RECORD.begin(),
        "load": [],
    }
    for count, shuffled in ((rows // 10, False), (rows, False), (rows // 10, True), (rows, True)):
        name = f"{count}-{'shuffled' if shuffled else 'ordered'}"
        say(f"{name}: generating")
        generate(folder / name, rows=count, images=images, classes=CLASSES, shuffled=shuffled)
        say(f"{name}: loading")
        results["load"].append({"rows": count, "shuffled": shuffled, **measured("load", folder / name)})
    say("workers")
    results["workers"] = measured("workers", folder / f"{rows}-ordered")
    say("identities and validation")
    results["check"] = {"rows": rows, **measured("check", folder / f"{rows}-shuffled")}
    return results


def measured(what: str, folder: Path) -> dict[str, Any]:
    script = Path(__file__).with_name("measure.py")
    done = subprocess.run([sys.executable, script, what, folder], check=True, capture_output=True, text=True)
    return {
        name: round(value, 3) if isinstance(value, float) else value for name, value in json.loads(done.stdout).items()
    }


if __name__ == "__main__":
    main()
