"""Methods and commands on all 82,081 photos of COCO 2014 train, by one table at a time.

A table goes on where it stopped, and writes benchmarks/results/coco14-TABLE.json and docs/benchmarks/coco14.md after
each of its rows.

    python benchmarks/coco14/run.py labels.csv.gz train2017 --table A
    python benchmarks/coco14/run.py labels.csv.gz train2017 --quick       a first picture, written below WORK only
    python benchmarks/coco14/run.py labels.csv.gz train2017 --finished    write down the runs that have ended

Labels are a table `image,labels,published_single_label` with labels joined by `|`; photos are a folder with these
images. Zhang et al. (arXiv:2112.07368) publish lists of the labels that are left as coco_train_0.4left.txt and
coco_train_0.75left.txt; without them, labels are drawn here.
"""

from __future__ import annotations

import argparse
import importlib
import json
import sys
from pathlib import Path
from typing import Any

sys.path.append(str(Path(__file__).parents[1]))

from bookkeeping import ROOT, Record, say
from page import TABLES, write

PACKAGES = ("training", "data", "models", "memory", "methods", "losses", "protocols", "formats", "curation")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("labels", type=Path, help="table of labels, gzip-compressed CSV")
    parser.add_argument("photos", type=Path, help="folder of the photos")
    parser.add_argument("--table", choices=[*TABLES, "all"], default="all")
    parser.add_argument("--quick", action="store_true", help="900 photos, few epochs; no page of docs is written")
    parser.add_argument("--finished", action="store_true", help="train nothing")
    parser.add_argument(
        "--work", type=Path, default=Path("runs/coco14"), help="where datasets, features and scores are"
    )
    parser.add_argument(
        "--lists", type=Path, help="folder with coco_train_0.4left.txt and coco_train_0.75left.txt, for table B"
    )
    parser.add_argument("--seeds", type=int, default=2, help="of each entry of table A")
    parser.add_argument("--jobs", type=int, default=1, help="processes that train at once")
    options = parser.parse_args()
    from bench import Bench
    from jobs import RUNS, all_runs
    from material import Material

    lists = None if options.lists is None else options.lists.absolute()
    places = (options.work.absolute(), options.labels.absolute(), options.photos.absolute())
    material = Material(*places, quick=options.quick, lists=lists)
    if not options.finished:
        material.prepare()
        material.features()
    bench = Bench(material, options.jobs, options.finished, 1 if options.quick else options.seeds)
    place = options.work / "quick" if options.quick else ROOT / "benchmarks" / "results"
    pages = options.work / "quick" / "page" if options.quick else ROOT / "docs" / "benchmarks"
    for name in TABLES if options.table == "all" else [options.table]:
        say(f"table {name}")
        begun = Record("coco14", PACKAGES, libraries=("torch", "timm")).begin(f" LABELS PHOTOS --table {name}")

        def written(results: dict[str, Any], name: str = name, begun: dict[str, Any] = begun) -> None:
            text = json.dumps(rounded({**begun, **results}), indent=2) + "\n"
            (place / f"coco14-{name.lower()}.json").write_text(text, encoding="utf-8")
            runs = dict(sorted(all_runs(bench.work).items()))
            (place / RUNS.name).write_text(json.dumps(rounded(runs), indent=1) + "\n", encoding="utf-8")
            write(place, pages, options.quick)

        importlib.import_module(TABLES[name][0]).measure(bench, written)
    write(place, pages, options.quick)


def rounded(value: Any) -> Any:
    """Numbers to four digits behind the point."""
    if isinstance(value, float):
        return round(value, 4)
    if isinstance(value, dict):
        return {key: rounded(one) for key, one in value.items()}
    return [rounded(one) for one in value] if isinstance(value, (list, tuple)) else value


if __name__ == "__main__":
    main()
