"""Why CSL-P loses what points gain: its parts one by one, on scenes at 10 %, two paired seeds.

The mean over the cells that count (`cells: mean`) is over one cell where a class has a point and unknown cells are left
out, and over 24 where CSL-P takes 23 of the other 48 for absent: the point itself then weighs a 24th. What dilutes the
point and what the taken cells say are told apart by `patch_weights`, of marked, absent and unknown cells.

    python benchmarks/patches/causes.py             five minutes on two cores, goes on where it stopped
    python benchmarks/patches/causes.py --epochs 3  a look, printed and not written down
"""

from __future__ import annotations

import json
from typing import Any

from record import RESULTS, record
from trained import EPOCHS, SCORES, Entry, Job, measure, parser, train

BUDGET, SEEDS = 10.0, 2


def csl_p(k: int = 25, **options: Any) -> Entry:
    """Points with CSL-P that spares k cells."""
    return Entry("SP", options={"w_patch": 5.0, "patch_unknown": "selective", "k_patch": k, **options})


STUDIED = {"SP": "SP", "CSL-P": "SP, CSL-P"}  # entries of the study, whose first seeds are these
ENTRIES = {
    "diluted point alone": csl_p(patch_weights=[1.0, 1.0, 0.0]),
    "whole point": csl_p(patch_weights=[24.0, 1.0, 1.0]),
    "whole point, γ_u 0": csl_p(patch_weights=[24.0, 1.0, 1.0], patch_gammas=[0.0, 1.0, 0.0]),
    "whole point, k 40": csl_p(40, patch_weights=[9.0, 1.0, 1.0]),
    "sum of cells": csl_p(cells="sum", w_patch=0.1),
}


def main() -> None:
    options = parser(__doc__.splitlines()[0], SEEDS).parse_args()
    found = {"budget": BUDGET, "seeds": options.seeds, "scores": measure(ENTRIES, (BUDGET,), options)[f"{BUDGET:g}"]}
    if (options.seeds, options.epochs) != (SEEDS, EPOCHS):
        print(json.dumps(found, indent=2))
        return
    study = json.loads(RESULTS.read_text(encoding="utf-8"))["run"]["budgets"][f"{BUDGET:g}"]
    known = {name: {key: values[:SEEDS] for key, values in study[of].items()} for name, of in STUDIED.items()}
    again = train(Job("SP", Entry("SP", options={"w_patch": 5.0}), BUDGET, 0, EPOCHS, options.out))
    found["again"] = {key: [known["SP"][key][0], again[key]] for key in SCORES}  # whether code and numbers still agree
    record("causes", {**found, "scores": {**known, **found["scores"]}})


if __name__ == "__main__":
    main()
