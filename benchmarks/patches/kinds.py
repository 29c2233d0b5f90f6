"""Boxes, all instances, and pseudo-labels by other methods beside I and SP of the same cost, on scenes at 10 %.

python benchmarks/patches/kinds.py            ten minutes on two cores, goes on where it stopped
python benchmarks/patches/kinds.py --seeds 1  a look, printed and not written down
"""

from __future__ import annotations

import json

from record import record
from trained import EPOCHS, Entry, measure, parser

BUDGET, SEEDS = 10.0, 3
PAIRS = "eval,pairs:2"
ENTRIES = {
    "I": Entry("I", options={"w_patch": 0.0}),
    "SP": Entry("SP", options={"w_patch": 5.0}),
    "SB": Entry("SB", options={"w_patch": 5.0}),
    "AP": Entry("AP", options={"w_patch": 5.0}),
    "AB": Entry("AB", options={"w_patch": 5.0}),
    "I+PC": Entry("I", "patchml+patchcluster", {"w_patch": 0.0}, {"patchcluster": {"features": "image"}}),
    "I, pairs": Entry("I", options={"w_patch": 0.0}, views=PAIRS),
    "I, FixMatch": Entry("I", "patchml+fixmatch", {"w_patch": 0.0}, views=PAIRS),
}


def main() -> None:
    options = parser(__doc__.splitlines()[0], SEEDS).parse_args()
    found = {"budget": BUDGET, "seeds": options.seeds, "scores": measure(ENTRIES, (BUDGET,), options)[f"{BUDGET:g}"]}
    if (options.seeds, options.epochs) != (SEEDS, EPOCHS):
        print(json.dumps(found, indent=2))
        return
    record("kinds", found)


if __name__ == "__main__":
    main()
