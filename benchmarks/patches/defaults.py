"""What a user sees: `tagfill budget` with its defaults, tags and points at 10 % of the cost of all labels, two seeds.

A second study has the tags with `--absent-cells`.

python benchmarks/patches/defaults.py             five minutes on two cores, goes on where it stopped
python benchmarks/patches/defaults.py --seeds 1   a look, printed and not written down
"""

from __future__ import annotations

import json
import subprocess
import sys

from record import record
from trained import SIZES, VIEWS, Scores, parser

import tagfill

BUDGET, SEEDS = 10.0, 2


def main() -> None:
    options = parser(__doc__.splitlines()[0], SEEDS).parse_args()
    data = tagfill.scenes.make(**SIZES)
    cache = tagfill.features(data, views=VIEWS)
    scores: Scores = {}
    for name, kinds, more in (("", "I,SP", []), ("I, absent cells", "I", ["--absent-cells"])):
        folder = options.out / (name or "defaults")
        words = ["--budgets", f"{BUDGET:g}", "--kinds", kinds, "--seeds", str(options.seeds), *more]
        command = [sys.executable, "-m", "tagfill", "budget", str(data.folder), *words]
        places = ["--features", str(cache.folder), "--out", str(folder), "--jobs", str(options.jobs)]
        subprocess.run([*command, *places], check=True)
        for row in json.loads((folder / "budget.json").read_text(encoding="utf-8"))["findings"]:
            scores[name or row["kind"]] = {"cls": row["mAP_cls"], "loc": row["mAP_loc"]}
    found = {
        "sizes": SIZES,
        "budget": BUDGET,
        "seeds": options.seeds,
        "scores": scores,
    }
    if options.seeds != SEEDS:
        print(json.dumps(found, indent=2))
        return
    record("defaults", found)


if __name__ == "__main__":
    main()
