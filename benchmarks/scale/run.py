"""The label side at 1, 10 and 50 million photos; writes benchmarks/results/scale.json, for docs/scaling.md.

Four synthetic rows per photo and 20,000 classes are imported, validated, resolved, divided among machines, sampled, and
compared with predictions to suggest the best pairs per class. Each phase is a process of its own. Results are written
after each phase, and the same command continues where it stopped; WORK keeps the files of an unfinished size.

    python benchmarks/scale/run.py --work WORK                      takes 15 GB of disk and an hour
    python benchmarks/scale/run.py --work WORK --photos 1000000     one size
"""

from __future__ import annotations

import argparse
import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

sys.path.append(str(Path(__file__).parents[1]))

from bookkeeping import Record, say

RECORD = Record("scale", ("dataset", "formats", "curation", "labels.py"))
SIZES = (1_000_000, 10_000_000, 50_000_000)
PHASES = (
    "generate labels",
    "import",
    "validate",
    "resolve",
    "shard",
    "sample",
    "generate predictions",
    "suggest",
)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--work", type=Path, required=True, help="folder for large files, which are removed")
    parser.add_argument("--photos", type=int, nargs="+", default=SIZES, help="sizes to measure")
    options = parser.parse_args()
    for photos in options.photos:
        measure_size(options.work / str(photos), photos)


def measure_size(folder: Path, photos: int) -> None:
    """Run the phases of a size that have no result yet; what they need is made again if it was removed."""
    found = read_results()["sizes"].get(str(photos), {})
    if all(phase in found for phase in PHASES):
        return
    if not folder.exists():
        found = {}
        folder.mkdir(parents=True)
    for phase in PHASES:
        if phase in found:
            continue
        say(f"{photos:,} photos: {phase}")
        found[phase] = measured(phase, folder, photos)
        say(json.dumps(found[phase]))
        write_results(photos, found)
    shutil.rmtree(folder)


def write_results(photos: int, found: dict[str, Any]) -> None:
    """Replace the results of a size; another process may measure another size."""
    results = read_results()
    sizes = {**results["sizes"], str(photos): found}
    results = {**RECORD.begin(" --work WORK"), "sizes": {size: sizes[size] for size in sorted(sizes, key=int)}}
    RECORD.results.write_text(json.dumps(results, indent=2) + "\n", encoding="utf-8")


def read_results() -> dict[str, Any]:
    """The results so far."""
    if not RECORD.results.exists():
        return {**RECORD.begin(), "sizes": {}}
    found: dict[str, Any] = json.loads(RECORD.results.read_text(encoding="utf-8"))
    return found


def measured(phase: str, folder: Path, photos: int) -> dict[str, Any]:
    script = Path(__file__).with_name("phases.py")
    words = [sys.executable, script, phase, folder, str(photos)]
    done = subprocess.run(words, check=True, stdout=subprocess.PIPE, text=True)
    return {
        name: round(value, 3) if isinstance(value, float) else value for name, value in json.loads(done.stdout).items()
    }


if __name__ == "__main__":
    main()
