"""A comparison whose runs train together; writes benchmarks/results/together.json and docs/benchmarks/together.md.

`tagfill.compare` with five seeds and a grid of learning rates, on pooled features: as it is, and with each run trained
after the other. Both take turns, on one core and in one process, and ratios are within a round.

    python benchmarks/together/run.py           about fifteen minutes on an idle core; written down after each round
    python benchmarks/together/run.py --quick   few images, one round, printed and not written down
"""

from __future__ import annotations

import argparse
import json
import shutil
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch
from page import page

sys.path.append(str(Path(__file__).parents[1]))
sys.path.append(str(Path(__file__).parents[1] / "training"))

from bookkeeping import Record, say

import tagfill
from data import write_cache
from tagfill.experiments import runs
from tagfill.progress import SILENT

RECORD = Record("together", ("experiments", "training"), libraries=("torch",))
METHODS = "wan,em,hill"
GRID = "optimizer.lr=1e-3,3e-3,1e-2"
CLASSES, CHANNELS = 20, 1280
BATCHES = (16, 64)
SIZES = {"train": 4000, "val": 500, "test": 500}
QUICK_SIZES = {"train": 200, "val": 50, "test": 50}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="a small run that writes no file")
    quick = parser.parse_args().quick
    torch.set_num_threads(1)
    results = RECORD.begin()
    results |= {"methods": METHODS, "grid": GRID, "seeds": 5, "epochs": 2 if quick else 5}
    results |= {"sizes": QUICK_SIZES if quick else SIZES, "classes": CLASSES, "channels": CHANNELS}
    with tempfile.TemporaryDirectory(prefix="together-") as folder:
        data = photos(Path(folder) / "data", results["sizes"])
        results["batches"] = {batch: [] for batch in BATCHES}
        for number in range(1 if quick else 3):
            for batch, rounds in results["batches"].items():
                work = Path(folder) / f"{batch}-{number}"
                rounds.append(one_round(work, data, batch, results, separate_first=number % 2 == 1))
                shutil.rmtree(work)
            if not quick:
                RECORD.write(results, page(json.loads(json.dumps(results))))
    if quick:
        print(json.dumps(results, indent=2))


def photos(folder: Path, sizes: dict[str, int]) -> tagfill.Dataset:
    """A dataset of features that show its classes, one known label per training image, and complete labels beside."""
    rng = np.random.default_rng(0)
    splits = [split for split, count in sizes.items() for _ in range(count)]
    truth = rng.random((len(splits), CLASSES)) < 0.12
    truth[np.arange(len(splits)), rng.integers(0, CLASSES, len(splits))] = True
    shown = truth @ rng.normal(size=(CLASSES, CHANNELS)) + 4 * rng.normal(size=(len(splits), CHANNELS))
    classes = [f"class {number}" for number in range(CLASSES)]
    images = [{"image": f"{number:06d}.jpg", "split": split} for number, split in enumerate(splits)]
    rows = [
        {"image": image["image"], "label": label, "present": bool(present)}
        for image, labels in zip(images, truth, strict=True)
        for label, present in zip(classes, labels, strict=True)
    ]
    complete = tagfill.Dataset.from_records("features", folder, classes, images, rows).save(folder / "complete")
    write_cache(complete, folder / "cache", pooled=np.maximum(shown, 0).astype(np.float32))
    return tagfill.protocols.single_positive(complete, seed=0).save(folder / "single")


def one_round(
    folder: Path, data: tagfill.Dataset, batch: int, setting: dict[str, Any], *, separate_first: bool
) -> dict[str, Any]:
    """Time of both, and the largest difference between the scores of the same run."""
    found: dict[str, dict[str, Any]] = {}
    for way in sorted(("together", "one after another"), reverse=not separate_first):
        say(f"batches of {batch}, {way}")
        found[way] = compared(folder / way, data, batch, setting, together=way == "together")
    first, second = found["together"].pop("scores"), found["one after another"].pop("scores")
    assert first.keys() == second.keys()
    return found | {"runs": len(first), "difference": max(abs(first[run] - second[run]) for run in first)}


def compared(
    folder: Path, data: tagfill.Dataset, batch: int, setting: dict[str, Any], *, together: bool
) -> dict[str, Any]:
    """Seconds of a comparison, and the scores of its runs."""
    own, runs.group_key = runs.group_key, runs.group_key if together else lambda *_: None
    try:
        begin, spent = time.perf_counter(), time.process_time()
        tagfill.compare(
            data,
            METHODS,
            out=folder,
            seeds=setting["seeds"],
            epochs=setting["epochs"],
            features=data.folder.parent / "cache",
            grid=[GRID],
            jobs=1,
            report=False,
            progress=SILENT,
            batch_size=batch,
            head="linear",
        )
        taken = {"seconds": time.perf_counter() - begin, "CPU seconds": time.process_time() - spent}
    finally:
        runs.group_key = own
    outcomes = {file.parent.relative_to(folder): json.loads(file.read_text()) for file in folder.rglob("outcome.json")}
    return taken | {"scores": {run: outcome["score"] for run, outcome in outcomes.items()}}


if __name__ == "__main__":
    main()
