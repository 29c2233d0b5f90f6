"""All methods on real photos: the complete PASCAL VOC 2012, by one table at a time.

A table trains heads on cached features of the bundled backbone (table D trains the whole network), goes on where it
stopped, writes benchmarks/results/voc12-TABLE.json and docs/benchmarks/voc12.md anew with what there is.

    python benchmarks/voc12/run.py voc2012.tar --table A
    python benchmarks/voc12/run.py voc2012.tar --quick         a first picture of all tables, written below WORK only
    python benchmarks/voc12/run.py voc2012.tar --table A --rows "full, boost;se-l"

The last one measures only these rows, of table A, B1, B2 or D1; the others stay as they were.
"""

from __future__ import annotations

import argparse
import importlib
import json
import os
import sys
import time
from pathlib import Path
from typing import Any

sys.path.append(str(Path(__file__).parents[1]))

from bookkeeping import ROOT, Record, say
from page import TABLES, write

PACKAGES = ("training", "data", "models", "memory", "methods", "losses", "protocols", "formats", "curation")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("voc", type=Path, help="the folder VOCdevkit, or a tar archive of it")
    parser.add_argument("--table", choices=[*TABLES, "all"], default="all")
    parser.add_argument(
        "--quick", action="store_true", help="a third of the photos, one seed, few epochs; no page of docs is written"
    )
    parser.add_argument(
        "--rows", help="rows to measure again or to add, joined by semicolons; of tables A, B1, B2 and D1"
    )
    parser.add_argument("--work", type=Path, default=Path("runs/voc12"), help="where photos, features and scores are")
    parser.add_argument("--jobs", type=int, default=os.cpu_count())
    options = parser.parse_args()
    if options.rows and (options.table not in ("A", "B1", "B2", "D1") or options.quick):
        parser.error("--rows needs --table A, B1, B2 or D1, and no --quick")
    from bench import Bench
    from material import Material

    material = Material(options.work.absolute(), options.quick)
    material.prepare(options.voc)
    bench = Bench(material, options.jobs)
    for name in TABLES if options.table == "all" else [options.table]:
        say(f"table {name}")
        begun = time.monotonic()
        record = Record("voc12", PACKAGES, libraries=("torch", "timm"))
        results = record.begin(f" VOC --table {name}{' --quick' if options.quick else ''}")
        place = options.work / "quick" if options.quick else ROOT / "benchmarks" / "results"
        place.mkdir(parents=True, exist_ok=True)
        table = importlib.import_module(TABLES[name][0])
        if options.rows:
            before = json.loads((place / f"voc12-{name.lower()}.json").read_text(encoding="utf-8"))
            names = [row.strip() for row in options.rows.split(";")]
            results = with_rows(before, table.measure_rows(bench, names), names, results["commit"])
        else:
            results |= table.measure(bench)
            results["minutes"] = (time.monotonic() - begun) / 60  # of this call; runs that were there took none of it
        (place / f"voc12-{name.lower()}.json").write_text(json.dumps(results, indent=2) + "\n", encoding="utf-8")
    write(place, options.work / "quick" / "page" if options.quick else ROOT / "docs" / "benchmarks", options.quick)


def with_rows(before: dict[str, Any], found: dict[str, Any], names: list[str], commit: str) -> dict[str, Any]:
    """Earlier results with some rows replaced or added, and the commit at which those were measured."""
    results = dict(before)
    if "rows" in found:
        results["rows"] = [*(row for row in before["rows"] if row["name"] not in names), *found["rows"]]
    elif "whole" in found:
        results |= {part: before[part] | found[part] for part in ("whole", "head")}
    else:
        results["methods"] = before["methods"] | found["methods"]
        setting = before["setting"]
        results["setting"] = setting | {"rates": setting["rates"] | found["rates"]}
    earlier = {at: [row for row in rows if row not in names] for at, rows in before.get("later", {}).items()}
    results["later"] = {at: rows for at, rows in earlier.items() if rows and at != commit}
    results["later"][commit] = sorted({*earlier.get(commit, []), *names})
    return results


if __name__ == "__main__":
    main()
