"""Read the lists of one file in one process; prints one line of JSON.

python benchmarks/json_files/measure.py scan FILE      find the lists by a scan of the bytes, parse each on its own
python benchmarks/json_files/measure.py passes FILE    one pass of ijson over the whole file per list
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import Any

import ijson

from tagfill.errors import DatasetError
from tagfill.formats.json_stream import JsonFile

LISTS = ("categories", "images", "annotations")  # in the order in which a reader needs them


def scan(path: Path) -> dict[str, int]:
    file = JsonFile.open(path)
    return {key: sum(1 for _ in file.items(key)) for key in LISTS if key in file.sections}


def passes(path: Path) -> dict[str, int]:
    counts = {}
    for key in LISTS:
        with path.open("rb") as file:
            counts[key] = sum(1 for _ in ijson.items(file, f"{key}.item", use_float=True))
    return counts


def peak_mb() -> float:
    """Return the most memory that this process has had in use, in millions of bytes."""
    status = Path("/proc/self/status").read_text()
    return int(status.partition("VmHWM:")[2].split()[0]) * 1024 / 1e6


def main() -> None:
    read = {"scan": scan, "passes": passes}[sys.argv[1]]
    Path("/proc/self/clear_refs").write_text("5")  # forget the peak so far
    before = peak_mb()
    result: dict[str, Any] = {}
    wall, cpu = time.perf_counter(), time.process_time()
    try:
        result["items"] = read(Path(sys.argv[2]))
    except DatasetError as error:
        result["refused"] = str(error).partition(" has ")[2]
    result["seconds"] = time.perf_counter() - wall
    result["cpu_seconds"] = time.process_time() - cpu
    result["peak_mb"] = peak_mb() - before
    print(json.dumps(result))


if __name__ == "__main__":
    main()
