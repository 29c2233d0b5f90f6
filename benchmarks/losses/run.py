"""What a step of each method costs over plain cross-entropy; writes benchmarks/results/losses.json and its page.

A step is cached 7×7×1280 features → `cam` head → loss → backward → Adam → memory, 64 images, one thread. Methods take
turns in a new order each round, cross-entropy twice as a control, and ratios are within a round. Without class maps the
head pools features first; a method that needs maps is compared with cross-entropy through the same maps.

    python benchmarks/losses/run.py           20, 80 and 5,000 classes; about ten minutes
    python benchmarks/losses/run.py --quick   20 classes, few rounds, printed and not written down
"""

from __future__ import annotations

import argparse
import json
import random
import sys
from pathlib import Path
from statistics import median
from typing import Any

import torch
from contestants import BATCH, Contestant, problem
from page import page

from tagfill.methods import METHODS, TERMS

sys.path.append(str(Path(__file__).parents[1]))

from bookkeeping import Record, say

RECORD = Record("losses", ("losses", "methods", "memory", "models"), libraries=("torch",))
BASE, CONTROL, BASE_OF_MAPS = "bce", "bce again", "bce through maps"
SIZES = {20: 4096, 80: 4096, 5000: 512}  # images for each number of classes; heatmaps of 5,000 take a megabyte each


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="a small run that writes no file")
    quick = parser.parse_args().quick
    torch.set_num_threads(1)
    results: dict[str, Any] = {
        **RECORD.begin(),
        "batch": BATCH,
        "classes": {},
    }
    for classes in (20,) if quick else SIZES:
        large = classes > 1000
        results["classes"][str(classes)] = measure(
            classes, rounds=3 if quick or large else 9, steps=3 if large else 4 if quick else 12
        )
    if quick:
        print(json.dumps(results, indent=2))
        return
    RECORD.write(results, page(results))


def names() -> dict[str, tuple[str, float | None]]:
    """What takes part: every method, terms beside one that they suit, and the boost alone and with Large Loss."""
    plain = {name: (name, None) for name in METHODS if name not in TERMS}
    suited = {name: "patchml" if name == "patchcluster" else "en" for name in sorted(TERMS)}
    summed = {f"{base}+{name}": (f"{base}+{name}", None) for name, base in suited.items()}
    boosted = {f"{name}, boost": (name, 5.0) for name in ("an", "ll-r") if name in METHODS}
    return {**plain, CONTROL: (BASE, None), BASE_OF_MAPS: (BASE, None), **summed, **boosted}


def measure(classes: int, *, rounds: int, steps: int) -> dict[str, Any]:
    """Seconds per step of each, and ratios to cross-entropy in the same round."""
    given = problem(SIZES[classes], classes)
    contestants: dict[str, Contestant] = {}
    for label, (name, boost) in names().items():
        say(f"{classes} classes: {label}")
        contestants[label] = Contestant(name, given, boost=boost, maps=label == BASE_OF_MAPS)
        contestants[label].steps(1)
    times: dict[str, list[float]] = {label: [] for label in contestants}
    order = random.Random(0)
    for number in range(rounds):
        say(f"{classes} classes: round {number + 1} of {rounds}")
        for label in order.sample(sorted(contestants), len(contestants)):
            times[label].append(contestants[label].steps(steps) / steps)
    bases = {label: BASE_OF_MAPS if contestant.maps else BASE for label, contestant in contestants.items()}
    return {
        "images": SIZES[classes],
        "maps_cost": round(median(a / b for a, b in zip(times[BASE_OF_MAPS], times[BASE], strict=True)), 2),
        "methods": {
            label: {
                "ms": round(1000 * median(taken), 3),
                "base": bases[label],
                "ratios": [round(a / b, 3) for a, b in zip(taken, times[bases[label]], strict=True)],
                "memory": contestants[label].memory.sizes(),
            }
            for label, taken in times.items()
        },
    }


if __name__ == "__main__":
    main()
