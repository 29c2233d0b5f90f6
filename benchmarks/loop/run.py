"""Train, suggest, review, train again: mAP against hours of review; writes benchmarks/results/loop.json and its page.

Scenes with one known label per image. A simulated reviewer decides suggestions; beside it the same reviewer looks at
what `tagfill plan` chooses, and at unknown pairs in random order. Hours are the reviewer's, not the machine's.

    python benchmarks/loop/run.py           three seeds; about five minutes on two cores
    python benchmarks/loop/run.py --quick   one seed, one round, printed and not written down
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Any

from joblib import Parallel, delayed

sys.path.append(str(Path(__file__).parents[1]))

from bookkeeping import Record
from page import page
from reviewing import ORDERS, Loop, curve, full_labels
from reviewing_page import figure

from tagfill import experiments, scenes

FIGURE = Path(__file__).parents[2] / "docs" / "images" / "loop.svg"
RECORD = Record("loop", ("curation", "training", "methods", "protocols"), libraries=("torch",))
LOOP = Loop(method="an", head="cam", epochs=12, folds=2, seconds=2.0, wrong=0.05, hours=0.25, rounds=3)
SEEDS = 3


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="one seed and one round that write no file")
    quick = parser.parse_args().quick
    loop, seeds = (replace(LOOP, rounds=1), 1) if quick else (LOOP, SEEDS)
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        full = scenes.make(train=600, val=200, test=400)
        cache = experiments.features(full).folder
        jobs = [(order, seed) for seed in range(seeds) for order in ORDERS]
        curves = Parallel(n_jobs=os.cpu_count())(
            delayed(curve)(full, cache, place / f"{order}-{seed}", order, seed, loop) for order, seed in jobs
        )
        ceiling = [full_labels(full, cache, place / f"full-{seed}", seed, loop) for seed in range(seeds)]
    results: dict[str, Any] = {
        **RECORD.begin(),
        "settings": {
            "method": loop.method,
            "epochs": loop.epochs,
            "folds": loop.folds,
            "seconds": loop.seconds,
            "wrong": loop.wrong,
            "seeds": seeds,
        },
        "hours": [loop.hours * number for number in range(loop.rounds + 1)],
        "full": ceiling,
        "orders": {
            order: [found for (o, _), found in zip(jobs, curves, strict=True) if o == order] for order in ORDERS
        },
    }
    if quick:
        print(json.dumps(results, indent=2))
        return
    RECORD.write(results, page(results))
    FIGURE.write_bytes(figure(results))


if __name__ == "__main__":
    main()
