"""Whether points teach more than tags of the same cost, on scenes, five paired seeds.

A seed draws labels, order of images and initial weights alike for all entries; a kind of annotation gets as many labels
as its budget buys. Everything trains a `cam` head on the same cached features. Like the other scripts beside it, this
one writes its part of benchmarks/results/patches.json, and docs/benchmarks/patches.md anew.

    python benchmarks/patches/run.py                      half an hour on two cores, goes on where it stopped
    python benchmarks/patches/run.py --budgets 10 --seeds 1    a look, printed and not written down
"""

from __future__ import annotations

import json

from record import record
from trained import EPOCHS, SIZES, Entry, measure, parser

BUDGETS, SEEDS = (10.0, 5.0), 5
ENTRIES = {
    "I": Entry("I", options={"w_patch": 0.0}),
    "SP": Entry("SP", options={"w_patch": 5.0}),
    "I, absent cells": Entry("I", options={"w_patch": 5.0}),
    "SP, PatchCluster": Entry("SP", "patchml+patchcluster", {"w_patch": 5.0}),
    "SP, CSL-P": Entry("SP", options={"w_patch": 5.0, "patch_unknown": "selective", "k_patch": 25}),
    "I, CSL-I": Entry("I", options={"w_patch": 0.0, "image_unknown": "selective"}),
}


def main() -> None:
    given = parser(__doc__.splitlines()[0], SEEDS)
    given.add_argument("--budgets", default=",".join(f"{each:g}" for each in BUDGETS), help="percent of all pairs")
    options = given.parse_args()
    budgets = tuple(float(word) for word in options.budgets.split(","))
    found = {
        "sizes": SIZES,
        "epochs": options.epochs,
        "seeds": options.seeds,
        "budgets": measure(ENTRIES, budgets, options),
    }
    if (budgets, options.seeds, options.epochs) != (BUDGETS, SEEDS, EPOCHS):
        print(json.dumps(found, indent=2))
        return
    record("run", found)


if __name__ == "__main__":
    main()
