"""What a step with the patch loss costs over cross-entropy, and how fast PatchCluster looks through a feature cache.

A step is 64 images of made-up 7×7×1280 features → `cam` head through class maps → loss → backward → Adam, one thread.
Contestants take turns in a new order each round, cross-entropy twice as a control, and ratios are within a round.
PatchCluster looks at real features of scenes from a cache inside a real run, beside a bare evaluation pass.

    python benchmarks/patches/costs.py           three minutes
    python benchmarks/patches/costs.py --quick   few rounds, printed and not written down
"""

from __future__ import annotations

import argparse
import json
import random
import shutil
import sys
import tempfile
import time
from dataclasses import replace
from pathlib import Path
from statistics import median
from typing import Any, ClassVar

import numpy as np
import torch
from record import ROOT, record
from trained import SIZES, say

sys.path.append(str(ROOT / "benchmarks" / "losses"))
from contestants import BATCH, Contestant, Problem, problem

import tagfill
from tagfill.labels import LabelMatrix
from tagfill.methods import METHODS
from tagfill.methods.patchcluster import PatchCluster

BASE, CONTROL = "bce", "bce again"
KNOWN = 0.1  # share of all labels
CONTESTANTS: dict[str, tuple[str, dict[str, Any], bool]] = {  # method, its options, whether all labels are known
    BASE: ("bce", {}, True),
    CONTROL: ("bce", {}, True),
    "image loss alone": ("patchml", {"w_patch": 0.0}, False),
    "patch loss": ("patchml", {}, False),
    "patch loss, CSL-P": ("patchml", {"patch_unknown": "selective"}, False),
    "patch loss, all labels known": ("patchml", {}, True),
    "patch loss, CSL-P, all labels known": ("patchml", {"patch_unknown": "selective"}, True),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="a small run that writes no file")
    quick = parser.parse_args().quick
    torch.set_num_threads(1)
    rounds = 3 if quick else 15
    found = {
        "batch": BATCH,
        "known": KNOWN,
        "rounds": rounds,
        "classes": {str(classes): steps(classes, rounds) for classes in (20, 80)},
        "looking": looking(3 if quick else 10),
    }
    if quick:
        print(json.dumps(found, indent=2))
        return
    record("costs", found)


def steps(classes: int, rounds: int, count: int = 10) -> dict[str, Any]:
    """Milliseconds a step of each, and ratios to cross-entropy in the same round."""
    complete = problem(4096, classes)
    partly = thinned(complete)
    made = {}
    for label, (method, options, everything) in CONTESTANTS.items():
        given = complete if method == "bce" else replace(partly, labels=complete.truth) if everything else partly
        made[label] = Contestant(method, given, options=options, maps=True)
        made[label].steps(2)
    times: dict[str, list[float]] = {label: [] for label in made}
    order = random.Random(0)
    for number in range(rounds):
        say(f"{classes} classes: round {number + 1} of {rounds}")
        for label in order.sample(sorted(made), len(made)):
            times[label].append(made[label].steps(count) / count)
    return {
        label: {
            "ms": round(1000 * median(taken), 3),
            "ratios": [round(mine / base, 3) for mine, base in zip(taken, times[BASE], strict=True)],
        }
        for label, taken in times.items()
    }


def thinned(given: Problem) -> Problem:
    """The same images with a random share of all labels."""
    kept = np.random.default_rng(1).random((len(given.truth), given.truth.width)) < KNOWN
    return replace(given, labels=LabelMatrix.from_dense(np.where(kept, given.truth.dense(), -1).astype(np.int8)))


class Timed(PatchCluster):
    """PatchCluster that writes down what its passes take."""

    times: ClassVar[list[dict[str, float]]] = []

    def _look(self) -> None:
        taken = {}
        for name, work in (("bare", self._bare), ("prototypes", self._prototypes), ("whole", super()._look)):
            begin = time.perf_counter()
            work()
            taken[name] = time.perf_counter() - begin
        self.times.append(taken)

    def _bare(self) -> None:
        for _ in self._task.predict("train"):
            pass


def looking(times: int) -> dict[str, Any]:
    """Images per second of a bare evaluation pass, of prototypes, and of all passes; medians over epochs of a run."""
    data = tagfill.scenes.make(**SIZES)
    cache = tagfill.features(data)
    METHODS["patchcluster"] = Timed
    out = Path(tempfile.mkdtemp())
    try:
        part = tagfill.protocols.budget(data, percent=10, kind="SP", seed=0)
        options = {"patchcluster": {"refresh": 1, "scope": "all_unknown"}}
        tagfill.train(part, method="patchml+patchcluster", features=cache, epochs=times + 1, options=options, out=out)
    finally:
        shutil.rmtree(out)
    taken = {name: median(each[name] for each in Timed.times[1:]) for name in Timed.times[0]}  # the first reads a disk
    images = {"bare": SIZES["train"], "prototypes": SIZES["train"], "whole": 2 * SIZES["train"] + SIZES["val"]}
    return {
        "looks": len(Timed.times) - 1,
        "seconds": {name: round(seconds, 4) for name, seconds in taken.items()},
        "passes_per_second": {name: round(images[name] / seconds, 1) for name, seconds in taken.items()},
        "images_per_second": round(SIZES["train"] / taken["whole"], 1),
        "ratios": [round(each["prototypes"] / each["bare"], 3) for each in Timed.times[1:]],
    }


if __name__ == "__main__":
    main()
