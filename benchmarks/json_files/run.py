"""Time and memory of reading large JSON files.

Writes benchmarks/results/json_files.json and docs/benchmarks/json_files.md. Compares the byte scan of
`tagfill.formats.json_stream` with one pass of ijson per list. Each measurement is a fresh process on a generated file
in a temporary folder.

    python benchmarks/json_files/run.py           a file of 500 MB; two minutes
    python benchmarks/json_files/run.py --quick   a file of 20 MB, printed and not written down
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from generate import generate, generate_nested
from page import page

sys.path.append(str(Path(__file__).parents[1]))

from bookkeeping import Record, say

RECORD = Record("json_files", ("formats/json_stream.py",), ("ijson",))
DEPTH = 20_000


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="a small run that writes no file")
    quick = parser.parse_args().quick
    with tempfile.TemporaryDirectory(prefix="json-files-") as folder:
        results = run(Path(folder), size=20_000_000 if quick else 500_000_000)
    if quick:
        print(json.dumps(results, indent=2))
        return
    RECORD.write(results, page(results))


def run(folder: Path, size: int) -> dict[str, Any]:
    large, nested = folder / "large.json", folder / "nested.json"
    say("generating")
    generate(large, size)
    generate_nested(nested, DEPTH)
    results = {
        **RECORD.begin(),
        "large": {"bytes": large.stat().st_size},
        "nested": {"bytes": nested.stat().st_size, "depth": DEPTH},
    }
    for name, path in (("large", large), ("nested", nested)):
        for how in ("scan", "passes"):
            say(f"{name}: {how}")
            results[name][how] = measured(how, path)
    return results


def measured(how: str, path: Path) -> dict[str, Any]:
    script = Path(__file__).with_name("measure.py")
    done = subprocess.run([sys.executable, script, how, path], check=True, capture_output=True, text=True)
    return {
        name: round(value, 3) if isinstance(value, float) else value for name, value in json.loads(done.stdout).items()
    }


if __name__ == "__main__":
    main()
