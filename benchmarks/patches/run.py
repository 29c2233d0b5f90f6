"""Whether points teach more than tags of the same cost, on scenes, five paired seeds.

A seed draws labels, order of images and initial weights alike for all entries; a kind of annotation gets as many labels
as its budget buys. Everything trains a `cam` head on the same cached features. Like the other scripts beside it, this
one writes its part of benchmarks/results/patches.json, and docs/benchmarks/patches.md anew.

    python benchmarks/patches/run.py                      half an hour on two cores, goes on where it stopped
    python benchmarks/patches/run.py --budgets 10 --seeds 1    a look, printed and not written down
    python benchmarks/patches/run.py --rows "I, CSL-I"    only these rows; the others stay as they were
"""

from __future__ import annotations

import json
from typing import Any

from record import RESULTS, record, stamp
from trained import EPOCHS, SIZES, Entry, Scores, measure, parser

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
    given.add_argument("--rows", help="entries to measure again, joined by semicolons")
    options = given.parse_args()
    names = [name.strip() for name in options.rows.split(";")] if options.rows else list(ENTRIES)
    budgets = tuple(float(word) for word in options.budgets.split(","))
    found = {
        "sizes": SIZES,
        "epochs": options.epochs,
        "seeds": options.seeds,
        "budgets": measure({name: ENTRIES[name] for name in names}, budgets, options),
    }
    if (budgets, options.seeds, options.epochs) != (BUDGETS, SEEDS, EPOCHS):
        print(json.dumps(found, indent=2))
        return
    if options.rows:
        before = json.loads(RESULTS.read_text(encoding="utf-8"))["run"]
        found = with_rows(before, found["budgets"], names, stamp("")["commit"])
    record("run", found)


def with_rows(before: dict[str, Any], budgets: dict[str, Scores], names: list[str], commit: str) -> dict[str, Any]:
    """Earlier results with some rows replaced, and the commit at which those were measured."""
    merged = {budget: scores | budgets[budget] for budget, scores in before["budgets"].items()}
    later = {at: sorted({*rows} - {*names}) for at, rows in before.get("later", {}).items()}
    later[commit] = sorted({*later.get(commit, []), *names})
    return before | {"budgets": merged, "later": {at: rows for at, rows in later.items() if rows}}


if __name__ == "__main__":
    main()
