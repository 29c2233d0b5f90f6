"""Count the source files that one training step runs through; writes benchmarks/results/step_files.json.

Each method trains two epochs on a small cache made with random weights. A profile hook notes every file of Tagfill that
is entered between the second step of the second epoch and its last one. Loading the next batch is included; setup,
files that are opened lazily, progress bars, validation and saving are not.

    python benchmarks/step_files/run.py           a few seconds; prints the table and writes the results
    python benchmarks/step_files/run.py --check   exit with 1 if a method crosses more files than its limit
"""

from __future__ import annotations

import argparse
import json
import math
import sys
import tempfile
from pathlib import Path
from types import FrameType
from typing import Any

sys.path.append(str(Path(__file__).parents[1]))

from bookkeeping import ROOT, Record

import tagfill
from tagfill import protocols, scenes
from tagfill.training import trainer

RECORD = Record("step_files", ("training", "methods", "memory", "losses", "data", "models"), libraries=("torch",))
LIMITS = {"an": 10, "en+scl": 17}
BACKBONE = {"backbone": "test_efficientnet", "pretrained": False, "image_size": 64}
STEP = ("training/trainer.py", "_step")


class NoProgress:
    """Shows nothing. The bar is drawn ten times per second, however many steps that are, and is not counted."""

    def bar(self, title: str, total: int | None, unit: str = "") -> Any:
        return self

    def say(self, text: str) -> None: ...
    def note(self, text: str) -> None: ...
    def advance(self, steps: int = 1) -> None: ...
    def __enter__(self) -> NoProgress:
        return self

    def __exit__(self, *error: object) -> None: ...


class StepFiles:
    """Profile hook that collects, for each step, the files entered until the next step starts."""

    def __init__(self) -> None:
        self._package = str(Path(tagfill.__file__).parent) + "/"
        self.steps: list[set[str]] = []

    def __call__(self, frame: FrameType, event: str, argument: object) -> None:
        path = frame.f_code.co_filename
        if event != "call" or not path.startswith(self._package):
            return
        name = path.removeprefix(self._package)
        if (name, frame.f_code.co_name) == STEP:
            self.steps.append(set())
        if self.steps:
            self.steps[-1].add(name)

    def steady(self) -> list[str]:
        """Files of the steps of the second epoch, except its first one and its last one."""
        return sorted(set().union(*self.steps[len(self.steps) // 2 + 1 : -1]))


def count(method: str, dataset: tagfill.Dataset, cache: Path, out: Path) -> list[str]:
    """Train two epochs and return the files that a step enters."""
    hook, shown = StepFiles(), trainer._SHOW_EVERY
    trainer._SHOW_EVERY = math.inf  # steps whose loss is shown are not counted, and on a slow machine all of them are
    sys.setprofile(hook)
    try:
        tagfill.train(
            dataset,
            method=method,
            features=cache,
            epochs=2,
            batch_size=4,
            out=out,
            progress=NoProgress(),
            **BACKBONE,
        )
    finally:
        sys.setprofile(None)
        trainer._SHOW_EVERY = shown
    assert len(hook.steps) > 2, "no steps were seen; has the trainer's step method been renamed?"
    return hook.steady()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--check", action="store_true", help="write nothing; exit with 1 above a limit")
    check = parser.parse_args().check
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        dataset = protocols.single_positive(scenes.make(place / "full", train=24, val=8, test=4, size=64), seed=0)
        dataset = dataset.save(place / "single")
        cache = tagfill.features(dataset, views="eval,crops:2", out=place / "cache", **BACKBONE).folder
        found = {method: count(method, dataset, cache, place / method) for method in LIMITS}
    for method, files in found.items():
        print(f"{method}: {len(files)} files (limit {LIMITS[method]})")
        print(*(f"    {name}" for name in files), sep="\n")
    if check:
        sys.exit(any(len(files) > LIMITS[method] for method, files in found.items()))
    methods = {method: {"files": len(files), "names": files} for method, files in found.items()}
    results: dict[str, Any] = {**RECORD.begin(), "version 0.1": {"an": 22, "en+scl": 36}, "methods": methods}
    path = ROOT / "benchmarks" / "results" / f"{RECORD.name}.json"
    path.write_text(json.dumps(results, indent=2) + "\n", encoding="utf-8")
    print(path.relative_to(ROOT))


if __name__ == "__main__":
    main()
