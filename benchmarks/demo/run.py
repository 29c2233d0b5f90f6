"""The demonstration: writes benchmarks/results/demo.json, docs/benchmarks/demo.md and docs/images/heatmaps.jpg.

`tagfill demo` itself, in a folder of its own. The picture shows what its model of LL-R with BoostLU finds on test
scenes, and where.

    python benchmarks/demo/run.py --out demo     about two minutes; what is in the folder already is not trained again
    python benchmarks/demo/run.py --out demo --jobs 1
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from page import page
from picture import picture

from tagfill import experiments, scenes

sys.path.append(str(Path(__file__).parents[1]))

from bookkeeping import ROOT, Record

RECORD = Record("demo", ("experiments", "training", "methods", "losses", "models", "scenes", "protocols"))
DRAWN = "ll-r-boost=5-s0"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, default=Path("demo"), help="folder of the demonstration")
    parser.add_argument("--jobs", type=int, help="processes at once")
    given = parser.parse_args()
    board = experiments.demo(given.out, jobs=given.jobs, report=False).to_json()
    rows = [{key: score[key] for key in KEPT} for score in board["scores"]]
    results = {**RECORD.begin(), "sizes": {"train": 600, "val": 200, "test": 400}, "rows": rows}
    data = scenes.make(train=600, val=200, test=400)
    drawn = ROOT / "docs" / "images" / "heatmaps.jpg"
    picture(given.out / "runs" / DRAWN, data).save(drawn, quality=88, optimize=True)
    print(drawn.relative_to(ROOT))
    RECORD.write(results, page(results))


KEPT = ("method", "test_mAP", "gap_closed", "recovered_precision", "recovered_recall", "annotation_seconds", "note")


if __name__ == "__main__":
    main()
